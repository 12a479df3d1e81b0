"""Files held in the operating system's cache: ``python -m benchmarks.services.holding FILE...``.

Maps and locks them, says ``held BYTES``, and lets go when its input ends: a process of its own, as whoever
closes a file of SQLite's drops all locks that its process has on it. Machines that are virtual may drop pages
of files at any time, whatever memory is free; a locked page stays.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(paths: Iterable[Path]) -> Generator[int]:
    """Reads all of the files that this user may read, and holds them; how many bytes are locked.

    None are where the limit of locked memory (``ulimit -l``) does not let us: then they are only read.
    """
    readable = [str(path) for path in paths if os.access(path, os.R_OK)]
    command = [sys.executable, "-m", "benchmarks.services.holding", *readable]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:1] == ["held"], said
        try:
            yield int(said[1])
        finally:
            process.stdin.close()


def hold(path: str) -> int:
    """Locks the pages of a file until the process ends; how many bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    with Path(path).open("rb") as file:
        while file.read(1 << 22):
            pass
        size = file.tell()
        if not size:
            return 0
        mapped = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if mapped == ctypes.c_void_p(-1).value:
        return 0
    return size if libc.mlock(mapped, size) == 0 else 0


if __name__ == "__main__":
    print("held", sum(map(hold, sys.argv[1:])), flush=True)
    sys.stdin.read()

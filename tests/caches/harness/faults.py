"""A file layer that ends its process at a chosen operation, and the program that tries every operation.

``python -m tests.caches.harness.faults DIRECTORY`` runs each scenario once for each fault in a fork of its
own, and
prints for each scenario how many faults there were. It fails if a fork leaves something that it must not
leave.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kcache_grpc.caches import CacheError, InMemoryCache, OnDiskCache
from kcache_grpc.caches.files import Files

KEY, OLD, NEW = "key", ["old", b"o" * 5000], ["new", b"n" * 5000]


class KillingFiles(Files):
    """Sends SIGKILL to this process at a fault: before and after operations, and in the middle of a write."""

    def __init__(self, number: int) -> None:
        self._left = number

    def _fault(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def make_directory(self, path: Path) -> None:
        self._fault()
        super().make_directory(path)
        self._fault()

    def read(self, path: Path, size: int = -1) -> bytes | None:
        self._fault()
        return super().read(path, size)

    def create(self, directory: Path) -> tuple[int, str]:
        self._fault()
        result = super().create(directory)
        self._fault()
        return result

    def write(self, descriptor: int, data: bytes) -> None:
        self._fault()
        super().write(descriptor, data[: len(data) // 2])
        self._fault()
        super().write(descriptor, data[len(data) // 2 :])
        self._fault()

    def sync(self, descriptor: int) -> None:
        self._fault()
        super().sync(descriptor)
        self._fault()

    def link(self, source: Path, target: Path) -> bool:
        self._fault()
        result = super().link(source, target)
        self._fault()
        return result

    def rename(self, source: Path, target: Path) -> None:
        self._fault()
        super().rename(source, target)
        self._fault()

    def remove(self, path: Path) -> None:
        self._fault()
        super().remove(path)
        self._fault()

    @contextmanager
    def locked(self, path: Path, *, shared: bool = False) -> Generator[None, None, None]:
        self._fault()
        with super().locked(path, shared=shared):
            self._fault()
            yield
            self._fault()
        self._fault()


class NextVersion(OnDiskCache[Any, Any]):
    version = 1


def nothing(directory: Path) -> None:
    """No entry."""


def old_version(directory: Path) -> None:
    """An entry of another version."""
    OnDiskCache(base_dir=directory).insert(KEY, OLD)


def damaged(directory: Path) -> None:
    """An entry that lost its end."""
    NextVersion(base_dir=directory).insert(KEY, OLD)
    (path,) = (path for path in directory.iterdir() if path.is_file())
    path.write_bytes(path.read_bytes()[:-1])


def current(directory: Path) -> None:
    """An entry of this version."""
    NextVersion(base_dir=directory).insert(KEY, OLD)


def insert(cache: OnDiskCache[Any, Any]) -> None:
    cache.insert(KEY, NEW)


def get(cache: OnDiskCache[Any, Any]) -> None:
    try:
        cache.get(KEY)
    except CacheError:
        cache.insert(KEY, NEW)


#: What is there, what is done, and which values may then be there; None means a miss.
SCENARIOS: dict[str, tuple[Callable[[Path], None], Callable[[Any], None], list[Any]]] = {
    "insert": (nothing, insert, [None, NEW]),
    "insert over another version": (old_version, insert, [None, NEW]),
    "insert over an entry": (current, insert, [OLD]),
    "get of another version": (old_version, get, [None]),
    "get of a damaged entry": (damaged, get, [None, NEW, CacheError]),
}


def run(scenario: str, number: int, directory: Path) -> bool:
    """One scenario with one fault; whether the fault was reached."""
    prepare, action, allowed = SCENARIOS[scenario]
    shutil.rmtree(directory, ignore_errors=True)
    prepare(directory)
    killed = in_a_fork(lambda: action(NextVersion(base_dir=directory, files=KillingFiles(number))))
    check(directory, allowed)
    return killed


def in_a_fork(action: Callable[[], object]) -> bool:
    """Runs ``action`` in another process, which must return or be killed; whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.WEXITSTATUS(status) == 0, status
    return killed


def check(directory: Path, allowed: list[Any]) -> None:
    """No lock is held, no corrupt value is read, and the key can be inserted or has its value."""
    if (directory / "lock").exists():
        with (directory / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    cache = NextVersion(base_dir=directory)
    try:
        value = cache.get(KEY)
    except CacheError:
        value = CacheError
    assert value in allowed, value
    inserted = cache.insert(KEY, NEW)
    assert inserted is (value is None or value is CacheError)
    assert cache.get(KEY) == (NEW if inserted else value)


def write_file(number: int, path: Path) -> bool:
    """Replaces a file of entries with one fault; whether the fault was reached."""
    caches: list[InMemoryCache[Any, Any]] = [InMemoryCache(), InMemoryCache()]
    for cache, value in zip(caches, (OLD, NEW), strict=True):
        cache.insert(KEY, value)
    caches[0].to_file_path(path)
    killed = in_a_fork(lambda: caches[1].to_file_path(path, files=KillingFiles(number)))
    value = InMemoryCache[Any, Any].from_file_path(path).get(KEY)
    assert value == NEW if not killed else value in (OLD, NEW)
    return killed


def main(directory: Path) -> None:
    counts: dict[str, int] = {"write a file": 0}
    while write_file(counts["write a file"], directory / "file"):
        counts["write a file"] += 1
    for scenario in SCENARIOS:
        number = 0
        while run(scenario, number, directory / "cache"):
            number += 1
        counts[scenario] = number
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

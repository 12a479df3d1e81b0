"""Runs jobs in a fork of the worker: the process that parses untrusted input ends with the job.

The worker itself stays as it was after its imports. A parser that crashes ends its own process only, and
memory that it corrupted is never seen by the next program.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import NoReturn

from kcache_grpc.worker.frames import MAX_BLOB_BYTES, BrokenFrameError, Frame, decode, encode, receive

#: Sent by the parent while a job runs: end it. One that arrives after the job's reply is ignored.
CANCEL = "cancel"
_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 20
#: Packages whose modules the worker imports for the next fork when a fork had to import them.
_PACKAGES = ("kcache_compiler", "kcache_grpc", "torch_mlir", "onnx", "google.protobuf", "numpy", "ml_dtypes")


def freeze_heap() -> None:
    """Prepares for forks: Python's garbage collector ignores all present objects, here and in forks."""
    gc.collect()
    gc.freeze()


def run_in_fork(job: Callable[[], Frame], channel: socket.socket) -> Frame | None:
    """The reply of ``job``, which runs in a fork and must not raise.

    A fork that died gives a frame ``died`` with ``returncode``. ``None`` when the parent closed ``channel``.
    The fork is killed when ``channel`` has something to read, which can only be ``CANCEL``, or its end.
    """
    # A fork has this thread only: an MLIR context that it inherits would wait for its threads for ever.
    gc.collect()
    reader, writer = os.pipe()
    known = len(sys.modules)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        channel.close()
        _run(job, writer, known)
    os.close(writer)
    try:
        content, open_channel = _read(reader, pid, channel)
    finally:
        os.close(reader)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not open_channel:
        return None
    if status == 0:
        try:
            reply = decode(content)
        except BrokenFrameError:
            return Frame({"type": "died", "returncode": 1})
        _import(reply.header.get("imported", ()))
        return Frame({k: v for k, v in reply.header.items() if k != "imported"}, reply.blobs)
    return Frame({"type": "died", "returncode": status})


def _run(job: Callable[[], Frame], writer: int, known: int) -> NoReturn:
    """The fork. It ends here, without the worker's clean-up."""
    status = 1
    try:
        worker = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == worker:
            reply = job()
            names = [name for name in list(sys.modules)[known:] if _may_import(name)]
            for part in encode(Frame({**reply.header, "imported": names}, reply.blobs)):
                _write(writer, part)
            status = 0
    except BaseException:  # noqa: BLE001 - nothing may leave a fork
        traceback.print_exc()
    finally:
        os._exit(status)


def _write(writer: int, part: bytes) -> None:
    rest = memoryview(part)
    while rest:
        rest = rest[os.write(writer, rest) :]


def _read(reader: int, pid: int, channel: socket.socket) -> tuple[bytes, bool]:
    """What the fork wrote until it ended, and whether ``channel`` is open still."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(channel, select.POLLIN)
    parts: list[bytes] = []
    size = 0
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if reader in ready:
            part = os.read(reader, _READ_BYTES)
            if not part:
                return b"".join(parts), True
            parts.append(part)
            size += len(part)
        if channel.fileno() in ready or size > MAX_BLOB_BYTES:
            os.kill(pid, signal.SIGKILL)
            return b"", size > MAX_BLOB_BYTES or receive(channel) is not None


def _may_import(name: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in _PACKAGES)


def _import(names: Iterable[object]) -> None:
    """Imports what a fork had to import, so that the next one need not."""
    new = [name for name in names if isinstance(name, str) and _may_import(name) and name not in sys.modules]
    for name in new:
        with contextlib.suppress(Exception):  # the next fork imports it, or fails as this one did
            importlib.import_module(name)
    if new:
        freeze_heap()

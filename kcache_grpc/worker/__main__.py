"""A worker process: ``python -m kcache_grpc.worker SETTINGS``; SETTINGS is JSON from ``process.py``.

It reads jobs from an inherited socket, never from stdin, and replies there: what native code prints goes to
stderr, which the parent keeps for diagnostics.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

from kcache_grpc.worker.containment import Confinement, confine, confine_fork
from kcache_grpc.worker.frames import Frame, receive, send
from kcache_grpc.worker.isolation import CANCEL, run_in_fork, settle
from kcache_grpc.worker.stages import tell

_PR_SET_PDEATHSIG = 1
#: Niceness of a worker above the service's, to which it gives way, and of a fork that reads a program above
#: the worker's: a program that takes a minute to read must not slow the compiles of others.
_COMPILE_NICENESS, _READ_NICENESS = 10, 19


def main(arguments: list[str]) -> int:
    """Serves jobs until the parent closes the channel."""
    settings: dict[str, Any] = json.loads(arguments[0])
    _die_with(settings["parent"])
    _limit(settings["memory_bytes"])
    channel = socket.socket(fileno=settings["channel"])
    channel.set_inheritable(False)  # a linker that a job starts must not hold it open
    stages: int = settings["stages"]
    os.set_inheritable(stages, False)
    jobs = importlib.import_module(settings["jobs"])
    hello = {"type": "hello", "forked": sorted(_forked(jobs)), **jobs.hello()}
    confined = confine(settings["writable"], settings["readable"])
    send(channel, Frame({**hello, "unconfined": confined.missing}))
    # After the imports: a service that starts is waited for, a compile is not.
    os.nice(_COMPILE_NICENESS)
    _warm(jobs)
    settle()
    while (request := receive(channel)) is not None:
        if not _serve(channel, stages, jobs, request, confined):
            return 1
    return 0


def _warm(jobs: Any) -> None:
    try:
        jobs.warm()
    except Exception:  # noqa: BLE001 - the first job will tell, if it matters
        traceback.print_exc()


def _forked(jobs: Any) -> frozenset[str]:
    """Types of the jobs that read input of untrusted form."""
    return getattr(jobs, "FORKED", frozenset())


def _linking(jobs: Any) -> frozenset[str]:
    """Types of the jobs that read such input and link what they make of it."""
    return getattr(jobs, "LINKING", frozenset())


def _serve(channel: socket.socket, stages: int, jobs: Any, request: Frame, confined: Confinement) -> bool:
    """Runs one job; false when this process should not take another."""
    if request.type == CANCEL:  # of a job that has ended
        return True
    if request.type in _forked(jobs):

        def read() -> Frame:
            os.nice(_READ_NICENESS)
            # A fork that links too needs the worker's own folder and linker, and has its confinement.
            links = request.type in _linking(jobs)
            confine_fork(-1 if links else confined.reading, request.header.get("seconds", 0))
            return _reply(stages, jobs, request)

        reply = run_in_fork(read, channel)
        if reply is None:
            return False
        send(channel, Frame({**reply.header, "last": False}, reply.blobs))
        return True
    reply = _reply(stages, jobs, request)
    send(channel, reply)
    return not reply.header.get("last")


def _reply(stages: int, jobs: Any, request: Frame) -> Frame:
    """What comes of a job. ``last``: this process should not take another."""
    from kcache_grpc.worker.failure import encode_error, public_error

    stage = request.type

    def on_stage(name: str) -> None:
        nonlocal stage
        stage = name
        tell(stages, name)

    try:
        return jobs.JOBS[request.type](request, on_stage)
    except Exception as error:  # noqa: BLE001 - every failure of a job is an answer
        if not _expected(error):
            traceback.print_exc()
        return encode_error(public_error(error, stage), last=isinstance(error, MemoryError))


def _expected(error: Exception) -> bool:
    from kcache_compiler.errors import CompilerError

    return isinstance(error, CompilerError)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

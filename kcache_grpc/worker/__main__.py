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

from kcache_grpc.worker.frames import Frame, receive, send
from kcache_grpc.worker.stages import tell

_PR_SET_PDEATHSIG = 1


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
    send(channel, Frame({"type": "hello", **jobs.hello()}))
    os.setpriority(
        os.PRIO_PROCESS, 0, 19
    )  # after the imports: a service that starts is waited for, a compile is not
    _warm(jobs)
    while (request := receive(channel)) is not None:
        if not _serve(channel, stages, jobs, request):
            return 1
    return 0


def _warm(jobs: Any) -> None:
    try:
        jobs.warm()
    except Exception:  # noqa: BLE001 - the first job will tell, if it matters
        traceback.print_exc()


def _serve(channel: socket.socket, stages: int, jobs: Any, request: Frame) -> bool:
    """Runs one job; false when this process should not take another."""
    from kcache_grpc.worker.failure import encode_error, public_error

    stage = request.type

    def on_stage(name: str) -> None:
        nonlocal stage
        stage = name
        tell(stages, name)

    try:
        reply = jobs.JOBS[request.type](request, on_stage)
    except Exception as error:  # noqa: BLE001 - every failure of a job is an answer
        if not _expected(error):
            traceback.print_exc()
        last = isinstance(error, MemoryError)
        send(channel, encode_error(public_error(error, stage), last))
        return not last
    send(channel, reply)
    return True


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

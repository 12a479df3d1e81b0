"""The fork server of workers and, in its forks, the workers: ``python -m kcache_grpc.worker SETTINGS``.

SETTINGS is JSON from ``fork_server.py``. The server imports the jobs, and forks a worker for each request.
A worker reads jobs from an inherited socket and replies there: what native code prints goes to stderr, which
the parent keeps for diagnostics.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from kcache_grpc.worker.containment import Confinement, confine, confine_fork
from kcache_grpc.worker.fork_server import MESSAGE_BYTES
from kcache_grpc.worker.frames import Frame, receive, send
from kcache_grpc.worker.isolation import CANCEL, freeze_heap, run_in_fork
from kcache_grpc.worker.libraries import VARIABLE as LIBRARIES
from kcache_grpc.worker.stages import report

_PR_SET_PDEATHSIG = 1
#: Niceness of a worker above the service's, to which it gives way, and of a fork that parses a program above
#: the worker's: a program that takes a minute to parse must not slow the compiles of others.
_COMPILE_NICENESS, _PARSE_NICENESS = 10, 19
#: Descriptors that a fork request carries: the worker's channel, its log of stages, its output.
_DESCRIPTORS = 3


def main(arguments: list[str]) -> int:
    """Forks workers until the parent closes the control socket."""
    settings: dict[str, Any] = json.loads(arguments[0])
    _die_with(settings["parent"])
    # A group of its own: a terminal's Ctrl-C is for the service. No session of its own: Linux compares the
    # niceness of the processes of one session only (sched_autogroup).
    os.setpgid(0, 0)
    gc.disable()  # what is imported stays: to look through it again and again is in vain
    jobs = importlib.import_module(settings["jobs"])
    hello = {"type": "hello", "forked": sorted(_forked(jobs)), **jobs.hello()}
    gc.collect()
    gc.freeze()  # the collector of no worker looks at, and so copies, what they share
    gc.enable()
    with socket.socket(fileno=settings["control"]) as control:
        control.set_inheritable(False)
        return _fork_workers(control, jobs, hello)


def _fork_workers(control: socket.socket, jobs: Any, hello: dict[str, Any]) -> int:
    """Takes requests from ``control``, and reports the workers that end, until ``control`` is closed."""
    workers: set[int] = set()
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_reader, False)
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, _wake)
    signal.set_wakeup_fd(wake_writer)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_reader, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if wake_reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_reader, MESSAGE_BYTES)
            for pid, returncode in _ended(workers):
                workers.remove(pid)
                _send(control, ended=pid, returncode=returncode)
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, _DESCRIPTORS)
            if not message:
                return 0
            request: dict[str, Any] = json.loads(message)
            if "reap" in request:
                os.waitpid(request["reap"], 0)
                continue
            try:
                pid = _fork(request, descriptors, jobs, hello)
            except OSError as error:
                _send(control, failed=str(error))
                continue
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            workers.add(pid)
            _send(control, started=pid)


def _wake(*_: object) -> None:
    """Python writes to the wake-up descriptor only for signals that have a handler."""


def _send(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


def _ended(workers: set[int]) -> list[tuple[int, int]]:
    """The process ids and exit statuses of workers that ended. They are not reaped, so no id is reused."""
    ended: list[tuple[int, int]] = []
    for pid in workers:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is not None:
            code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
            ended.append((pid, code))
    return ended


def _fork(request: dict[str, Any], descriptors: list[int], jobs: Any, hello: dict[str, Any]) -> int:
    """Forks a worker and returns its process id; the worker itself does not return."""
    server = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the worker does the same: either may run first
            os.setpgid(pid, pid)
        return pid
    status = 1
    try:
        _become_worker(request, descriptors, server)
        status = _work(request, descriptors, jobs, hello)
    except BaseException:  # noqa: BLE001 - nothing may go on as a fork server
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _become_worker(settings: dict[str, Any], descriptors: list[int], server: int) -> None:
    """Replaces the signal handlers, descriptors, directories and process group of the fork server."""
    _die_with(server)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel, stages, output = descriptors
    for standard in (1, 2):
        os.dup2(output, standard)
    _close_all_but({0, 1, 2, channel, stages})
    os.environ.update(HOME=settings["home"], TMPDIR=settings["home"])
    if settings["libraries"]:
        os.environ[LIBRARIES] = settings["libraries"]
    tempfile.tempdir = None
    os.chdir(settings["home"])


def _close_all_but(kept: set[int]) -> None:
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with contextlib.suppress(OSError):  # of the listing itself
                os.close(descriptor)


def _work(settings: dict[str, Any], descriptors: list[int], jobs: Any, hello: dict[str, Any]) -> int:
    """Serves jobs until the parent closes the channel."""
    _limit(settings["memory_bytes"])
    channel, stages = socket.socket(fileno=descriptors[0]), descriptors[1]
    channel.set_inheritable(False)  # a linker that a job starts must not hold it open
    os.set_inheritable(stages, False)
    confined = confine(settings["writable"], settings["readable"])
    send(channel, Frame({**hello, "unconfined": confined.missing}))
    # After the hello: a service that starts is waited for, a compile is not.
    os.nice(_COMPILE_NICENESS)
    _warm(jobs)
    freeze_heap()
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
    """Types of the jobs that parse input of untrusted form."""
    return getattr(jobs, "FORKED", frozenset())


def _linking(jobs: Any) -> frozenset[str]:
    """Types of the jobs that parse such input and link what they make of it."""
    return getattr(jobs, "LINKING", frozenset())


def _serve(channel: socket.socket, stages: int, jobs: Any, request: Frame, confined: Confinement) -> bool:
    """Runs one job; false when this process should not take another."""
    if request.type == CANCEL:  # of a job that has ended
        return True
    if request.type in _forked(jobs):

        def parse() -> Frame:
            os.nice(_PARSE_NICENESS)
            # A fork that links too needs the worker's own directory and linker, and has its confinement.
            links = request.type in _linking(jobs)
            confine_fork(-1 if links else confined.parsing, request.header.get("seconds", 0))
            return _reply(stages, jobs, request)

        reply = run_in_fork(parse, channel)
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
        report(stages, name)

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

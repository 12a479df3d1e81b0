"""Fork servers: processes that import the compiler once, and fork a worker from it in milliseconds.

A process has one fork server for each environment and module of jobs that its workers have. The server is
started by the first worker, and ends with this process. The child's side is ``__main__.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kcache_grpc.errors import Unavailable

#: Bytes of a message between the two sides, and of a fork server's output that an error shows.
MESSAGE_BYTES = 65_536
_TAIL_BYTES = 16_384


class ForkedProcess:
    """A worker process, with the interface of ``subprocess.Popen``. It leads its own process group."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._returncode: int | None = None
        self._ended = threading.Event()
        #: While it is held the process is not reaped, so its id is not reused.
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; ``None`` while it runs."""
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it ended. Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        assert self._returncode is not None
        return self._returncode

    def kill_group(self) -> None:
        """Ends the process and all that it started; does nothing once it ended."""
        with self._lock:
            if self._returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def end(self, returncode: int) -> None:
        """Records the exit status. Called before the fork server reaps the process."""
        with self._lock:
            self._returncode = returncode
        self._ended.set()


class ForkServer:
    """One fork server, which runs in ``environment`` and imports ``jobs``. Thread-safe."""

    def __init__(self, environment: Mapping[str, str], jobs: str) -> None:
        self._lock = threading.Lock()
        self._started: queue.SimpleQueue[ForkedProcess | str] = queue.SimpleQueue()
        self._running: dict[int, ForkedProcess] = {}
        self._process: subprocess.Popen[bytes] | None = None
        #: The end of its output, once it ended.
        self._final_output = ""
        self._has_ended = threading.Event()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the thread below
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        spawned = threading.Event()
        # PR_SET_PDEATHSIG is per thread: the thread that starts the server lives as long as this process.
        self._thread = threading.Thread(
            target=self._serve, args=(environment, jobs, theirs, spawned), name="kcache-workers", daemon=True
        )
        self._thread.start()
        spawned.wait()

    @property
    def alive(self) -> bool:
        """False once it ended, before any caller of ``fork`` is told."""
        return not self._has_ended.is_set()

    def fork(self, arguments: Mapping[str, Any], descriptors: Sequence[int], timeout: float) -> ForkedProcess:
        """A worker with ``arguments``, of JSON, and copies of ``descriptors``. Waits until the server runs.

        Raises ``Unavailable`` when the server does not start within ``timeout`` seconds, or cannot fork.
        """
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(arguments).encode()], list(descriptors))
                started = self._started.get(timeout=timeout)
            except (OSError, queue.Empty):
                self.close()
                raise Unavailable(f"a worker did not start: {self._final_output or 'no output'}") from None
        if isinstance(started, str):
            raise Unavailable(f"a worker did not start: {started or 'no output'}")
        return started

    def close(self) -> None:
        """Ends the server and its workers, and waits for that."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            self._process.kill()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(
        self, environment: Mapping[str, str], jobs: str, theirs: socket.socket, spawned: threading.Event
    ) -> None:
        """The thread: starts the server, and takes its messages until it ends."""
        try:
            with theirs:
                self._process = self._spawn(environment, jobs, theirs)
        except OSError as error:
            self._final_output = str(error)
        finally:
            spawned.set()
        if self._process is not None:
            with contextlib.suppress(OSError):
                while message := self._control.recv(MESSAGE_BYTES):
                    self._take(json.loads(message))
            self._process.kill()
            self._process.wait()
            self._final_output = self._tail()
        for process in self._running.values():  # PR_SET_PDEATHSIG ends them with the server
            process.end(-signal.SIGKILL)
        self._control.close()
        self._output.close()
        self._has_ended.set()
        self._started.put(self._final_output)

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"started": int(pid)}:
                self._running[pid] = ForkedProcess(pid)
                self._started.put(self._running[pid])
            case {"failed": str(reason)}:
                self._started.put(reason)
            case {"ended": int(pid), "returncode": int(returncode)}:
                self._running.pop(pid).end(returncode)
                self._control.send(json.dumps({"reap": pid}).encode())
            case _:
                raise AssertionError(message)

    def _spawn(
        self, environment: Mapping[str, str], jobs: str, control: socket.socket
    ) -> subprocess.Popen[bytes]:
        flags = ["-s"] + (["-P"] if sys.version_info >= (3, 11) else [])
        arguments = {"control": control.fileno(), "parent": os.getpid(), "jobs": jobs}
        return subprocess.Popen(
            [sys.executable, *flags, "-m", "kcache_grpc.worker", json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(control.fileno(),),
            cwd="/",
            env=environment,
        )

    def _tail(self) -> str:
        """The end of what the server printed."""
        size = os.fstat(self._output.fileno()).st_size
        text = os.pread(self._output.fileno(), _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
        return text.decode(errors="replace").strip()


_servers: dict[tuple[Any, ...], ForkServer] = {}
_lock = threading.Lock()


def fork_server(environment: Mapping[str, str], jobs: str) -> ForkServer:
    """The fork server of this process for workers with ``environment`` that run ``jobs``."""
    key = (jobs, *sorted(environment.items()))
    with _lock:
        server = _servers.get(key)
        if server is None or not server.alive:
            server = _servers[key] = ForkServer(environment, jobs)
        return server


@atexit.register
def _close_all() -> None:
    for server in _servers.values():
        server.close()


def _forget_all() -> None:
    """In a fork of this process, whose threads and children are the parent's."""
    global _lock
    _lock = threading.Lock()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_all)

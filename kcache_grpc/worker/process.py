"""One worker process, seen from the parent."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import site
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kcache_grpc.errors import CompileTimeout, KcacheError, Unavailable
from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.worker import failure
from kcache_grpc.worker.fork_server import ForkedProcess, fork_server
from kcache_grpc.worker.frames import BrokenFrameError, Frame, encode, receive_async
from kcache_grpc.worker.home import Home
from kcache_grpc.worker.isolation import CANCEL
from kcache_grpc.worker.stages import StageLog

#: How much of what a worker printed is kept.
_TAIL_BYTES = 16_384
#: Seconds between two looks for stages that began.
_LOOK = 0.05
#: Seconds that a worker has to end a job that runs in a fork.
_END_SECONDS = 5.0
_PACKAGES = ("kcache_grpc", "kcache_compiler", "torch_mlir", "llvmlite")

OnStage = Callable[[str], None]


@dataclass(frozen=True)
class WorkerSettings:
    """How worker processes are started.

    ``memory_bytes`` bounds a worker's address space (0: unbounded); libraries take about 1 GiB of it.
    ``jobs`` is the module whose jobs the worker runs, ``extra_path`` where else it is searched for.
    ``libraries`` is a private directory in which all workers keep what several kernels are linked with.
    ``writable`` are directories that they may write to besides that and their own.
    """

    memory_bytes: int = 8 << 30
    start_timeout: float = 120.0
    jobs: str = "kcache_grpc.worker.child.jobs"
    extra_path: tuple[str, ...] = ()
    libraries: Path | None = None
    writable: tuple[str, ...] = ()


class WorkerProcess:
    """A child that runs one job at a time. Use from one event loop; made by ``start``."""

    def __init__(self) -> None:
        self._home = Home()
        self._stages = StageLog()
        self._socket, self._theirs = socket.socketpair()
        self._socket.setblocking(False)
        output, self._written = os.pipe()
        os.set_blocking(output, False)
        self._output = os.fdopen(output, "rb", 0)
        self._process: ForkedProcess | None = None
        self._tail = bytearray()
        self._stage = "start"
        self._timed_out = False
        self._last_alarm: asyncio.TimerHandle | None = None
        self._spent = False
        self._forked: frozenset[str] = frozenset()
        #: Jobs that ran in the process itself, which a later one shares with them.
        self.shared_by = 0
        self.jobs_done = 0
        self.toolchains = Toolchains(Toolchain(), Toolchain())
        self.canonicalizer = 0
        self.limits: dict[str, int] = {}
        #: What the kernel does not provide to confine it.
        self.unconfined: tuple[str, ...] = ()

    @classmethod
    async def start(cls, settings: WorkerSettings, niceness: int = 0) -> WorkerProcess:
        """Starts a worker and waits until it is warm. Raises ``Unavailable`` with what it printed.

        ``niceness``: of nice(2), from 0, the usual priority, to 19, the lowest.
        """
        worker = cls()
        try:
            await worker._fork(settings)
            if niceness:  # before it has threads and children, which inherit it
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, worker.pid, niceness)
            await worker._connect(settings.start_timeout)
        except BaseException:
            await worker.close()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once it died, was killed, or said that it takes no more jobs."""
        return not self._spent and self._process is not None and self._process.poll() is None

    def forks(self, job: Frame) -> bool:
        """Whether ``job`` has its own process, which can be ended without the worker."""
        return job.type in self._forked

    async def run(self, job: Frame, timeout: float, on_stage: OnStage | None = None) -> Frame:
        """Runs one job. Raises what the job raised; ``CompileTimeout`` after ``timeout`` seconds, when
        it is killed; ``CompileFailed`` or ``ResourceExhausted`` when it died. ``on_stage`` is told of every
        stage in order, of all before the job ends. A job that is cancelled is killed; the worker goes on
        if the job has its own process.
        """
        forks = self.forks(job)
        self._stage = job.type
        self._timed_out = False
        self._stages.clear()
        self._drain_output()
        self._tail.clear()
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(timeout, self._expire_job if forks else self._expire)
        looks = loop.create_task(self._look(on_stage))
        sent = False
        try:
            for part in encode(job):
                self._writer.write(part)
            await self._writer.drain()
            sent = True
            reply = await receive_async(self._reader)
        except (BrokenFrameError, ConnectionError):
            raise await self._death(timeout, on_stage) from None
        except asyncio.CancelledError:
            ended = False
            try:
                ended = forks and sent and await asyncio.shield(loop.create_task(self._end_job()))
            finally:  # also when it is cancelled again meanwhile
                if not ended:
                    self.kill()
            raise
        finally:
            alarm.cancel()
            looks.cancel()
            if self._last_alarm is not None:
                self._last_alarm.cancel()
            self.jobs_done += 1
            self.shared_by += not forks
        self._report_stages(on_stage)
        self._spent = bool(reply.header.get("last"))
        if reply.type == "died":
            self._drain_output()
            raise self._died(int(reply.header["returncode"]), timeout)
        if reply.type == "error":
            raise failure.decode_error(reply.header)
        return reply

    def kill(self) -> None:
        """Ends the process and all that it started, at once."""
        self._spent = True
        if self._process is not None:
            self._process.kill_group()

    async def close(self) -> None:
        """Kills it, waits for its end and removes its files."""
        self.kill()
        if self._process is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        if hasattr(self, "_writer"):
            self._writer.close()
        else:
            self._socket.close()
        self._drain_output()
        asyncio.get_running_loop().remove_reader(self._output)
        self._output.close()
        self._stages.close()
        self._home.close()

    @property
    def output(self) -> str:
        """The end of what the worker printed."""
        return self._tail.decode(errors="replace")

    async def _fork(self, settings: WorkerSettings) -> None:
        """Starts the process, in a thread: the fork server may have to start first."""

        def forked() -> ForkedProcess:
            try:
                return _fork(settings, self._theirs, self._stages, self._written, str(self._home.path))
            finally:
                self._theirs.close()
                os.close(self._written)

        forking = asyncio.get_running_loop().run_in_executor(None, forked)
        try:
            self._process = await asyncio.shield(forking)
        except asyncio.CancelledError:
            forking.add_done_callback(_end_late)
            raise

    async def _connect(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._output, self._drain_output)
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        alarm = loop.call_later(timeout, self._expire)
        try:
            hello = await receive_async(self._reader)
        except BrokenFrameError:
            await self._reap()
            raise Unavailable(f"a worker did not start: {self.output.strip() or 'no output'}") from None
        finally:
            alarm.cancel()
        self.toolchains = Toolchains(
            *(
                # A version of before, which somebody has put on disk meanwhile, does not tell all.
                Toolchain(tuple((name, value) for name, value in hello.header.get(kind, ())))
                for kind in ("toolchain", "gpu_toolchain")
            )
        )
        self.canonicalizer = int(hello.header["canonicalizer"])
        self.unconfined = tuple(hello.header.get("unconfined", ()))
        self._forked = frozenset(hello.header.get("forked", ()))
        self.limits = dict(hello.header["limits"])

    async def _look(self, on_stage: OnStage | None) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            self._report_stages(on_stage)

    def _report_stages(self, on_stage: OnStage | None) -> None:
        """Reports the stages that began since the last call."""
        for stage in self._stages.read_new():
            self._stage = stage
            if on_stage is not None:
                on_stage(stage)

    async def _death(self, timeout: float, on_stage: OnStage | None) -> KcacheError:
        code = await self._reap()
        self._report_stages(on_stage)
        return self._died(code, timeout)

    def _died(self, code: int, timeout: float) -> KcacheError:
        """The error for a job whose process ended with ``code``."""
        if self._timed_out:
            return CompileTimeout(
                f"stage {self._stage} passed the time limit of {timeout:g} s", stage=self._stage
            )
        return failure.crash(self._stage, code, bytes(self._tail))

    async def _reap(self) -> int:
        """The exit status. A child that closed its channel is about to exit, or corrupted."""
        loop = asyncio.get_running_loop()
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            await loop.run_in_executor(None, self._process.wait, 5.0)
        self.kill()
        code = await loop.run_in_executor(None, self._process.wait)
        self._drain_output()
        return code

    async def _end_job(self) -> bool:
        """Ends the job that runs in a fork, and waits for that; false when the worker does not answer."""
        try:
            self._cancel_job()
            await asyncio.wait_for(receive_async(self._reader), _END_SECONDS)
        except (asyncio.TimeoutError, BrokenFrameError, ConnectionError):
            return False
        return True

    def _cancel_job(self) -> None:
        for part in encode(Frame({"type": CANCEL})):
            self._writer.write(part)

    def _expire_job(self) -> None:
        """The job's time is over; that of the worker, if it does not end the job."""
        self._timed_out = True
        self._cancel_job()
        self._last_alarm = asyncio.get_running_loop().call_later(_END_SECONDS, self._expire)

    def _expire(self) -> None:
        self._timed_out = True
        self.kill()

    def _drain_output(self) -> None:
        with contextlib.suppress(BlockingIOError, ValueError):
            while part := os.read(self._output.fileno(), 65_536):
                self._tail += part
                del self._tail[:-_TAIL_BYTES]
            asyncio.get_running_loop().remove_reader(self._output)


def _end_late(forking: asyncio.Future[ForkedProcess]) -> None:
    """Ends a process that nobody waits for any more."""
    if not forking.cancelled() and forking.exception() is None:
        forking.result().kill_group()


def _fork(
    settings: WorkerSettings, channel: socket.socket, stages: StageLog, output: int, home: str
) -> ForkedProcess:
    """Forks the child. Raises ``Unavailable``."""
    libraries = settings.libraries
    if libraries is not None:  # what is not there cannot be allowed to a worker
        with contextlib.suppress(OSError):
            libraries.mkdir(mode=0o700, parents=True, exist_ok=True)
    arguments = {
        "home": home,
        "libraries": str(libraries.absolute()) if libraries else None,
        "memory_bytes": settings.memory_bytes,
        "writable": [home, *([str(libraries.absolute())] if libraries else []), *settings.writable],
        "readable": settings.extra_path,
    }
    server = fork_server(_environment(settings), settings.jobs)
    return server.fork(arguments, (channel.fileno(), stages.descriptor, output), settings.start_timeout)


def _environment(settings: WorkerSettings) -> dict[str, str]:
    """The environment variables of a worker: no tokens, and nothing that could change bytes."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),  # where the linker is, and ptxas
        **({"CUDA_HOME": cuda} if (cuda := os.environ.get("CUDA_HOME")) else {}),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join((*_import_roots(), *settings.extra_path)),
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",  # rules for a worker hold for its one thread
        "MALLOC_ARENA_MAX": "2",  # arenas count against the address space limit
    }


def _import_roots() -> list[str]:
    """Directories from which this process imports, without the interpreter's own site-packages."""
    own = {Path(path).resolve() for path in site.getsitepackages()}
    roots: dict[str, None] = {}
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(location).resolve().parent
            if root not in own:
                roots[str(root)] = None
    return list(roots)

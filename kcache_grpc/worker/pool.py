"""The pool: warm workers, a reserve for parsing, replacement of the dead."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from kcache_grpc.errors import KcacheError, Unavailable
from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.worker.frames import Frame
from kcache_grpc.worker.home import remove_left_homes
from kcache_grpc.worker.process import OnStage, WorkerProcess, WorkerSettings

logger = logging.getLogger("kcache.worker")

#: A worker is replaced after this many jobs: native compilers leak a little.
_JOBS_PER_WORKER = 500
#: Seconds before a worker that would not start is tried again; doubles up to the last.
_RESTART_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: Requests that may wait for a worker before new ones are refused.
_MAX_WAITING = 10_000


#: Whether a job is still to be done, asked when there is a worker for it: told whether it waited for one.
Needed = Callable[[bool], Awaitable[bool]]


@dataclass
class _Lane:
    """Workers for one kind of work and the requests that wait for them."""

    name: str
    idle: deque[WorkerProcess] = field(default_factory=deque[WorkerProcess])
    waiting: deque[asyncio.Future[WorkerProcess]] = field(
        default_factory=deque["asyncio.Future[WorkerProcess]"]
    )


class WorkerPool:
    """``compilers`` workers that compile or parse, and ``parsers`` that only parse.

    Parsing therefore never waits behind a long compile. One event loop; all methods are called from it.
    """

    def __init__(
        self,
        compilers: int,
        parsers: int = 1,
        settings: WorkerSettings | None = None,
        jobs_per_worker: int = _JOBS_PER_WORKER,
    ) -> None:
        self._sizes = {"compile": compilers, "parse": parsers}
        self._settings = settings or WorkerSettings()
        self._jobs_per_worker = jobs_per_worker
        self._lanes = {name: _Lane(name) for name in self._sizes}
        self._workers: dict[WorkerProcess, _Lane] = {}
        #: Those whose successor starts, and those whose successor is there.
        self._succeeded: set[WorkerProcess] = set()
        self._retiring: set[WorkerProcess] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self.toolchains = Toolchains(Toolchain(), Toolchain())
        self.canonicalizer = 0
        self.limits: dict[str, int] = {}
        self.restarts = 0

    async def start(self) -> None:
        """Starts all workers and waits until one of each lane is warm. Raises ``Unavailable``."""
        firsts = [self._add(lane) for lane in self._lanes.values()]
        results = await asyncio.gather(*firsts, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                await self.close()
                raise result
        for lane in self._lanes.values():
            for _ in range(self._sizes[lane.name] - 1):
                self._spawn_later(lane)
        await asyncio.to_thread(remove_left_homes)

    async def canonicalize(self, job: Frame, timeout: float) -> Frame:
        """Runs a parsing job on a reserved worker, or on a compiler that is idle."""
        reply = await self.canonicalize_if(job, timeout, None)
        assert reply is not None
        return reply

    async def canonicalize_if(self, job: Frame, timeout: float, needed: Needed | None) -> Frame | None:
        """As ``canonicalize``; ``None`` where the job is not ``needed`` any more."""
        parse, compile = self._lanes["parse"], self._lanes["compile"]
        lane = compile if not parse.idle and compile.idle else parse
        return await self._run(lane, job, timeout, None, needed)

    async def compile(self, job: Frame, timeout: float, on_stage: OnStage) -> Frame:
        """Runs a compiling job; ``on_stage`` is called in the event loop."""
        reply = await self._run(self._lanes["compile"], job, timeout, on_stage)
        assert reply is not None
        return reply

    async def close(self) -> None:
        """Kills all workers; jobs that run fail with ``Unavailable`` or are cancelled by their callers."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        for lane in self._lanes.values():
            for waiter in lane.waiting:
                if not waiter.done():
                    waiter.set_exception(_closing())
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in self._workers), return_exceptions=True)
        self._workers.clear()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def counters(self) -> dict[str, int]:
        """What the pool does now, and how many workers it replaced."""
        idle = sum(len(lane.idle) for lane in self._lanes.values())
        return {
            "workers": len(self._workers),
            "workers_busy": max(len(self._workers) - idle, 0),
            "jobs_waiting": sum(len(lane.waiting) for lane in self._lanes.values()),
            "worker_restarts": self.restarts,
        }

    async def _run(
        self,
        lane: _Lane,
        job: Frame,
        timeout: float,
        on_stage: OnStage | None,
        needed: Needed | None = None,
    ) -> Frame | None:
        """Runs a job; again on another worker when somebody ends the one that has it."""
        for last in (False, True):
            waits = not lane.idle
            worker = await self._acquire(lane)
            try:
                if needed is not None and not await needed(waits):
                    return None
                return await worker.run(job, timeout, on_stage)
            except KcacheError as error:
                if self._closed:
                    raise _closing() from None
                if last or not isinstance(error, Unavailable):
                    raise
                logger.warning("a job is given to another worker: %s", error.message)
            finally:
                self._release(worker)
        raise AssertionError("unreachable")

    async def _acquire(self, lane: _Lane) -> WorkerProcess:
        if self._closed:
            raise _closing()
        while lane.idle:
            worker = lane.idle.popleft()
            if worker.alive:
                return worker
            self._replace(worker)
        if len(lane.waiting) >= _MAX_WAITING:
            raise Unavailable(f"{_MAX_WAITING} requests wait for a worker already", limit="max_waiting")
        waiter: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        lane.waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())
            raise

    def _release(self, worker: WorkerProcess) -> None:
        if self._closed or worker not in self._workers:
            return
        if not worker.alive or worker in self._retiring:
            self._replace(worker)
            return
        if worker.jobs_done >= self._jobs_per_worker and worker not in self._succeeded:
            self._succeeded.add(worker)
            self._spawn_later(self._workers[worker], instead_of=worker)
        self._offer(worker)

    def _offer(self, worker: WorkerProcess) -> None:
        """Gives an idle worker to who waits longest; a compiler without work helps with parsing."""
        lane = self._workers[worker]
        lanes = [lane] if lane.name == "parse" else [lane, self._lanes["parse"]]
        for queue in (candidate.waiting for candidate in lanes):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():
                    waiter.set_result(worker)
                    return
        lane.idle.append(worker)

    def _replace(self, worker: WorkerProcess) -> None:
        """Forgets a worker; starts another unless one was started in its place before."""
        lane = self._workers.pop(worker)
        planned = worker in self._succeeded
        self._retiring.discard(worker)
        self._succeeded.discard(worker)
        _go(worker.close(), self._ending)
        if not planned:
            self.restarts += 1
            logger.warning("worker %d of lane %s died and is replaced", worker.pid, lane.name)
            self._spawn_later(lane)

    def _spawn_later(self, lane: _Lane, instead_of: WorkerProcess | None = None) -> None:
        _go(self._keep_adding(lane, instead_of), self._starting)

    async def _keep_adding(self, lane: _Lane, instead_of: WorkerProcess | None) -> None:
        delays = iter(_RESTART_DELAYS)
        delay = next(delays)
        while True:
            try:
                await self._add(lane)
                break
            except Unavailable as error:
                logger.error("%s; next attempt in %g s", error, delay)  # noqa: TRY400 - the text is all there is
            await asyncio.sleep(delay)
            delay = next(delays, delay)
        if instead_of in self._workers:
            self._retire(instead_of)

    def _retire(self, worker: WorkerProcess) -> None:
        self._retiring.add(worker)
        lane = self._workers[worker]
        if worker in lane.idle:
            lane.idle.remove(worker)
            self._replace(worker)

    async def _add(self, lane: _Lane) -> None:
        worker = await WorkerProcess.start(self._settings)
        try:
            self._check_hello(worker)
        except Unavailable:
            await worker.close()
            raise
        self._workers[worker] = lane
        self._offer(worker)

    def _check_hello(self, worker: WorkerProcess) -> None:
        if not self.toolchains.cpu.ingredients:
            self.toolchains, self.canonicalizer = worker.toolchains, worker.canonicalizer
            self.limits = worker.limits
        if (worker.toolchains, worker.canonicalizer) != (self.toolchains, self.canonicalizer):
            raise Unavailable("the compiler on disk changed under a running service; restart the service")


def _go(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _closing() -> Unavailable:
    return Unavailable("the service is shutting down")

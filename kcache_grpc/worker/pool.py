"""The pool: warm workers, a reserve for parsing, replacement of the dead."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from kcache_grpc.errors import KcacheError, Unavailable
from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.worker.failure import is_crash
from kcache_grpc.worker.fairness import FairQueue
from kcache_grpc.worker.frames import Frame
from kcache_grpc.worker.home import remove_left_homes
from kcache_grpc.worker.process import OnStage, WorkerProcess, WorkerSettings

logger = logging.getLogger("kcache.worker")

#: A worker is replaced after this many jobs: native compilers leak a little.
_JOBS_PER_WORKER = 500
#: Seconds before a worker that would not start is tried again; doubles up to the last.
_RESTART_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: Requests that may wait for a worker before new ones are rejected.
_MAX_WAITING = 10_000
#: Seconds for which a program is parsed while other callers wait: then it is their turn, and it is parsed
#: again from its beginning later, for twice as long.
_FIRST_SLICE = 0.1
#: The part of that for a program whose caller has another worker too.
_SHARED = 0.3
#: Seconds for which a compiler continues to parse a program while compiles of other callers wait for it.
_GRACE = 0.03
#: nice(2) of a process whose job gives way to all others.
_LOWEST = 19


#: Whether a job is still to be done, asked when there is a worker for it: told whether it waited for one.
Needed = Callable[[bool], Awaitable[bool]]


@dataclass
class _WorkerGroup:
    """Workers for one kind of work and the queue of requests for them."""

    name: str
    #: Workers that the group may have, and those that it has or starts, without successors of old ones.
    most: int
    workers: int = 1
    idle: deque[WorkerProcess] = field(default_factory=deque[WorkerProcess])
    waiting: FairQueue[asyncio.Future[WorkerProcess]] = field(
        default_factory=FairQueue["asyncio.Future[WorkerProcess]"]
    )


class WorkerPool:
    """Up to ``compilers`` workers that compile or parse, and ``parsers`` that only parse.

    Parsing therefore never waits behind a long compile. One worker of each kind runs from the start; another
    is started when a job finds none idle. Callers, who are named by any text, take turns: who has many jobs
    waits for itself. One event loop; all methods are called from it.
    """

    def __init__(
        self,
        compilers: int,
        parsers: int = 1,
        settings: WorkerSettings | None = None,
        jobs_per_worker: int = _JOBS_PER_WORKER,
    ) -> None:
        self._settings = settings or WorkerSettings()
        self._jobs_per_worker = jobs_per_worker
        self._groups = {
            "compile": _WorkerGroup("compile", compilers),
            "parse": _WorkerGroup("parse", parsers),
        }
        self._workers: dict[WorkerProcess, _WorkerGroup] = {}
        #: Those whose successor starts, and those whose successor is there.
        self._succeeded: set[WorkerProcess] = set()
        self._retiring: set[WorkerProcess] = set()
        #: Jobs of each caller that have a worker, without those that are about to lose it.
        self._holding: Counter[str] = Counter()
        #: Woken when a job begins to wait for a worker.
        self._arrivals: set[asyncio.Future[None]] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        #: Jobs that run in their own processes and give way to all others.
        self._apart: set[asyncio.Task[Frame]] = set()
        #: One at a time: crashes are rare, or an attack.
        self._alone = asyncio.Semaphore(1)
        self._closed = False
        self.toolchains = Toolchains(Toolchain(), Toolchain())
        self.canonicalizer = 0
        self.limits: dict[str, int] = {}
        self.restarts = 0

    async def start(self) -> None:
        """Starts a worker of each group and waits until they are warm. Raises ``Unavailable``."""
        firsts = [self._add(group) for group in self._groups.values()]
        results = await asyncio.gather(*firsts, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                await self.close()
                raise result
        await asyncio.to_thread(remove_left_homes)

    async def canonicalize(self, job: Frame, timeout: float, caller: str = "") -> Frame:
        """Runs a parsing job on a reserved worker, or on a compiler that is idle."""
        reply = await self.canonicalize_if(job, timeout, None, caller)
        assert reply is not None
        return reply

    async def canonicalize_if(
        self, job: Frame, timeout: float, needed: Needed | None, caller: str = ""
    ) -> Frame | None:
        """As ``canonicalize``; ``None`` where the job is not ``needed`` any more."""
        parse, compile = self._groups["parse"], self._groups["compile"]
        seconds = _FIRST_SLICE
        while True:
            group = compile if not parse.idle and self._may_parse(compile, caller) else parse
            try:
                return await self._run(group, job, timeout, None, needed, caller, seconds)
            except _TimeSliceExpiredError as expired:
                seconds *= 2 if expired.used else 1

    def _may_parse(self, compile: _WorkerGroup, caller: str) -> bool:
        """Whether a compiler is idle that may parse a program of ``caller``.

        The last one is not for who has a worker already: it is left to other callers.
        """
        return len(compile.idle) > (1 if caller in self._holding else 0)

    async def compile(
        self,
        job: Frame,
        timeout: float,
        on_stage: OnStage,
        caller: str = "",
        began: Callable[[], None] | None = None,
    ) -> Frame:
        """Runs a compiling job; ``on_stage`` is called in the loop, ``began`` when a worker is there."""

        async def needed(waited: bool) -> bool:
            if began is not None:
                began()
            return True

        reply = await self._run(self._groups["compile"], job, timeout, on_stage, needed, caller)
        assert reply is not None
        return reply

    @property
    def idle(self) -> bool:
        """Whether no job runs or waits, but for those of ``compile_apart``."""
        waiting = any(group.waiting for group in self._groups.values())
        free = sum(len(group.idle) for group in self._groups.values())
        return not (waiting or self._alone.locked()) and free == len(self._workers)

    async def compile_apart(self, job: Frame, timeout: float) -> Frame | None:
        """Runs a compiling job in a fresh process of the lowest priority; takes no worker of the pool.

        ``None`` where another job runs, waits or comes: then the process is ended. Raises as ``compile``.
        """
        if self._closed:
            raise _closing()
        if not self.idle:
            return None
        running = asyncio.get_running_loop().create_task(self._run_apart(job, timeout))
        self._apart.add(running)
        try:
            await asyncio.wait({running})
        finally:
            self._apart.discard(running)
            await _end(running)
            if not running.cancelled():
                running.exception()  # is raised below, unless this job is cancelled
        return None if running.cancelled() else running.result()

    async def compile_if_idle(self, job: Frame, timeout: float) -> Frame | None:
        """Runs a compiling job of the service's own on a worker of the pool; ``None`` where another job runs
        or waits. Raises as ``compile``.
        """
        return await self._run(self._groups["compile"], job, timeout, None) if self.idle else None

    def end_apart(self) -> None:
        """Ends what runs in ``compile_apart``."""
        for running in self._apart:
            running.cancel()

    async def _run_apart(self, job: Frame, timeout: float) -> Frame:
        worker = await WorkerProcess.start(self._settings, niceness=_LOWEST)
        try:
            self._check_hello(worker)
            return await worker.run(job, timeout)
        finally:
            await worker.close()

    async def close(self) -> None:
        """Kills all workers; jobs that run fail with ``Unavailable`` or are cancelled by their callers."""
        self._closed = True
        self.end_apart()
        await asyncio.gather(*self._apart, return_exceptions=True)
        for task in self._starting:
            task.cancel()
        for group in self._groups.values():
            for waiter in group.waiting:
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
        """Counters: running and waiting jobs, workers, and how many workers were replaced."""
        idle = sum(len(group.idle) for group in self._groups.values())
        return {
            "workers": len(self._workers),
            "workers_busy": max(len(self._workers) - idle, 0),
            "jobs_waiting": sum(len(group.waiting) for group in self._groups.values()),
            "worker_restarts": self.restarts,
        }

    async def _run(
        self,
        group: _WorkerGroup,
        job: Frame,
        timeout: float,
        on_stage: OnStage | None,
        needed: Needed | None = None,
        caller: str = "",
        seconds: float | None = None,
    ) -> Frame | None:
        """Runs a job; again on another worker when somebody ends the one that has it.

        A job that crashes a worker in which others ran before runs again in a fresh one: the fault may be
        theirs. ``seconds``: a time slice, after which it gives its worker to callers that wait, if any, and
        ``_TimeSliceExpiredError`` is raised.
        """
        for last in (False, True):
            waits = not group.idle
            worker = await self._acquire(group, caller)
            hold = _Hold(self._holding, caller)
            shared = worker.shared_by > 0
            try:
                if needed is not None and not await needed(waits):
                    return None
                if seconds is None or not worker.forks(job):
                    return await worker.run(job, timeout, on_stage)
                return await self._run_time_slice(worker, job, timeout, hold, seconds)
            except KcacheError as error:
                if self._closed:
                    raise _closing() from None
                if shared and is_crash(error):
                    logger.warning("a job runs again in its own worker: %s", error.message)
                    return await self._run_alone(job, timeout, on_stage)
                if last or not isinstance(error, Unavailable):
                    raise
                logger.warning("a job is given to another worker: %s", error.message)
            finally:
                hold.end()
                self._release(worker)
        raise AssertionError("unreachable")

    async def _run_time_slice(
        self, worker: WorkerProcess, job: Frame, timeout: float, hold: _Hold, seconds: float
    ) -> Frame:
        """Runs a job for its time slice, and for as long as no other caller waits."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        running = loop.create_task(worker.run(job, timeout))
        ran = 0.0
        try:
            while not running.done():
                ran = loop.time() - began
                left = self._allowed(worker, hold.caller, seconds) - ran
                if left <= 0:
                    hold.end()  # where two jobs may have to end, one does
                    break
                await self._until_arrival(running, left)
        finally:
            await _end(running)
            if not running.cancelled():
                running.exception()  # is raised below, unless this job is cancelled
        if running.cancelled():
            raise _TimeSliceExpiredError(used=ran >= seconds * _SHARED)
        return running.result()

    def _allowed(self, worker: WorkerProcess, caller: str, seconds: float) -> float:
        """Seconds that a job of ``caller`` may have ``worker``, whose time slice is ``seconds``."""
        group = self._workers.get(worker)
        parse = self._groups["parse"]
        if group is not None and group is not parse and group.waiting.holds_others(caller):
            return _GRACE
        # A compiler that is given up is not for those who have a worker already, as in ``_may_parse``.
        waited = (
            parse.waiting.holds_others(caller) if group is parse else not parse.waiting.all_of(self._holding)
        )
        if group is None or not waited:
            return math.inf
        return seconds * _SHARED if self._holding[caller] > 1 else seconds

    async def _until_arrival(self, running: asyncio.Task[Frame], seconds: float) -> None:
        """Returns when a job begins to wait for a worker, ``running`` ends, or this many seconds passed."""
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.add(arrival)
        try:
            await asyncio.wait(
                {running, arrival},
                timeout=None if seconds == math.inf else seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._arrivals.discard(arrival)

    async def _run_alone(self, job: Frame, timeout: float, on_stage: OnStage | None) -> Frame:
        """Runs a job in a worker that ran none before and runs none after."""
        async with self._alone:
            worker = await WorkerProcess.start(self._settings)
            try:
                self._check_hello(worker)
                return await worker.run(job, timeout, on_stage)
            finally:
                await worker.close()

    async def _acquire(self, group: _WorkerGroup, caller: str) -> WorkerProcess:
        """Return an idle worker of a group, or wait for one.

        Raises ``Unavailable`` if too many requests wait.
        """
        if self._closed:
            raise _closing()
        self.end_apart()
        while group.idle:
            worker = group.idle.popleft()
            if worker.alive:
                return worker
            self._replace(worker)
        if len(group.waiting) >= _MAX_WAITING:
            raise Unavailable(f"{_MAX_WAITING} requests wait for a worker already", limit="max_waiting")
        if group.workers < group.most:
            group.workers += 1
            self._spawn_later(group)
        waiter: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        group.waiting.append(caller, waiter)
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)
        try:
            return await waiter
        except asyncio.CancelledError:
            group.waiting.remove(caller, waiter)
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
        """Gives an idle worker to a caller that has none, or whose turn it is; a compiler may parse too."""
        group, parse = self._workers[worker], self._groups["parse"]
        for queue in (group.waiting, parse.waiting):
            last = group is not parse and queue is parse.waiting and not group.idle  # as in ``_may_parse``
            while queue and not (last and queue.all_of(self._holding)):
                waiter = queue.popleft(self._holding)
                if not waiter.done():
                    waiter.set_result(worker)
                    return
        group.idle.append(worker)

    def _replace(self, worker: WorkerProcess) -> None:
        """Forgets a worker; starts another unless one was started in its place before."""
        group = self._workers.pop(worker)
        planned = worker in self._succeeded
        self._retiring.discard(worker)
        self._succeeded.discard(worker)
        _go(worker.close(), self._ending)
        if not planned:
            self.restarts += 1
            logger.warning("worker %d of group %s died and is replaced", worker.pid, group.name)
            self._spawn_later(group)

    def _spawn_later(self, group: _WorkerGroup, instead_of: WorkerProcess | None = None) -> None:
        _go(self._keep_adding(group, instead_of), self._starting)

    async def _keep_adding(self, group: _WorkerGroup, instead_of: WorkerProcess | None) -> None:
        delays = iter(_RESTART_DELAYS)
        delay = next(delays)
        while True:
            try:
                await self._add(group)
                break
            except Unavailable as error:
                logger.error("%s; next attempt in %g s", error, delay)  # noqa: TRY400 - the text is all there is
            await asyncio.sleep(delay)
            delay = next(delays, delay)
        if instead_of in self._workers:
            self._retire(instead_of)

    def _retire(self, worker: WorkerProcess) -> None:
        self._retiring.add(worker)
        group = self._workers[worker]
        if worker in group.idle:
            group.idle.remove(worker)
            self._replace(worker)

    async def _add(self, group: _WorkerGroup) -> None:
        worker = await WorkerProcess.start(self._settings)
        try:
            self._check_hello(worker)
        except Unavailable:
            await worker.close()
            raise
        self._workers[worker] = group
        self._offer(worker)

    def _check_hello(self, worker: WorkerProcess) -> None:
        if not self.toolchains.cpu.ingredients:
            self.toolchains, self.canonicalizer = worker.toolchains, worker.canonicalizer
            self.limits = worker.limits
            if worker.unconfined:
                logger.warning(
                    "workers run without %s, which this kernel lacks: they can do more than compute",
                    ", ".join(worker.unconfined),
                )
        if (worker.toolchains, worker.canonicalizer) != (self.toolchains, self.canonicalizer):
            raise Unavailable("the compiler on disk changed under a running service; restart the service")


async def _end(running: asyncio.Task[Frame]) -> None:
    """Cancels a job and waits for its end, however often the caller is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    if not running.done():
        running.cancel()
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:  # noqa: PERF203 - it waits
            cancelled = error
    if cancelled is not None:
        raise cancelled


class _Hold:
    """Counts a worker as occupied by a caller, until ``end``."""

    def __init__(self, holding: Counter[str], caller: str) -> None:
        self._holding = holding
        self._ended = False
        self.caller = caller
        holding[caller] += 1

    def end(self) -> None:
        """The worker is the caller's no more, or will not be for long. Idempotent."""
        if not self._ended:
            self._ended = True
            self._holding[self.caller] -= 1
            if not self._holding[self.caller]:
                del self._holding[self.caller]


class _TimeSliceExpiredError(Exception):
    """A job was preempted for another caller. ``used``: it had a time slice before."""

    def __init__(self, *, used: bool) -> None:
        super().__init__()
        self.used = used


def _go(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _closing() -> Unavailable:
    return Unavailable("the service is shutting down")

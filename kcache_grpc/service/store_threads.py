"""Store calls block: they run on a few threads of their own; short ones run inline on the event loop.

Reads are batched: those that arrive during one share the next, as rows cost less than calls.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Generic, ParamSpec, TypeVar

from kcache_grpc.storage.errors import StoreUnavailable

#: Within it, reads of this thread wait for nobody.
Hurry = Callable[[], AbstractContextManager[None]]

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds that a prompt call may take where it waits for the disk, or else: for longer it also lacks a core
#: now and then. And for which the next ones go to the threads when one took longer.
_SLOW, _VERY_SLOW, _PAUSE = 0.01, 0.1, 1.0
G = TypeVar("G", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: Seconds after which the next read does not wait for the one before: a connection that hangs delays only the
#: callers of that read.
_READ_TIMEOUT = 0.1


def disk_reads() -> int:
    """What this thread has read from disks: blocks, and pages that were not in memory."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_inblock + used.ru_majflt


class StoreThreads:
    """``await threads(store.method, ...)``. Calls that began are finished, whatever becomes of the caller."""

    def __init__(
        self,
        threads: int = 4,
        clock: Callable[[], float] = time.perf_counter,
        reads: Callable[[], int] = disk_reads,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kcache-store")
        self._clock = clock
        self._reads = reads
        #: As of the last prompt call that took long.
        self._seen_reads = reads()
        self._prompt_from = float("-inf")

    async def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a blocking call."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*args, **kwargs))

    async def look(self, hurry: Hurry | None, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The same, run inline on the event loop with a short lock timeout, where the store can do that.

        A switch to another thread and back takes several times as long as a lookup in SQLite. After a call
        that was slow because of a cold disk, those of the next second run on the threads; not after one that
        was preempted: threads would be, too. A call that found a lock is repeated by a thread, which may
        wait for it.
        """
        started = self._clock()
        if hurry is None or started < self._prompt_from:
            return await self(call, *args, **kwargs)
        try:
            with hurry():
                return call(*args, **kwargs)
        except StoreUnavailable:
            self._prompt_from = self._clock() + _PAUSE
        finally:
            ended = self._clock()
            if ended - started > _SLOW and self._waited(ended - started):
                self._prompt_from = ended + _PAUSE
        return await self(call, *args, **kwargs)

    def _waited(self, seconds: float) -> bool:
        """Whether a call of the event loop, of this many seconds, waited for the disk or for too long."""
        before, self._seen_reads = self._seen_reads, self._reads()
        return self._seen_reads != before or seconds > _VERY_SLOW

    def close(self) -> None:
        """Waits for the calls that run."""
        self._pool.shutdown(wait=True)


class ReadBatch(Generic[G, K, V]):
    """Looks up keys of a group by ``read_many``, one call for all that wait. One event loop."""

    def __init__(self, read_many: Callable[[G, Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read_many = read_many
        self._pending: dict[G, dict[K, asyncio.Future[V | None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0

    async def read(self, group: G, key: K) -> V | None:
        """What is there now: it is asked for after this call began. Raises what ``read_many`` raises."""
        loop = asyncio.get_running_loop()
        pending = self._pending.setdefault(group, {})
        if key not in pending:
            pending[key] = loop.create_future()
        future = pending[key]
        if self._task is None or self._task.done() or loop.time() > self._began + _READ_TIMEOUT:
            self._began = loop.time()
            self._task = loop.create_task(self._read_all())
        return await asyncio.shield(future)

    async def _read_all(self) -> None:
        while self._pending:
            self._began = asyncio.get_running_loop().time()
            all_wanted, self._pending = self._pending, {}
            await asyncio.gather(*(self._read_group(group, pending) for group, pending in all_wanted.items()))

    async def _read_group(self, group: G, pending: dict[K, asyncio.Future[V | None]]) -> None:
        try:
            results = await self._read_many(group, list(pending))
        except Exception as error:  # noqa: BLE001 - for those who wait
            for future in pending.values():
                future.set_exception(error)
                future.exception()  # all may have left
        else:
            for key, future in pending.items():
                future.set_result(results.get(key))

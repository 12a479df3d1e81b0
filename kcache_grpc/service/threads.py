"""Store calls block: they run on a few threads of their own, and only prompt ones in the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

from kcache_grpc.storage.errors import StoreUnavailable

#: Within it, reads of this thread wait for nobody.
Hurry = Callable[[], AbstractContextManager[None]]

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds that a prompt call may take, and for which the next ones go to the threads when one took longer.
_SLOW, _PAUSE = 0.01, 1.0


class StoreThreads:
    """``await threads(store.method, ...)``. Calls that began are finished, whatever becomes of the caller."""

    def __init__(self, threads: int = 4, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kcache-store")
        self._clock = clock
        self._prompt_from = float("-inf")

    async def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a blocking call."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*args, **kwargs))

    async def look(self, hurry: Hurry | None, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The same, made by the event loop itself in a hurry, where the store can do that.

        To another thread and back takes several times as long as a look-up in SQLite. One that was slow, on a
        cold disk, sends those of the next second to the threads. One that met a lock is made again by a
        thread, which may wait for it.
        """
        started = self._clock()
        if hurry is None or started < self._prompt_from:
            return await self(call, *args, **kwargs)
        try:
            with hurry():
                return call(*args, **kwargs)
        except StoreUnavailable:
            return await self(call, *args, **kwargs)
        finally:
            ended = self._clock()
            if ended - started > _SLOW:
                self._prompt_from = ended + _PAUSE

    def close(self) -> None:
        """Waits for the calls that run."""
        self._pool.shutdown(wait=True)

"""Waiting for a compile that another process holds the lease of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kcache_grpc.service.change_notifications import News, Signals
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import LeaseState, Namespace

#: Seconds between two looks at a lease: the first, the factor, the last. Where the store tells, the last one:
#: that is what a lost notice costs.
_FIRST, _FACTOR, _LAST = 0.02, 1.5, 0.5
#: Seconds between two looks at all leases where the store tells: many compiles reach many stages meanwhile.
_SPACING = 0.25


class Follower:
    """Sees stages as they happen, and the end. One event loop."""

    def __init__(self, store: Store, threads: StoreThreads, signals: Signals) -> None:
        self._store = store
        self._threads = threads
        self._signals = signals
        #: What is looked at next; many leases cost little more than one.
        self._wanted: dict[Namespace, dict[bytes, asyncio.Future[LeaseState | None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looked = float("-inf")

    async def follow(
        self, namespace: Namespace, state: LeaseState, news: News, report: Callable[[str], None]
    ) -> None:
        """Returns once the lease is free, given back or expired, or a kernel of its key was published.

        ``news``: of ``Signals.expecting``, from before ``state`` was read.
        """
        first = _LAST if self._signals.heard else _FIRST
        seen, token, delay = 0, state.fencing_token, first
        while True:
            if state.fencing_token != token:
                seen, token = 0, state.fencing_token
            for stage in state.stages[seen:]:
                report(stage)
                delay = first
            seen = len(state.stages)
            if not state.held:
                return
            await news.within(min(delay, state.expires_in / 1e6 + _FIRST))
            if news.published:
                return
            delay = min(delay * _FACTOR, _LAST)
            latest = await self._look(namespace, state.kernel_digest)
            if latest is None:
                return
            state = latest

    async def _look(self, namespace: Namespace, digest: bytes) -> LeaseState | None:
        """The lease as it is now, looked at together with those that others want to see meanwhile."""
        futures = self._wanted.setdefault(namespace, {})
        if digest not in futures:
            futures[digest] = asyncio.get_running_loop().create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_at_all())
        return await asyncio.shield(futures[digest])

    async def _look_at_all(self) -> None:
        now = asyncio.get_running_loop().time
        while self._wanted:
            if self._signals.heard and (early := self._looked + _SPACING - now()) > 0:
                await asyncio.sleep(early)
            self._looked = now()
            all_wanted, self._wanted = self._wanted, {}
            for namespace, futures in all_wanted.items():
                await self._look_at(namespace, futures)

    async def _look_at(
        self, namespace: Namespace, futures: dict[bytes, asyncio.Future[LeaseState | None]]
    ) -> None:
        try:
            states = await self._threads(self._store.find_leases, namespace, list(futures))
        except Exception as error:  # noqa: BLE001 - for those who wait
            for future in futures.values():
                future.set_exception(error)
                future.exception()  # all may have left
        else:
            for digest, future in futures.items():
                future.set_result(states.get(digest))

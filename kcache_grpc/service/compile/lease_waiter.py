"""Waits for a compile whose lease another process holds, and reports its stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kcache_grpc.service.change_notifications import ChangeNotifications, Subscription
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import LeaseState, Namespace

#: Seconds between two reads of a lease: the first, the factor, the last. If the store has change
#: notifications, the last one: that is what a lost one costs.
_FIRST, _FACTOR, _LAST = 0.02, 1.5, 0.5
#: Seconds between two reads of all leases if it has: many compiles reach many stages meanwhile.
_SPACING = 0.25


class LeaseWaiter:
    """Waits for leases, for one service. One event loop."""

    def __init__(
        self, store: Store, threads: StoreThreads, change_notifications: ChangeNotifications
    ) -> None:
        self._store = store
        self._threads = threads
        self._change_notifications = change_notifications
        #: What is looked at next; many leases cost little more than one.
        self._wanted: dict[Namespace, dict[bytes, asyncio.Future[LeaseState | None]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._last_read = float("-inf")

    async def wait(
        self,
        namespace: Namespace,
        state: LeaseState,
        subscription: Subscription,
        report: Callable[[str], None],
    ) -> None:
        """Returns once the lease is free, given back or expired, or a kernel of its key was published.

        ``subscription``: of ``ChangeNotifications.subscribe``, from before ``state`` was read.
        """
        first = _LAST if self._change_notifications.available else _FIRST
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
            await subscription.wait_for(min(delay, state.expires_in / 1e6 + _FIRST))
            if subscription.published:
                return
            delay = min(delay * _FACTOR, _LAST)
            latest = await self._read(namespace, state.kernel_digest)
            if latest is None:
                return
            state = latest

    async def _read(self, namespace: Namespace, digest: bytes) -> LeaseState | None:
        """The lease as it is now, looked at together with those that others want to see meanwhile."""
        futures = self._wanted.setdefault(namespace, {})
        if digest not in futures:
            futures[digest] = asyncio.get_running_loop().create_future()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_all())
        return await asyncio.shield(futures[digest])

    async def _read_all(self) -> None:
        now = asyncio.get_running_loop().time
        while self._wanted:
            if self._change_notifications.available and (early := self._last_read + _SPACING - now()) > 0:
                await asyncio.sleep(early)
            self._last_read = now()
            all_wanted, self._wanted = self._wanted, {}
            for namespace, futures in all_wanted.items():
                await self._read_leases(namespace, futures)

    async def _read_leases(
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

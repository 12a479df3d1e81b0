"""Waiting for a compile that another process holds the lease of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from kcache_grpc.service.signals import Signals
from kcache_grpc.service.threads import StoreThreads
from kcache_grpc.storage.contract import Store
from kcache_grpc.storage.records import LeaseState, Namespace

#: Seconds between two looks at a lease: the first, the factor, the last. Where the store tells, the last one:
#: that is what a lost notice costs.
_FIRST, _FACTOR, _LAST = 0.02, 1.5, 0.5


class Follower:
    """Sees stages as they happen, and the end. One event loop."""

    def __init__(self, store: Store, threads: StoreThreads, signals: Signals) -> None:
        self._store = store
        self._threads = threads
        self._signals = signals

    async def follow(
        self, namespace: Namespace, state: LeaseState, changed: asyncio.Event, report: Callable[[str], None]
    ) -> None:
        """Returns once the lease is free: given back, or expired.

        ``changed``: of ``Signals.expecting``, from before ``state`` was read.
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
            await _either(changed, min(delay, state.expires_in / 1e6 + _FIRST))
            delay = min(delay * _FACTOR, _LAST)
            states = await self._threads(self._store.find_leases, namespace, [state.kernel_digest])
            if state.kernel_digest not in states:
                return
            state = states[state.kernel_digest]


async def _either(changed: asyncio.Event, seconds: float) -> None:
    """Until the event is set, or so many seconds; clears it."""
    with suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), seconds)
    changed.clear()

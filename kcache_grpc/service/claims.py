"""Claims of work that several servers would do at the same time: one does it, the others use its result.

Unlike a lease, a claim guarantees nothing: a server that has waited too long does the work itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from kcache_grpc.service.change_notifications import ChangeNotifications, Subscription
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage.contract.change_notifications import Claim, Unclaimed
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import StorageError

logger = logging.getLogger("kcache.service")

#: Seconds between two polls of another server's work: the delay after a lost notification or a dead holder.
_POLL_SECONDS = 0.5
#: Seconds after which a claim counts for nothing: its holder may be frozen.
_CLAIM_TIMEOUT = 2.0


class WorkClaim:
    """One piece of work. Made by ``Claims.turn``."""

    def __init__(self, claims: Claims, name: bytes, subscription: Subscription) -> None:
        self._claims = claims
        self._name = name
        self._subscription = subscription
        self._until = asyncio.get_running_loop().time() + _CLAIM_TIMEOUT
        self._claim: Claim | None = None
        #: Whether another one did the work, or does it.
        self.waited = False

    async def should_run(self) -> bool:
        """Whether to do the work here: nobody else does it, or another server has for too long."""
        if self._claim is None:
            self._subscription.clear()
            self._claim = await self._claims.take(self._name)
        if self._claim is None:
            self.waited = True
        return self._claim is not None or asyncio.get_running_loop().time() >= self._until

    async def wait(self) -> None:
        """Until another one has done it, or for a while."""
        await self._subscription.wait_for(_POLL_SECONDS)

    async def end(self) -> None:
        """Gives the claim back, if it was given."""
        if self._claim is not None:
            await self._claims.give_back(self._claim)


class Claims:
    """One event loop."""

    def __init__(
        self, store: Store, threads: StoreThreads, change_notifications: ChangeNotifications
    ) -> None:
        self._store = store
        self._threads = threads
        self._change_notifications = change_notifications

    @asynccontextmanager
    async def turn(self, name: bytes) -> AsyncGenerator[WorkClaim]:
        """A piece of work by its name, 32 bytes, which is done or failed at the end."""
        with self._change_notifications.subscribe_claim(name) as subscription:
            turn = WorkClaim(self, name, subscription)
            try:
                yield turn
            finally:
                await turn.end()

    async def take(self, name: bytes) -> Claim | None:
        """The store's answer; a store that gives none lets everybody work."""
        if not self._store.shared:
            return Unclaimed()
        try:
            return await self._threads(self._store.claim, name)
        except StorageError as error:
            logger.info("nobody is asked who works: %s", error)
            return Unclaimed()

    async def give_back(self, claim: Claim) -> None:
        """Never raises."""
        if isinstance(claim, Unclaimed):
            return
        try:
            await asyncio.shield(self._threads(claim.release))
        except StorageError as error:
            logger.info("a claim is left to end with its connection: %s", error)

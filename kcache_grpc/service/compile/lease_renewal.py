"""Leases of compiles: own ones are renewed, those of other processes are waited for.

A thread renews them, which neither compiling nor a busy event loop can starve.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from kcache_grpc.service.change_notifications import ChangeNotifications, Subscription
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import LeaseLost, StorageError
from kcache_grpc.storage.records import Lease, LeaseState, Namespace

logger = logging.getLogger("kcache.service")

#: A heartbeat that failed is tried again after this part of the time to live: the store may be restarting.
_RETRY_FACTOR = 15
#: Seconds for which stages wait to be written together: a compile may have fifty in a tenth of a second. Of
#: compiles that end within that time no stages are written.
_WRITE_INTERVAL = 0.25
#: Seconds between two reads of a lease: the first, the factor, the last. If the store has change
#: notifications, the last one: that is what a lost one costs.
_FIRST, _FACTOR, _LAST = 0.02, 1.5, 0.5
#: Seconds between two reads of all leases if the store has notifications: stages change often.
_SPACING = 0.25


class LeaseRenewal:
    """Renews each held lease at a third of its time to live and writes down the stages of its compile."""

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self.ttl = ttl
        self._changed = threading.Condition()
        self._held: set[Lease] = set()
        #: Stages not yet written and when they will be, the earliest first.
        self._stages: dict[Lease, tuple[float, list[str]]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kcache-leases", daemon=True)
        self._thread.start()

    def add(self, lease: Lease) -> None:
        """Renew ``lease`` from now on."""
        with self._changed:
            self._held.add(lease)

    def remove(self, lease: Lease) -> None:
        """Renew ``lease`` no more; stages not yet written are dropped."""
        with self._changed:
            self._held.discard(lease)
            self._stages.pop(lease, None)

    def report(self, lease: Lease, stage: str) -> None:
        """Writes a stage soon, for waiters in other processes. Returns at once."""
        with self._changed:
            if not self._stages:
                self._changed.notify()
            _, names = self._stages.setdefault(lease, (time.monotonic() + _WRITE_INTERVAL, []))
            names.append(stage)

    def close(self) -> None:
        """Ends the thread; leases still held expire unless released."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self.ttl / 3
        while True:
            with self._changed:
                while not self._closed:
                    first, _ = next(iter(self._stages.values()), (due, None))
                    wake_at = min(due, first)
                    if (left := wake_at - time.monotonic()) <= 0:
                        break
                    self._changed.wait(left)
                if self._closed:
                    return
                stages = self._due_stages()
                leases = set(self._held)
            for lease, names in stages.items():
                if lease in leases:
                    self._try(lease, partial(self._store.report_stage, lease, *names))
            if time.monotonic() >= due:
                renewed = [
                    self._try(lease, partial(self._store.heartbeat_lease, lease, self.ttl))
                    for lease in leases
                ]
                due = time.monotonic() + self.ttl / (3 if all(renewed) else _RETRY_FACTOR)

    def _due_stages(self) -> dict[Lease, list[str]]:
        """Stages that are to be written now. Holds the lock."""
        now = time.monotonic()
        due_stages = {lease: names for lease, (when, names) in self._stages.items() if when <= now}
        for lease in due_stages:
            del self._stages[lease]
        return due_stages

    def _try(self, lease: Lease, call: Callable[[], None]) -> bool:
        """Whether ``call`` need not be repeated. Never raises, since the thread serves all leases."""
        try:
            call()
        except LeaseLost:
            self.remove(lease)  # publishing fails, since it compares the fencing token
        except StorageError as error:
            logger.warning("lease on %s: %s", lease.kernel_digest.hex()[:12], error)
            return False
        except Exception:
            logger.exception("lease on %s", lease.kernel_digest.hex()[:12])
            return False
        return True


class LeaseWaiter:
    """Waits for leases, for one service. One event loop."""

    def __init__(
        self, store: Store, threads: StoreThreads, change_notifications: ChangeNotifications
    ) -> None:
        self._store = store
        self._threads = threads
        self._change_notifications = change_notifications
        #: Leases that are read next, in one statement: many cost little more than one.
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

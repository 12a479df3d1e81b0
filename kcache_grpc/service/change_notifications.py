"""Delivers the store's change notifications to the event loop: caches are invalidated, waiters wake.

Notifications save time and decide nothing: what changed is looked up from time to time anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from kcache_grpc.storage.contract.change_notifications import (
    Change,
    ClaimEnded,
    KernelPublished,
    LeaseChanged,
    Missed,
    NamespaceChanged,
    Watch,
)
from kcache_grpc.storage.contract.store import Store


class Subscription(asyncio.Event):
    """Set when a lease changed, or with ``published`` when a kernel of the key was published."""

    published = False

    async def wait_for(self, seconds: float) -> None:
        """Until it is set, or this many seconds; clears it."""
        with suppress(asyncio.TimeoutError):  # the builtin one from Python 3.11 on
            await asyncio.wait_for(self.wait(), seconds)
        self.clear()


class _ClaimSubject(NamedTuple):
    """What is waited for: the end of a claim. Leases and keys are pairs that begin with a namespace."""

    name: bytes


#: A lease by kernel digest, or a kernel by key, in a namespace; or a claim.
_Subject = tuple[int, bytes | int] | _ClaimSubject


class ChangeNotifications:
    """Subscriptions to changes of the store. One event loop. ``start`` listens; ``close`` ends it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: Watch | None = None
        self._subscriptions: dict[_Subject, set[Subscription]] = {}
        self._published: list[Callable[[int, int], None]] = []
        self._changed: list[Callable[[int | None], None]] = []

    @property
    def available(self) -> bool:
        """Whether the store has notifications."""
        return self._watch is not None

    def on_published(self, call: Callable[[int, int], None]) -> None:
        """``call(namespace_id, key)`` for every kernel that anybody publishes."""
        self._published.append(call)

    def on_changed(self, call: Callable[[int | None], None]) -> None:
        """``call(namespace_id)`` when what is cached of it may be stale; ``None``: of all namespaces."""
        self._changed.append(call)

    def start(self) -> None:
        """Listens from now on."""
        loop = asyncio.get_running_loop()

        def on_change(change: Change) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._take, change)

        self._watch = self._store.watch(on_change)

    def subscribe(
        self, namespace_id: int, kernel_digest: bytes, key: int
    ) -> AbstractContextManager[Subscription]:
        """Changes of the lease for a kernel, and kernels that are published under its key."""
        return self._subscribe((namespace_id, kernel_digest), (namespace_id, key))

    def subscribe_claim(self, name: bytes) -> AbstractContextManager[Subscription]:
        """The end of a claim."""
        return self._subscribe(_ClaimSubject(name))

    @contextmanager
    def _subscribe(self, *names: _Subject) -> Generator[Subscription]:
        subscription = Subscription()
        for name in names:
            self._subscriptions.setdefault(name, set()).add(subscription)
        try:
            yield subscription
        finally:
            for name in names:
                subscriptions = self._subscriptions[name]
                subscriptions.discard(subscription)
                if not subscriptions:
                    del self._subscriptions[name]

    def close(self) -> None:
        """Stops listening. May block for a moment: not to be called on the event loop."""
        if self._watch is not None:
            self._watch.close()

    def _take(self, change: Change) -> None:
        match change:
            case LeaseChanged(namespace_id, digest):
                self._wake(self._subscriptions.get((namespace_id, digest), ()))
            case KernelPublished(namespace_id, key):
                for published in self._published:
                    published(namespace_id, key)
                for subscription in self._subscriptions.get((namespace_id, key), ()):
                    subscription.published = True
                    subscription.set()
            case NamespaceChanged(namespace_id):
                for changed in self._changed:
                    changed(namespace_id)
            case ClaimEnded(name):
                self._wake(self._subscriptions.get(_ClaimSubject(name), ()))
            case Missed():
                for subscriptions in self._subscriptions.values():
                    self._wake(subscriptions)
                for changed in self._changed:
                    changed(None)

    @staticmethod
    def _wake(events: set[Subscription] | tuple[()]) -> None:
        for event in events:
            event.set()

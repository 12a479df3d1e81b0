"""What other processes did to the store, brought into the event loop: memories drop it, waiters wake.

Signals save time and decide nothing: what they would tell is looked up from time to time anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from kcache_grpc.storage.contract.change_notifications import (
    ClaimEnded,
    KernelPublished,
    LeaseChanged,
    Missed,
    NamespaceChanged,
    Notice,
    Watch,
)
from kcache_grpc.storage.contract.store import Store


class News(asyncio.Event):
    """Set when a lease changed, or with ``published`` when a kernel of the key was published."""

    published = False

    async def within(self, seconds: float) -> None:
        """Until it is set, or so many seconds; clears it."""
        with suppress(asyncio.TimeoutError):  # the builtin one from Python 3.11 on
            await asyncio.wait_for(self.wait(), seconds)
        self.clear()


class _Claimed(NamedTuple):
    """What is waited for: the end of a claim. Leases and keys are pairs that begin with a namespace."""

    name: bytes


#: A lease by kernel digest, or a kernel by key, in a namespace; or a claim.
_Awaited = tuple[int, bytes | int] | _Claimed


class Signals:
    """One event loop. ``start`` listens; ``close`` ends it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: Watch | None = None
        self._waiting: dict[_Awaited, set[News]] = {}
        self._published: list[Callable[[int, int], None]] = []
        self._changed: list[Callable[[int | None], None]] = []

    @property
    def heard(self) -> bool:
        """Whether the store tells anything."""
        return self._watch is not None

    def on_published(self, call: Callable[[int, int], None]) -> None:
        """``call(namespace_id, key)`` for every kernel that anybody publishes."""
        self._published.append(call)

    def on_changed(self, call: Callable[[int | None], None]) -> None:
        """``call(namespace_id)`` when memories of it may be stale; ``None``: those of all namespaces."""
        self._changed.append(call)

    def start(self) -> None:
        """Listens from now on."""
        loop = asyncio.get_running_loop()

        def tell(notice: Notice) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._take, notice)

        self._watch = self._store.watch(tell)

    def expecting(self, namespace_id: int, kernel_digest: bytes, key: int) -> AbstractContextManager[News]:
        """What happens to the lease for a kernel of a key."""
        return self._awaiting((namespace_id, kernel_digest), (namespace_id, key))

    def expecting_claim(self, name: bytes) -> AbstractContextManager[News]:
        """The end of somebody's claim."""
        return self._awaiting(_Claimed(name))

    @contextmanager
    def _awaiting(self, *names: _Awaited) -> Generator[News]:
        news = News()
        for name in names:
            self._waiting.setdefault(name, set()).add(news)
        try:
            yield news
        finally:
            for name in names:
                waiting = self._waiting[name]
                waiting.discard(news)
                if not waiting:
                    del self._waiting[name]

    def close(self) -> None:
        """Hears no more. May wait a moment: not for the event loop."""
        if self._watch is not None:
            self._watch.close()

    def _take(self, notice: Notice) -> None:
        match notice:
            case LeaseChanged(namespace_id, digest):
                self._wake(self._waiting.get((namespace_id, digest), ()))
            case KernelPublished(namespace_id, key):
                for published in self._published:
                    published(namespace_id, key)
                for news in self._waiting.get((namespace_id, key), ()):
                    news.published = True
                    news.set()
            case NamespaceChanged(namespace_id):
                for changed in self._changed:
                    changed(namespace_id)
            case ClaimEnded(name):
                self._wake(self._waiting.get(_Claimed(name), ()))
            case Missed():
                for waiting in self._waiting.values():
                    self._wake(waiting)
                for changed in self._changed:
                    changed(None)

    @staticmethod
    def _wake(events: set[News] | tuple[()]) -> None:
        for event in events:
            event.set()

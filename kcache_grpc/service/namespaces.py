"""Namespaces: their epochs, removals and disowned toolchains, looked at again after a second.

What these make stale: ``kcache_grpc/model/staleness.py``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from kcache_grpc.errors import ArgumentError
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.single_flight import SingleFlight
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import ToolchainDisowned
from kcache_grpc.storage.records import Namespace

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}\Z")

#: Namespaces remembered at a time; callers choose the names.
_MOST_KNOWN = 10_000


def check_name(name: str) -> None:
    """Raise ``ArgumentError`` for what no server takes as a namespace."""
    if not _NAME.match(name):
        raise ArgumentError(
            f"namespace {name[:140]!r}: use 1 to 128 of a-z 0-9 . _ -, a letter or digit first",
            field="namespace",
        )


class Namespaces:
    """Name -> namespace in its current epoch, at most ``max_age`` seconds old: the window in which a rising
    epoch, a removal or a disowned toolchain may go unnoticed. Who remembers rows of a namespace remembers
    them under its epoch and its count of removals. ``enter`` sees each namespace once, before it is used.
    """

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        max_age: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        enter: Callable[[Namespace], Namespace] = lambda namespace: namespace,
        toolchains: frozenset[bytes] = frozenset(),
        most: int | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._max_age = max_age
        self._clock = clock
        self._enter = enter
        self._toolchains = toolchains
        self._most = most
        self._entered: set[int] = set()
        #: Those of our toolchains that a namespace has disowned, where there are any.
        self._disowned: dict[int, frozenset[bytes]] = {}
        #: Namespaces in which kernels for lower targets will do.
        self._compatible: set[int] = set()
        self._known: dict[str, tuple[Namespace, float]] = {}
        #: Many callers whose window ends at once look once.
        self._loading: SingleFlight[str, Namespace] = SingleFlight(max_age)
        self._creating: SingleFlight[str, Namespace] = SingleFlight()

    def known(self, name: str) -> Namespace | None:
        """The namespace, if it was looked at within ``max_age`` seconds."""
        known = self._known.get(name)
        return known[0] if known is not None and self._clock() - known[1] < self._max_age else None

    async def get(self, name: str) -> Namespace:
        """The namespace; one that is not stored has id 0. Raises ``ArgumentError`` for a bad name."""
        known = self.known(name)
        if known is not None:
            return known
        check_name(name)
        call, _ = self._loading.join(name, lambda _: self._look(name))
        return await call.result()

    async def again(self, namespace: Namespace) -> Namespace:
        """The same, and as it is now if it was not stored."""
        return namespace if namespace.is_stored else await self.get(namespace.name)

    async def create(self, namespace: Namespace) -> Namespace:
        """The namespace, stored: for who is about to write in it. Raises ``TooManyNamespaces``."""
        if namespace.is_stored:
            return namespace
        check_name(namespace.name)

        async def work(_: object) -> Namespace:
            await self._threads(self._store.get_or_create_namespace, namespace.name, self._most)
            return await self._look(namespace.name)

        return await self._creating.join(namespace.name, work)[0].result()

    async def _look(self, name: str) -> Namespace:
        now = self._clock()
        namespace, disowned, compatible = await self._threads(self._load, name)
        if not namespace.is_stored:
            return namespace  # and not remembered: the first write may happen now
        self._entered.add(namespace.id)
        if (known := self._known.get(name)) is not None and known[1] > now:
            return namespace  # a later look was faster
        if disowned:
            self._disowned[namespace.id] = disowned
        else:
            self._disowned.pop(namespace.id, None)
        if compatible:
            self._compatible.add(namespace.id)
        else:
            self._compatible.discard(namespace.id)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[name] = (namespace, now)
        return namespace

    async def serving(self, name: str, toolchain: bytes) -> Namespace:
        """The namespace, for a request that is served kernels of one of our toolchains.

        Raises ``ToolchainDisowned``.
        """
        namespace = await self.get(name)
        if self._disowned and self.disowns(namespace, toolchain):
            raise ToolchainDisowned(namespace.name, toolchain)
        return namespace

    def disowns(self, namespace: Namespace, toolchain: bytes) -> bool:
        """Whether the namespace takes no kernels of this toolchain of ours."""
        return toolchain in self._disowned.get(namespace.id, ())

    def allows_compatible_targets(self, namespace: Namespace) -> bool:
        """Whether requests that leave it to the namespace may get kernels for lower targets."""
        return namespace.id in self._compatible

    def forget(self, namespace_id: int | None) -> None:
        """Looks at a namespace again when it is asked for next; at all of them: ``None``."""
        forgotten = [name for name, (known, _) in self._known.items() if namespace_id in (None, known.id)]
        for name in forgotten:
            del self._known[name]

    def _load(self, name: str) -> tuple[Namespace, frozenset[bytes], bool]:
        """The namespace, those of our toolchains that it disowned, and whether it allows lower targets."""
        namespace = self._store.find_namespace(name)
        if namespace is None:
            return Namespace(0, name, 1), frozenset(), False
        if namespace.id not in self._entered:
            namespace = self._enter(namespace)
        disowned = self._store.list_disowned(namespace)
        compatible = self._store.allows_compatible_targets(namespace)
        return namespace, self._toolchains & {each.toolchain for each in disowned}, compatible

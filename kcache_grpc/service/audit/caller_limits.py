"""Bounds the rows in which a store sums what hits saved, by caller: their names are up to the callers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kcache_grpc.storage.contract.saved_time import CALLER, caller_usage
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import Namespace, UsageDelta

#: Callers of a namespace that have rows of their own; each server that shares the store may add a few more.
MOST_CALLERS = 10_000
#: Namespaces whose callers are remembered; those of others are read again.
_MOST_NAMESPACES = 16


class Callers:
    """The callers that have a row. Not thread-safe: used by whoever writes, one at a time."""

    def __init__(self, most: int = MOST_CALLERS) -> None:
        self._most = most
        self._known: dict[int, set[str]] = {}

    def bounded(self, store: Store, namespace: Namespace, uses: Iterable[UsageDelta]) -> list[UsageDelta]:
        """The uses, those of callers beyond the bound as uses of the caller without a name."""
        return [
            self._bounded(store, namespace, use) if use.subject.startswith(CALLER) else use for use in uses
        ]

    def _bounded(self, store: Store, namespace: Namespace, use: UsageDelta) -> UsageDelta:
        known = self._callers(store, namespace)
        if use.subject in known:
            return use
        if len(known) >= self._most:
            unnamed = caller_usage("", "", 0, 0, 0)
            return replace(use, subject=unnamed.subject, digest=unnamed.digest)
        known.add(use.subject)
        return use

    def _callers(self, store: Store, namespace: Namespace) -> set[str]:
        known = self._known.get(namespace.id)
        if known is None:
            while len(self._known) >= _MOST_NAMESPACES:
                del self._known[next(iter(self._known))]
            stored = store.list_savings(namespace, self._most)
            known = {caller_usage(each.actor, each.job, 0, 0, 0).subject for each in stored}
            self._known[namespace.id] = known
        return known

"""Room for what is stored: inserts that meet a quota of the policy ``evict`` make some, and try again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from kcache_grpc.service.lifecycle.garbage_collection import MIN_AGE, Collector, utc_now
from kcache_grpc.storage.contract.lifecycle import EVICT
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import QuotaExceeded
from kcache_grpc.storage.records import Namespace

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("kcache.service")

#: Others may take the room that was made: so often is some made again.
_ATTEMPTS = 4
#: Evicted at a time beyond what is needed, as a share of the quota: one eviction serves many inserts.
_SPARE = 50


class Room:
    """For the inserts of one service. Blocks; thread-safe."""

    def __init__(self, store: Store, min_age: float = MIN_AGE, now: Callable[[], int] = utc_now) -> None:
        self._store = store
        self._collector = Collector(store, now)
        self._min_age = min_age

    def making(
        self,
        insert: Callable[Concatenate[Namespace, P], R],
        namespace: Namespace,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """``insert(namespace, ...)``. Raises ``QuotaExceeded`` where no room can be made."""
        for _ in range(_ATTEMPTS):
            try:
                return insert(namespace, *args, **kwargs)
            except QuotaExceeded as full:  # noqa: PERF203 (each attempt may need room)
                if not self._make(namespace, full):
                    raise
        return insert(namespace, *args, **kwargs)

    def require(self, namespace: Namespace, resource: str) -> None:
        """Raises ``QuotaExceeded`` when one more would be refused for sure: before work is done for it."""
        quota = self._store.list_quotas(namespace).get(resource)
        if quota is not None and quota.policy != EVICT and quota.used >= quota.most:
            raise QuotaExceeded(namespace.name, resource, quota.most, quota.used + 1, quota.policy)

    def _make(self, namespace: Namespace, full: QuotaExceeded) -> bool:
        """Whether any came of it."""
        needed = full.wanted - full.most
        if full.policy != EVICT or needed > full.most:
            return False
        freed = self._collector.evict(
            namespace, full.resource, max(needed, full.most // _SPARE), self._min_age
        )
        logger.info("namespace %s is full of %s: %d evicted", namespace.name, full.resource, freed)
        return freed >= needed

"""Eviction at a quota: an insert beyond one of the policy ``evict`` evicts rows, and is repeated."""

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

#: Attempts of an insert to evict: other inserts may use what was freed.
_ATTEMPTS = 4
#: Evicted at a time beyond what is needed, as a share of the quota: one eviction serves many inserts.
_SPARE = 50


class QuotaEviction:
    """Inserts of one service, with eviction. Blocks; thread-safe."""

    def __init__(self, store: Store, min_age: float = MIN_AGE, now: Callable[[], int] = utc_now) -> None:
        self._store = store
        self._collector = Collector(store, now)
        self._min_age = min_age

    def insert_evicting(
        self,
        write: Callable[Concatenate[Namespace, P], R],
        namespace: Namespace,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """``write(namespace, ...)``. Raises ``QuotaExceeded`` if too little can be evicted."""
        for _ in range(_ATTEMPTS):
            try:
                return write(namespace, *args, **kwargs)
            except QuotaExceeded as full:  # noqa: PERF203 (each attempt may evict)
                if not self._evict(namespace, full):
                    raise
        return write(namespace, *args, **kwargs)

    def require(self, namespace: Namespace, resource: str) -> None:
        """Raises ``QuotaExceeded`` if an insert would certainly be refused, before work is done for it."""
        quota = self._store.list_quotas(namespace).get(resource)
        if quota is not None and quota.policy != EVICT and quota.used >= quota.most:
            raise QuotaExceeded(namespace.name, resource, quota.most, quota.used + 1, quota.policy)

    def _evict(self, namespace: Namespace, full: QuotaExceeded) -> bool:
        """Evict for an insert that exceeded a quota; whether enough was freed."""
        needed = full.wanted - full.most
        if full.policy != EVICT or needed > full.most:
            return False
        freed = self._collector.evict(
            namespace, full.resource, max(needed, full.most // _SPARE), self._min_age
        )
        logger.info("namespace %s is full of %s: %d evicted", namespace.name, full.resource, freed)
        return freed >= needed

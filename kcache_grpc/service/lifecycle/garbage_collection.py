"""Garbage collection of a namespace: which steps, in which order, until when.

What is stale, and why, is decided by ``kcache_grpc/model/staleness.py``; stale kernels go first.

Every step is a small transaction of the store, so that a collection may run while servers run, be killed, and
go on where it was by being started again.

At a quota of the policy ``evict`` an insert evicts rows, and is repeated.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Concatenate, ParamSpec, TypeVar

from kcache_grpc.storage.contract.assertions import ASSERTION_BYTES
from kcache_grpc.storage.contract.blob_cache import CACHE_BYTES
from kcache_grpc.storage.contract.lifecycle import EVICT, Collected, Cursor, Quota, RowKind, Step
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import QuotaExceeded
from kcache_grpc.storage.records import Namespace

#: Nothing that was made or used in this many seconds is evicted, or removed as unreferenced.
MIN_AGE = 300.0
#: Seconds for which a mapping of an earlier epoch is kept that tells an older canonicalizer's key.
KEEP_KEYS = 30 * 86400.0
#: Seconds after which an object is deleted whose rows were collected.
OBJECT_GRACE = 3600.0
#: Rows that one transaction removes, and rows that it looks at where most of them stay.
_ROWS, _WINDOW = 100, 1000
#: Kernels that are evicted at a time for the sake of their bytes.
_FOR_BYTES = 20

_STALE = (
    RowKind.EPOCH_KERNELS,
    RowKind.EPOCH_MAPPINGS,
    RowKind.DISOWNED_KERNELS,
    RowKind.FAILURES,
    RowKind.LEASES,
    RowKind.QUARANTINED,
)
_UNUSED = (RowKind.CONSTANTS, RowKind.PROGRAMS, RowKind.BLOBS)
_IDLE = {"kernels": RowKind.IDLE_KERNELS, "mappings": RowKind.IDLE_MAPPINGS}
P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("kcache.service")
#: Attempts of an insert to evict: other inserts may use what was freed.
_ATTEMPTS = 4
#: At least one part in this many of the quota is evicted at a time: one eviction serves many inserts.
_SPARE = 50


@dataclass(frozen=True)
class CollectionOptions:
    """What a collection removes in addition to what is stale or unused. Seconds and bytes.

    ``older_than``: what was not used for so long. ``max_bytes``: the longest unused, until the namespace's
    artifacts, constants and programs have no more bytes than that.
    """

    older_than: float | None = None
    max_bytes: int | None = None
    min_age: float = MIN_AGE
    dry_run: bool = False


@dataclass
class Report:
    """What a collection of one namespace removed, or would remove: rows by kind, and blobs with their bytes.

    In a dry run ``blobs`` leaves out constants and programs that lose their last reference in the same run.
    """

    namespace: str
    dry_run: bool
    rows: dict[str, int] = field(default_factory=dict[str, int])
    blobs: int = 0
    blob_bytes: int = 0
    bytes_before: int = 0
    #: Limits that could not be met: everything else is pinned, or too young.
    unmet: list[str] = field(default_factory=list[str])


def utc_now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Collector:
    """Collections of one store. Blocks; ``now`` is in UTC microseconds."""

    def __init__(self, store: Store, now: Callable[[], int] = utc_now) -> None:
        self._store = store
        self._now = now

    def run(self, namespace: Namespace, options: CollectionOptions) -> Report:
        """One collection, to its end."""
        *_, report = self.steps(namespace, options)
        return report

    def steps(self, namespace: Namespace, options: CollectionOptions) -> Iterator[Report]:
        """The same, with the progress so far after each transaction."""
        report = Report(namespace.name, options.dry_run)
        if not options.dry_run:
            self._store.recount_quotas(namespace)
        quotas = self._store.list_quotas(namespace)
        report.bytes_before = self._held_bytes(namespace, quotas)
        run = _Run(self._store, namespace, options, report, self._now())
        yield report
        for kind in _STALE:
            yield from run.all(kind)
        for resource, kind in _IDLE.items():
            if options.older_than is not None:
                yield from run.idle(kind, options.older_than)
            yield from run.fit(resource, quotas.get(resource))
        for kind in _UNUSED:
            yield from run.all(kind)
        yield from run.shrink(options.max_bytes, quotas.get("artifact_bytes"))
        yield from self._values(namespace, options, quotas.get(CACHE_BYTES), report)
        yield from self._assertions(namespace, options, quotas.get(ASSERTION_BYTES), report)

    def _values(
        self, namespace: Namespace, options: CollectionOptions, quota: Quota | None, report: Report
    ) -> Iterator[Report]:
        """``BlobCache`` values: those that were not used for so long, then what is above the quota."""
        limits: list[tuple[float, int | None, str]] = []
        if options.older_than is not None:
            limits.append((max(options.older_than, options.min_age), None, "idle"))
        if quota is not None and quota.used > quota.most:
            limits.append((options.min_age, quota.used - quota.most, "quota"))
        for age, amount, reason in limits:
            before = self._now() - round(age * 1e6)
            count, size = self._store.remove_values(
                namespace, before, amount, reason=reason, dry_run=options.dry_run
            )
            if count:
                report.rows["cache_values"] = report.rows.get("cache_values", 0) + count
            if amount is not None and size < amount:
                report.unmet.append(f"quota of {CACHE_BYTES}")
            yield report

    def _assertions(
        self, namespace: Namespace, options: CollectionOptions, quota: Quota | None, report: Report
    ) -> Iterator[Report]:
        """Assertions of earlier epochs, those not used for so long, then what is above the quota."""
        freed = self._remove_assertions(namespace, options, options.min_age, None, "epoch", report)
        yield report
        if options.older_than is not None:
            age = max(options.older_than, options.min_age)
            freed += self._remove_assertions(namespace, options, age, None, "idle", report)
            yield report
        over = 0 if quota is None else quota.used - freed - quota.most
        if over > 0:
            if self._remove_assertions(namespace, options, options.min_age, over, "quota", report) < over:
                report.unmet.append(f"quota of {ASSERTION_BYTES}")
            yield report

    def _remove_assertions(
        self,
        namespace: Namespace,
        options: CollectionOptions,
        age: float,
        amount: int | None,
        reason: str,
        report: Report,
    ) -> int:
        """How many bytes went."""
        count, size = self._store.remove_assertions(
            namespace,
            self._now() - round(age * 1e6),
            amount,
            stale=reason == "epoch",
            reason=reason,
            dry_run=options.dry_run,
        )
        if count:
            report.rows["assertions"] = report.rows.get("assertions", 0) + count
        return size

    def evict(self, namespace: Namespace, resource: str, amount: int, min_age: float = MIN_AGE) -> int:
        """Make room for ``amount`` of a resource that is at its quota; returns the amount freed."""
        if resource == ASSERTION_BYTES:
            before = self._now() - round(min_age * 1e6)
            freed = self._store.remove_assertions(namespace, before, amount, stale=True, reason="epoch")[1]
            if freed < amount:
                freed += self._store.remove_assertions(namespace, before, amount - freed, reason="quota")[1]
            return freed
        if resource == CACHE_BYTES:
            before = self._now() - round(min_age * 1e6)
            return self._store.remove_values(namespace, before, amount, reason="quota")[1]
        options = CollectionOptions(min_age=min_age)
        report = Report(namespace.name, dry_run=False)
        run = _Run(self._store, namespace, options, report, self._now())
        stale = RowKind.EPOCH_MAPPINGS if resource == "mappings" else RowKind.EPOCH_KERNELS
        sources = [run.all(stale, amount, resource)]
        if resource != "mappings":
            sources.append(run.all(RowKind.DISOWNED_KERNELS, amount, resource))
        sources.append(run.some(_IDLE.get(resource, RowKind.IDLE_KERNELS), amount, resource))
        if resource == "artifact_bytes":
            sources += [run.all(kind, amount, resource) for kind in _UNUSED]
        for source in sources:
            for _ in source:
                pass
            if run.freed(resource) >= amount:
                break
        return run.freed(resource)

    def _held_bytes(self, namespace: Namespace, quotas: Mapping[str, Quota]) -> int:
        quota = quotas.get("artifact_bytes")
        return self._store.stats(namespace).artifact_bytes if quota is None else quota.used


class _Run:
    """One collection of one namespace under way."""

    def __init__(
        self, store: Store, namespace: Namespace, options: CollectionOptions, report: Report, now: int
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._wish = options
        self._report = report
        self._now = now
        #: Where the longest unused that are left begin: a dry run removes nothing.
        self._places: dict[RowKind, Cursor | None] = {}
        #: In a dry run: references to a blob that would be gone.
        self._gone: Counter[bytes] = Counter()

    def freed(self, resource: str) -> int:
        """How much of a resource went."""
        if resource == "artifact_bytes":
            return self._report.blob_bytes
        kinds = [kind.value for kind in RowKind if kind.value.endswith(resource)]
        return sum(self._report.rows.get(kind, 0) for kind in kinds)

    def all(self, kind: RowKind, amount: int | None = None, resource: str = "") -> Iterator[Report]:
        """Everything of a kind, or until ``amount`` of a resource went."""
        age = KEEP_KEYS if kind is RowKind.EPOCH_MAPPINGS else self._wish.min_age
        limit = _WINDOW if kind in _UNUSED else _ROWS
        after: Cursor | None = None
        while amount is None or self.freed(resource) < amount:
            done = self._step(Step(kind, limit, self._before(age), after))
            yield self._report
            after = done.after
            if after is None:
                return

    def idle(self, kind: RowKind, age: float) -> Iterator[Report]:
        """What was not used for so long."""
        more = True
        while more:
            more = self._step_idle(kind, _ROWS, max(age, self._wish.min_age)).after is not None
            yield self._report

    def some(self, kind: RowKind, amount: int, resource: str) -> Iterator[Report]:
        """The longest unused, until ``amount`` of a resource went."""
        goal = self.freed(resource) + amount
        while (left := goal - self.freed(resource)) > 0:
            limit = _FOR_BYTES if resource == "artifact_bytes" else min(left, _ROWS)
            done = self._step_idle(kind, limit, self._wish.min_age)
            yield self._report
            if done.after is None:
                return

    def fit(self, resource: str, quota: Quota | None) -> Iterator[Report]:
        """The longest unused of what is above its quota."""
        if quota is None:
            return
        over = quota.used - self.freed(resource) - quota.most
        if over > 0:
            before = self.freed(resource)
            yield from self.some(_IDLE[resource], over, resource)
            if self.freed(resource) - before < over:
                self._report.unmet.append(f"quota of {resource}")

    def shrink(self, most: int | None, quota: Quota | None) -> Iterator[Report]:
        """Kernels for their bytes, until the namespace has no more than both allow."""
        limits = [("--max-bytes", most), ("quota of artifact_bytes", quota.most if quota else None)]
        for name, limit in limits:
            over = 0 if limit is None else self._report.bytes_before - self._report.blob_bytes - limit
            if over > 0:
                yield from self.some(RowKind.IDLE_KERNELS, over, "artifact_bytes")
                if limit is not None and self._report.bytes_before - self._report.blob_bytes > limit:
                    self._report.unmet.append(name)

    def _step_idle(self, kind: RowKind, limit: int, age: float) -> Collected:
        place = self._places.get(kind)
        done = self._step(Step(kind, limit, self._before(age), place))
        self._places[kind] = done.last
        return done

    def _step(self, step: Step) -> Collected:
        done = self._store.collect(self._namespace, replace(step, dry_run=self._wish.dry_run))
        rows = self._report.rows
        if step.kind is not RowKind.BLOBS:
            rows[step.kind.value] = rows.get(step.kind.value, 0) + done.rows
        self._report.blobs += done.blobs
        self._report.blob_bytes += done.blob_bytes
        for use in done.uses:
            self._gone[use.digest] += 1
            if self._gone[use.digest] == use.references:
                self._report.blobs += 1
                self._report.blob_bytes += use.size
        return done

    def _before(self, age: float) -> int:
        return max(0, self._now - round(age * 1e6))


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
        """Raises ``QuotaExceeded`` if an insert would certainly be rejected, before work is done for it."""
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

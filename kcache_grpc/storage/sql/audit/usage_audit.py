"""Usage, audit and counts on SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, bindparam, case, func, literal, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.saved_time import CALLER, SavingRecord, caller_of
from kcache_grpc.storage.contract.store import UsageAuditStore
from kcache_grpc.storage.records import (
    AuditEvent,
    AuditRecord,
    ConflictRecord,
    Namespace,
    Stats,
    UsageDelta,
    UsageRecord,
)
from kcache_grpc.storage.schema import (
    artifacts,
    audit_events,
    conflicts,
    failures,
    graph_mappings,
    kernels,
    key_counters,
    usage,
)
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, Insert, Probe, insert_once
from kcache_grpc.storage.sql.engine.database import SqlPart
from kcache_grpc.storage.sql.engine.journal import insert_events as insert_events
from kcache_grpc.storage.sql.engine.journal import record_of, select_events

_NS: BindParameter[int] = bindparam("ns")
_EVENTS = (
    select_events()
    .where(audit_events.c.namespace_id == _NS, audit_events.c.id > bindparam("after"))
    .order_by(audit_events.c.id)
    .limit(bindparam("most"))
)
_INSERT_CONFLICT = insert_once(conflicts)
_CONFLICTS = (
    select(conflicts)
    .where(conflicts.c.namespace_id == _NS)
    .order_by(conflicts.c.id.desc())
    .limit(bindparam("most"))
)


def _added(rows: Insert) -> Insert:
    """To what is there already."""
    return rows.on_conflict_do_update(
        index_elements=["namespace_id", "subject", "digest"],
        set_={
            "hits": usage.c.hits + rows.excluded.hits,
            "saved_us": usage.c.saved_us + rows.excluded.saved_us,
            "last_used_at": case(
                (rows.excluded.last_used_at > usage.c.last_used_at, rows.excluded.last_used_at),
                else_=usage.c.last_used_at,
            ),
        },
    )


ADD_USAGE = BulkInsert(
    usage, ("namespace_id", "subject", "digest", "hits", "saved_us", "last_used_at"), _added
)
_USAGE = Probe(
    select(usage.c.digest, usage.c.hits, usage.c.saved_us, usage.c.last_used_at).where(
        usage.c.namespace_id == _NS,
        usage.c.subject == bindparam("subject"),
        # Rows without hits say only since when something has been there.
        usage.c.hits > 0,
    ),
    usage.c.digest,
)


def _next_subject(after: ColumnElement[str]) -> ColumnElement[str]:
    """The subject that follows another one, in the order of the primary key; NULL after the last one."""
    following = select(func.min(_OTHER.c.subject)).where(
        _OTHER.c.namespace_id == _NS, _OTHER.c.subject > after
    )
    return following.scalar_subquery()


_OTHER = usage.alias("other")
#: Each subject by one search of the primary key, whatever the collation of the database: rows of kernels and
#: mappings are skipped. (Recursive queries of this kind are known as loose index scans.)
_FIRST = select(_next_subject(literal("")).label("subject")).cte("subjects", recursive=True)
_SUBJECTS = _FIRST.union_all(select(_next_subject(_FIRST.c.subject)).where(_FIRST.c.subject.is_not(None)))


def _of_caller(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column of the one row of a subject. The order makes Postgres take the key, not the table."""
    row = select(column).where(usage.c.namespace_id == _NS, usage.c.subject == _SUBJECTS.c.subject)
    return row.order_by(usage.c.digest).limit(1).correlate(_SUBJECTS).scalar_subquery()


_SAVINGS = select(
    _SUBJECTS.c.subject,
    *(
        _of_caller(column).label(column.name)
        for column in (usage.c.hits, usage.c.saved_us, usage.c.last_used_at)
    ),
).where(_SUBJECTS.c.subject.startswith(CALLER, autoescape=True))

_HERE = (kernels.c.namespace_id == _NS, kernels.c.epoch == bindparam("epoch"))
#: The subject under which usage counts the kernels that were removed, as hits.
REMOVED_KERNELS = "removed-kernel"

_STATS = select(
    select(key_counters.c.last_key)
    .where(key_counters.c.namespace_id == _NS)
    .scalar_subquery()
    .label("specs"),
    select(func.count())
    .select_from(graph_mappings)
    .where(graph_mappings.c.namespace_id == _NS, graph_mappings.c.epoch == bindparam("epoch"))
    .scalar_subquery()
    .label("mappings"),
    select(func.count()).select_from(kernels).where(*_HERE).scalar_subquery().label("kernels"),
    select(func.count())
    .select_from(kernels)
    .where(kernels.c.namespace_id == _NS)
    .scalar_subquery()
    .label("all_kernels"),
    select(func.coalesce(func.sum(usage.c.hits), 0))
    .where(usage.c.namespace_id == _NS, usage.c.subject == REMOVED_KERNELS)
    .scalar_subquery()
    .label("removed_kernels"),
    select(func.coalesce(func.sum(kernels.c.compile_us), 0))
    .where(*_HERE)
    .scalar_subquery()
    .label("compile_us"),
    select(func.count())
    .select_from(failures)
    .where(
        failures.c.namespace_id == _NS,
        failures.c.epoch == bindparam("epoch"),
        failures.c.expires_at > bindparam("now"),
    )
    .scalar_subquery()
    .label("failures"),
    select(func.count())
    .select_from(audit_events)
    .where(audit_events.c.namespace_id == _NS)
    .scalar_subquery()
    .label("audit_events"),
)
#: From end to end: the index of digests leads to the same rows one by one, in ten times the time.
_ARTIFACT_STATS = select(func.count(), func.coalesce(func.sum(artifacts.c.size), 0)).where(
    artifacts.c.namespace_id + 0 == _NS
)
_USAGE_STATS = select(
    func.coalesce(func.sum(usage.c.hits), 0), func.coalesce(func.sum(usage.c.saved_us), 0)
).where(usage.c.namespace_id == _NS, usage.c.subject == "kernel")


class SqlUsageAudit(SqlPart, UsageAuditStore):
    """``UsageAuditStore`` on SQL."""

    def add_usage(self, namespace: Namespace, batch: Sequence[UsageDelta]) -> None:
        """Add to the counters of subjects, in one transaction that need not be durable."""
        deltas = sum_usage(batch, self._clock.wall())
        if not deltas:
            return
        # In the order of names: two writers with the same names never wait for each other.
        rows = [
            {
                "namespace_id": namespace.id,
                "subject": delta.subject,
                "digest": delta.digest,
                "hits": delta.hits,
                "saved_us": delta.saved_us,
                "last_used_at": delta.last_used_at,
            }
            for delta in deltas
        ]
        self._db.transact(lambda connection: ADD_USAGE.execute(connection, rows).rowcount, durable=False)

    def find_usage(
        self, namespace: Namespace, subject: str, digests: Sequence[bytes]
    ) -> Mapping[bytes, UsageRecord]:
        checks.digests("digest", digests)
        checks.text("subject", subject)
        return {
            row.digest: UsageRecord(subject, row.digest, row.hits, row.saved_us, row.last_used_at)
            for row in _USAGE.fetch(self._db, {"ns": namespace.id, "subject": subject}, digests)
        }

    def list_savings(self, namespace: Namespace, limit: int) -> tuple[SavingRecord, ...]:
        checks.number("limit", limit)
        savings = [
            SavingRecord(*caller_of(row.subject), row.hits, row.saved_us, row.last_used_at)
            for row in self._db.fetch(_SAVINGS, {"ns": namespace.id})
        ]
        savings.sort(key=lambda each: (-each.saved_us, -each.hits, each.actor, each.job))
        return tuple(savings[:limit])

    def append_audit(self, namespace: Namespace, batch: Sequence[AuditEvent]) -> None:
        checks.events(batch)
        if batch:
            now = self._clock.wall()
            self._db.transact(
                lambda connection: insert_events(connection, namespace, batch, self._writer, now)
            )

    def list_audit(
        self, namespace: Namespace, after_id: int = 0, limit: int = 100
    ) -> tuple[AuditRecord, ...]:
        checks.number("limit or id", after_id, limit)
        rows = self._db.fetch(_EVENTS, {"ns": namespace.id, "after": after_id, "most": limit})
        return tuple(map(record_of, rows))

    def list_conflicts(self, namespace: Namespace, limit: int = 100) -> tuple[ConflictRecord, ...]:
        checks.number("limit", limit)
        rows = self._db.fetch(_CONFLICTS, {"ns": namespace.id, "most": limit})
        return tuple(
            ConflictRecord(row.kind, row.name, row.stored, row.offered, row.created_at) for row in rows
        )

    def stats(self, namespace: Namespace) -> Stats:
        """Return counts of a namespace: of its current epoch where rows have one.

        Reads indexes from end to end.
        """
        of = {"ns": namespace.id}
        counts = self._db.fetch(_STATS, {**of, "epoch": namespace.epoch, "now": self._clock.wall()})[0]
        count, size = self._db.fetch(_ARTIFACT_STATS, of)[0]
        hits, saved = self._db.fetch(_USAGE_STATS, of)[0]
        return Stats(
            specs=counts.specs or 0,
            mappings=counts.mappings,
            kernels=counts.kernels,
            artifacts=count,
            artifact_bytes=int(size),
            hits=int(hits),
            saved_us=int(saved),
            compiles=counts.all_kernels + int(counts.removed_kernels),
            compile_us=int(counts.compile_us),
            failures=counts.failures,
            audit_events=counts.audit_events,
        )


def sum_usage(batch: Sequence[UsageDelta], now: int) -> list[UsageDelta]:
    """One delta a subject, sorted; those without a time were used now."""
    summed: dict[tuple[str, bytes], list[int]] = {}
    for delta in batch:
        counts = summed.get((delta.subject, delta.digest))
        if counts is None:
            checks.usage(delta)
            counts = summed[delta.subject, delta.digest] = [0, 0, 0]
        else:
            checks.number("usage", delta.hits, delta.saved_us, delta.last_used_at)
        counts[0] += delta.hits
        counts[1] += delta.saved_us
        counts[2] = max(counts[2], delta.last_used_at or now)
    return [UsageDelta(*name, *summed[name]) for name in sorted(summed)]


def insert_conflict(
    connection: Connection,
    namespace: Namespace,
    kind: str,
    name: bytes,
    stored: bytes,
    offered: bytes,
    *,
    now: int,
) -> None:
    """Record that ``offered`` came second under ``name``, in the caller's transaction."""
    values = {"namespace_id": namespace.id, "kind": kind, "name": name, "stored": stored}
    connection.execute(_INSERT_CONFLICT, {**values, "offered": offered, "created_at": now})

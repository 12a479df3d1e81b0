"""Collection on SQL: steps, each one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, or_, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.lifecycle import (
    QUARANTINE_REST,
    BlobUse,
    Collected,
    Cursor,
    QuarantinedRow,
    RowKind,
    Step,
)
from kcache_grpc.storage.records import AuditEvent, MappingRecord, Namespace, StoredKernel
from kcache_grpc.storage.schema import (
    artifacts,
    failures,
    graph_mappings,
    kernel_artifacts,
    kernels,
    leases,
    specs,
    usage,
)
from kcache_grpc.storage.sql.audit.usage_audit import insert_events
from kcache_grpc.storage.sql.engine.database import Removal, Row
from kcache_grpc.storage.sql.gc import candidates
from kcache_grpc.storage.sql.gc.removal import RemovalTransaction
from kcache_grpc.storage.sql.graphs.graphs import mapping_record
from kcache_grpc.storage.sql.kernels import quarantine
from kcache_grpc.storage.sql.kernels.kernels import PAGE, stored_kernels
from kcache_grpc.storage.sql.quotas import SqlQuotas

#: A lease that nobody has held for so long is forgotten, in microseconds: its holder is gone.
LEASE_RETENTION = 3_600_000_000
#: Numerics classes under which a program may be mapped beyond the first: rows of one place in the order.
_TIES = 2

_KERNELS = (RowKind.EPOCH_KERNELS, RowKind.DISOWNED_KERNELS, RowKind.IDLE_KERNELS)
_MAPPINGS = (RowKind.EPOCH_MAPPINGS, RowKind.IDLE_MAPPINGS)
_WINDOWS = (RowKind.CONSTANTS, RowKind.PROGRAMS, RowKind.BLOBS)

_NS: BindParameter[int] = bindparam("ns")
_EPOCH: BindParameter[int] = bindparam("epoch")
_STILL_IDLE = select(usage.c.digest).where(
    usage.c.namespace_id == _NS,
    usage.c.subject == bindparam("subject"),
    # By digest, not by the index of times, which has nearly all.
    usage.c.last_used_at + 0 < bindparam("before"),
    usage.c.digest.in_(bindparam("digests", expanding=True)),
)
_LAST_CANONICALIZER = (
    select(specs.c.canonicalizer).where(specs.c.namespace_id == _NS).order_by(specs.c.key.desc()).limit(1)
)
_FORGET = {
    RowKind.FAILURES: delete(failures).where(
        failures.c.namespace_id == _NS,
        failures.c.epoch == bindparam("of_epoch"),
        failures.c.kernel_digest == bindparam("of_digest"),
        or_(failures.c.expires_at <= bindparam("now"), failures.c.epoch < _EPOCH),
    ),
    RowKind.LEASES: delete(leases).where(
        leases.c.namespace_id == _NS,
        leases.c.epoch == bindparam("of_epoch"),
        leases.c.kernel_digest == bindparam("of_digest"),
        leases.c.acquired_at < bindparam("acquired_before"),
        or_(leases.c.boot != bindparam("boot"), leases.c.expires_at < bindparam("expired_before")),
    ),
}
_KERNELS_BY_DIGEST = select(kernels.c.id, kernels.c.kernel_digest).where(
    kernels.c.namespace_id == _NS,
    kernels.c.epoch == _EPOCH,
    kernels.c.kernel_digest.in_(bindparam("digests", expanding=True)),
)
_KERNELS_BY_ARTIFACT = (
    select(kernels.c.id, kernels.c.kernel_digest)
    .join_from(kernels, kernel_artifacts, kernel_artifacts.c.kernel_id == kernels.c.id)
    .join(artifacts, artifacts.c.id == kernel_artifacts.c.artifact_id)
    .where(
        kernels.c.namespace_id == _NS,
        kernels.c.epoch == _EPOCH,
        artifacts.c.namespace_id == _NS,
        artifacts.c.digest.in_(bindparam("digests", expanding=True)),
    )
)
_MAPPINGS_BY_DIGEST = select(
    graph_mappings.c.id, graph_mappings.c.program_digest, graph_mappings.c.numerics
).where(
    graph_mappings.c.namespace_id == _NS,
    graph_mappings.c.epoch == _EPOCH,
    graph_mappings.c.program_digest.in_(bindparam("digests", expanding=True)),
)
_PAGE_MAPPINGS = (
    select(graph_mappings)
    .where(
        graph_mappings.c.namespace_id == _NS,
        graph_mappings.c.epoch == _EPOCH,
        graph_mappings.c.program_digest >= bindparam("from_digest"),
        or_(
            graph_mappings.c.program_digest > bindparam("from_digest"),
            graph_mappings.c.numerics > bindparam("from_numerics"),
        ),
    )
    .order_by(graph_mappings.c.program_digest, graph_mappings.c.numerics)
    .limit(bindparam("most"))
)


class SqlLifecycle(SqlQuotas):
    """``LifecycleStore`` on SQL."""

    def collect(self, namespace: Namespace, step: Step) -> Collected:
        checks.step(step)
        if step.dry_run:
            return self._count(namespace, step)
        return self._db.transact(lambda connection: self._collect(connection, namespace, step))

    def _count(self, namespace: Namespace, step: Step) -> Collected:
        values = self._values(None, namespace, step)
        rows, after, last = _cut(step, self._victims(None, step, candidates.SELECT[step.kind], values))
        if step.kind in _WINDOWS:
            rows = [row for row in rows if row.unused]
        if step.kind is RowKind.BLOBS:
            return Collected(len(rows), len(rows), sum(row.size for row in rows), after, last)
        uses: tuple[BlobUse, ...] = ()
        if step.kind in _KERNELS and rows:
            linked = self._db.fetch(candidates.USES_OF_KERNELS, {"ids": [row.id for row in rows]})
            uses = tuple(BlobUse(row.digest, row.size, row.total) for row in linked)
        return Collected(len(rows), after=after, last=last, uses=uses)

    def _collect(self, connection: Connection, namespace: Namespace, step: Step) -> Collected:
        """Remove the rows of one step in the caller's transaction; check idle rows again under locks."""
        values = self._values(connection, namespace, step)
        rows, after, last = _cut(step, self._victims(connection, step, candidates.LOCK[step.kind], values))
        transaction = self._transaction(connection, namespace, step.reason or step.kind.value)
        match step.kind:
            case RowKind.IDLE_KERNELS:
                transaction.kernels(_still_idle(connection, namespace, step, "kernel", rows))
            case RowKind.EPOCH_KERNELS | RowKind.DISOWNED_KERNELS:
                transaction.kernels(rows)
            case RowKind.IDLE_MAPPINGS:
                transaction.mappings(_still_idle(connection, namespace, step, "mapping", rows))
            case RowKind.EPOCH_MAPPINGS:
                transaction.mappings(rows)
            case RowKind.CONSTANTS:
                transaction.constants([row.artifact_id for row in rows if row.unused])
            case RowKind.PROGRAMS:
                transaction.programs([row.artifact_id for row in rows if row.unused])
            case RowKind.BLOBS:
                transaction.unused_blobs([row.artifact_id for row in rows if row.unused])
            case RowKind.QUARANTINED:
                transaction.quarantined([row.artifact_id for row in rows])
                quarantine.forget_old(connection, namespace, self._clock.wall() - QUARANTINE_REST)
            case RowKind.FAILURES | RowKind.LEASES:
                named = [values | {"of_epoch": row.epoch, "of_digest": row.kernel_digest} for row in rows]
                removed = sum(connection.execute(_FORGET[step.kind], each).rowcount for each in named)
                return Collected(removed, after=after, last=last)
        transaction.finalize()
        return Collected(transaction.rows, transaction.blobs, transaction.blob_bytes, after, last)

    def _values(self, connection: Connection | None, namespace: Namespace, step: Step) -> dict[str, Any]:
        """All that the statements of a kind ask for."""
        most = step.limit + (_TIES if step.kind in _MAPPINGS else 0)
        here = {"ns": namespace.id, "epoch": namespace.epoch, "before": step.before, "most": most}
        values: dict[str, Any] = here | candidates.place(step.kind, step.after)
        now = self._clock.wall()
        if step.kind is RowKind.FAILURES:
            values["now"] = now
        elif step.kind is RowKind.LEASES:
            boot, steady = self._db.lease_time(connection)
            values |= {"boot": boot, "expired_before": steady - LEASE_RETENTION}
            values["acquired_before"] = now - LEASE_RETENTION
        elif step.kind is RowKind.EPOCH_MAPPINGS:
            of = {"ns": namespace.id}
            last = self._ask(connection, _LAST_CANONICALIZER, of)
            values["canonicalizer"] = last[0].canonicalizer if last else 0
        return values

    def _victims(
        self, connection: Connection | None, step: Step, statement: Any, values: dict[str, Any]
    ) -> Sequence[Row]:
        if step.kind is not RowKind.DISOWNED_KERNELS:
            return self._ask(connection, statement, values)
        for (toolchain,) in self._ask(connection, candidates.DISOWNED, values):
            after = values["c2"] if toolchain == values["c1"] else 0
            of = {**values, "of_toolchain": toolchain, "after_id": after}
            if rows := self._ask(connection, statement, of):
                return rows
        return ()

    def _ask(self, connection: Connection | None, statement: Any, values: dict[str, Any]) -> Sequence[Row]:
        """In the caller's transaction, if there is one."""
        if connection is None:
            return self._db.fetch(statement, values)
        return connection.execute(statement, values).all()

    def _transaction(self, connection: Connection, namespace: Namespace, reason: str) -> RemovalTransaction:
        removal = Removal(namespace.id, namespace.epoch, self._writer, self._clock.wall(), reason)
        return RemovalTransaction(self._db, connection, namespace, removal)

    def discard(
        self,
        namespace: Namespace,
        kernels: Sequence[bytes],
        mappings: Sequence[tuple[bytes, str]],
        event: AuditEvent,
        artifacts: Sequence[bytes] = (),
    ) -> int:
        """Move kernels and mappings of this epoch into quarantine, with an event, in one transaction.

        Returns their number. See ``LifecycleStore``.
        """
        checks.digests("digest", [*kernels, *artifacts, *(digest for digest, _ in mappings)])
        checks.events([event])
        here = {"ns": namespace.id, "epoch": namespace.epoch}

        def work(connection: Connection) -> int:
            transaction = self._transaction(connection, namespace, event.outcome)
            removable = {
                row.id: row
                for statement, digests in ((_KERNELS_BY_DIGEST, kernels), (_KERNELS_BY_ARTIFACT, artifacts))
                for row in connection.execute(statement, {**here, "digests": list(digests)})
            }
            named = {**here, "digests": [digest for digest, _ in mappings]}
            rows = connection.execute(_MAPPINGS_BY_DIGEST, named).all()
            mapped = [row for row in rows if (row.program_digest, row.numerics) in mappings]
            now = self._clock.wall()
            for subject, ids in (("kernel", list(removable)), ("mapping", [row.id for row in mapped])):
                quarantine.keep_rows(connection, namespace, subject, sorted(ids), event.detail, now)
            transaction.kernels(list(removable.values()), keep_blobs=True)
            transaction.mappings(mapped)
            transaction.finalize()
            if transaction.rows:
                insert_events(connection, namespace, [event], self._writer, self._clock.wall())
            return transaction.rows

        return self._db.transact(work)

    def list_quarantined(self, namespace: Namespace) -> tuple[QuarantinedRow, ...]:
        return tuple(
            QuarantinedRow(row.id, row.subject, row.digest, row.problem, row.created_at)
            for row in self._db.fetch(quarantine.LIST, {"ns": namespace.id})
        )

    def restore_quarantined(self, namespace: Namespace, ids: Sequence[int]) -> tuple[QuarantinedRow, ...]:
        checks.number("id", *ids)

        def work(connection: Connection) -> tuple[QuarantinedRow, ...]:
            now = self._clock.wall()
            back = [quarantine.put_back(connection, namespace, number, now) for number in ids]
            return tuple(row for row in back if row is not None)

        return self._db.transact(work)

    def page_kernels(self, namespace: Namespace, after_id: int, limit: int) -> tuple[StoredKernel, ...]:
        checks.number("id or limit", after_id, limit)
        values = {"ns": namespace.id, "epoch": namespace.epoch, "after": after_id, "most": limit}
        return stored_kernels(self._db.fetch(PAGE, values), lost_too=True)

    def page_mappings(
        self, namespace: Namespace, after: tuple[bytes, str] | None, limit: int
    ) -> tuple[MappingRecord, ...]:
        checks.number("limit", limit)
        digest, numerics = after or (b"", "")
        here = {"ns": namespace.id, "epoch": namespace.epoch, "most": limit}
        rows = self._db.fetch(_PAGE_MAPPINGS, {**here, "from_digest": digest, "from_numerics": numerics})
        return tuple(map(mapping_record, rows))


def _still_idle(
    connection: Connection, namespace: Namespace, step: Step, subject: str, rows: Sequence[Row]
) -> list[Row]:
    """Those that nobody has used since they were chosen: their locks are younger than that."""
    if not rows:
        return []
    name = {"ns": namespace.id, "subject": subject, "before": step.before}
    digests = [row.p2 for row in rows]
    idle = {row.digest for row in connection.execute(_STILL_IDLE, {**name, "digests": digests})}
    return [row for row in rows if row.p2 in idle]


def _cut(step: Step, rows: Sequence[Row]) -> tuple[Sequence[Row], Cursor | None, Cursor | None]:
    """The rows of this step; the cursors at which the next step starts, None at the end, and this one ends.

    Rows with equal cursors stay together.
    """
    if not rows:
        return rows, None, step.after
    end = min(step.limit, len(rows))
    last = candidates.cursor(step.kind, rows[end - 1])
    while end < len(rows) and candidates.cursor(step.kind, rows[end]) == last:
        end += 1
    more = end < len(rows) or len(rows) >= step.limit + (_TIES if step.kind in _MAPPINGS else 0)
    # Behind the last kernel of one toolchain come those of the next.
    more = more or step.kind is RowKind.DISOWNED_KERNELS
    return rows[:end], last if more else None, last

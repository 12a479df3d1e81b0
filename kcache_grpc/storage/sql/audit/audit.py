"""The audit log on SQL: finding events, sealing, pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, LargeBinary, bindparam, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.audit.contract import BEFORE_ALL, AuditStore, EventPage
from kcache_grpc.storage.audit.filter import Filter
from kcache_grpc.storage.audit.sealing import Checkpoint, Seal, Writer, pack_ids, unpack_ids
from kcache_grpc.storage.errors import Conflict
from kcache_grpc.storage.records import AuditRecord, Namespace
from kcache_grpc.storage.schema import (
    audit_checkpoints,
    audit_events,
    audit_misses,
    audit_seals,
    audit_writers,
)
from kcache_grpc.storage.sql.audit.searches import Search
from kcache_grpc.storage.sql.audit.summaries import differences, rebuild
from kcache_grpc.storage.sql.engine.bulk import batches, insert_once
from kcache_grpc.storage.sql.engine.database import Removal, Row, SqlPart
from kcache_grpc.storage.sql.engine.journal import record_of, select_events

_BY_ID = select_events().where(audit_events.c.id.in_(bindparam("ids", expanding=True)))
_LAST_ID = select(func.max(audit_events.c.id).label("id"))
_OF_WRITER = (
    select(audit_events.c.id)
    .where(audit_events.c.writer == bindparam("of"), audit_events.c.id > bindparam("after"))
    .order_by(audit_events.c.id)
    .limit(bindparam("most"))
)
_REGISTERED = select(audit_writers)
_REGISTER = insert_once(audit_writers)
_SEAL = select(audit_seals).where(audit_seals.c.writer == bindparam("of"))
_LAST_SEAL = _SEAL.order_by(audit_seals.c.sequence.desc()).limit(1)
_SEALS = (
    _SEAL.where(audit_seals.c.sequence > bindparam("after"))
    .order_by(audit_seals.c.sequence)
    .limit(bindparam("most"))
)
#: Seals whose first and last id are around one: with events that committed late they may be several.
_AROUND = (
    _SEAL.where(
        func.substr(audit_seals.c.event_ids, 1, 8) <= bindparam("packed", type_=LargeBinary),
        func.substr(audit_seals.c.event_ids, func.length(audit_seals.c.event_ids) - 7, 8)
        >= bindparam("packed", type_=LargeBinary),
    )
    .order_by(audit_seals.c.sequence)
    .limit(100)
)
_INSERT_SEAL = insert_once(audit_seals).returning(audit_seals.c.id)
_CHECKPOINTS = (
    select(audit_checkpoints)
    .where(audit_checkpoints.c.writer == bindparam("of"))
    .order_by(audit_checkpoints.c.sequence)
)
_LAST_CHECKPOINT = (
    select(audit_checkpoints)
    .where(audit_checkpoints.c.writer == bindparam("of"))
    .order_by(audit_checkpoints.c.sequence.desc())
    .limit(1)
)
_INSERT_CHECKPOINT = insert_once(audit_checkpoints).returning(audit_checkpoints.c.id)
_SEALS_BELOW = select(audit_seals.c.id).where(
    audit_seals.c.writer == bindparam("of"), audit_seals.c.sequence <= bindparam("sequence")
)
#: Those that nobody has met since.
_FORGET_MISSES = audit_misses.delete().where(audit_misses.c.last_at <= bindparam("last"))


class SqlAudit(SqlPart, AuditStore):
    """``AuditStore`` on SQL."""

    @property
    def audit_writer(self) -> str:
        return self._writer

    def begin_sealing(self, public_key: bytes, host: str) -> None:
        checks.text("host", host)
        row = {
            "writer": self._writer,
            "public_key": public_key,
            "host": host,
            "started_at": self._clock.wall(),
        }
        known = {writer.writer for writer in self.list_writers() if writer.public_key}
        if self._writer not in known:
            self._db.transact(lambda connection: connection.execute(_REGISTER, row).rowcount)
        self._db.journal.keep()

    def unsealed(self, most: int) -> Sequence[tuple[int, bytes]]:
        return self._db.journal.first(most)

    def sealed_by_others(self, ids: Sequence[int]) -> None:
        self._db.journal.forget(ids)

    def put_seal(self, seal: Seal, marks: bytes) -> bool:
        """Insert a seal if it is the next of its chain; return whether it was inserted."""
        row = {
            "writer": seal.writer,
            "sequence": seal.sequence,
            "previous_root": seal.previous_root,
            "root": seal.root,
            "event_ids": pack_ids(seal.event_ids),
            "leaf_marks": marks,
            "signature": seal.signature,
            "created_at": seal.created_at,
        }
        chain = {"of": seal.writer}

        def work(connection: Connection) -> bool:
            last = connection.execute(_LAST_SEAL, chain).first()
            below = connection.execute(_LAST_CHECKPOINT, chain).first()
            latest = max((record.sequence for record in (last, below) if record is not None), default=0)
            if seal.sequence != latest + 1:
                return False
            return connection.execute(_INSERT_SEAL, row).scalar() is not None

        stored = self._db.transact(work)
        if stored:
            self._db.journal.forget(seal.event_ids)
        return stored

    def find_events(
        self,
        namespace: Namespace,
        condition: Filter,
        *,
        cursor: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> EventPage:
        checks.number("limit or cursor", limit, cursor or 0)
        return Search(self._db, namespace, condition, newest_first).page(cursor, limit)

    def read_events(self, ids: Sequence[int]) -> Mapping[int, AuditRecord]:
        checks.number("id", *ids)
        records: dict[int, AuditRecord] = {}
        for batch in batches(ids):
            records.update((row.id, record_of(row)) for row in self._db.fetch(_BY_ID, {"ids": batch}))
        return records

    def last_event_id(self) -> int:
        rows = self._db.fetch(_LAST_ID)
        return rows[0].id or 0

    def list_event_ids(self, writer: str, after_id: int, limit: int) -> Sequence[int]:
        checks.text("writer", writer)
        checks.number("id", after_id, least=BEFORE_ALL)
        checks.number("limit", limit)
        rows = self._db.fetch(_OF_WRITER, {"of": writer, "after": after_id, "most": limit})
        return [row.id for row in rows]

    def list_writers(self) -> Sequence[Writer]:
        known = {row.writer: row for row in self._db.fetch(_REGISTERED)}
        names = set(known)
        for column in (audit_events.c.writer, audit_seals.c.writer, audit_checkpoints.c.writer):
            names.update(row.writer for row in self._db.fetch(_distinct(column)))
        return [_writer(name, known.get(name)) for name in sorted(names)]

    def last_seal(self, writer: str) -> Seal | None:
        checks.text("writer", writer)
        rows = self._db.fetch(_LAST_SEAL, {"of": writer})
        return _seal(rows[0]) if rows else None

    def list_seals(self, writer: str, after: int = 0, limit: int = 10) -> Sequence[tuple[Seal, bytes]]:
        checks.text("writer", writer)
        checks.number("limit or sequence", after, limit)
        rows = self._db.fetch(_SEALS, {"of": writer, "after": after, "most": limit})
        return [(_seal(row), row.leaf_marks) for row in rows]

    def find_seal(self, writer: str, event_id: int) -> Seal | None:
        checks.text("writer", writer)
        checks.number("id", event_id)
        rows = self._db.fetch(_AROUND, {"of": writer, "packed": pack_ids([event_id])})
        return next((seal for seal in map(_seal, rows) if event_id in seal.event_ids), None)

    def list_checkpoints(self, writer: str) -> Sequence[Checkpoint]:
        checks.text("writer", writer)
        return [_checkpoint(row) for row in self._db.fetch(_CHECKPOINTS, {"of": writer})]

    def wrong_summaries(self) -> Sequence[str]:
        return differences(self._db)

    def rebuild_summaries(self) -> None:
        rebuild(self._db)

    def prune(self, checkpoint: Checkpoint, event_ids: Sequence[int]) -> int:
        """Record a checkpoint; remove the seals up to it, and these events, in one transaction.

        Returns the number of removed events. Raises ``Conflict`` if the chain has a checkpoint at this seal
        or a later one.
        """
        row = {name: getattr(checkpoint, name) for name in _CHECKPOINT_FIELDS}
        below = {"of": checkpoint.writer, "sequence": checkpoint.sequence}
        removal = Removal(0, 0, self._writer, self._clock.wall(), f"audit prune {checkpoint.writer}")

        def work(connection: Connection) -> int:
            below_it = connection.execute(_LAST_CHECKPOINT, {"of": checkpoint.writer}).first()
            exists = below_it is not None and below_it.sequence >= checkpoint.sequence
            if exists or connection.execute(_INSERT_CHECKPOINT, row).scalar() is None:
                raise Conflict(
                    f"the chain of {checkpoint.writer} has a checkpoint at seal {checkpoint.sequence} already"
                )
            seals = [seal.id for seal in connection.execute(_SEALS_BELOW, below)]
            removed = self._db.collect(connection, "audit_events", "id", event_ids, removal)
            self._db.collect(connection, "audit_seals", "id", seals, removal)
            connection.execute(_FORGET_MISSES, {"last": checkpoint.last_at})
            return removed

        return self._db.transact(work)


_CHECKPOINT_FIELDS = (
    "writer",
    "sequence",
    "root",
    "events",
    "first_at",
    "last_at",
    "signature",
    "created_at",
)


def _distinct(column: Column[Any]) -> Any:
    """Each value once, jumping from one to the next by the column's index."""
    table = column.table
    least: ColumnElement[Any] = select(func.min(column)).select_from(table).scalar_subquery()
    names = select(least.label("writer")).cte("names", recursive=True)
    beyond = select(func.min(column)).select_from(table).where(column > names.c.writer).scalar_subquery()
    names = names.union_all(select(beyond).where(names.c.writer.is_not(None)))
    return select(names.c.writer).where(names.c.writer.is_not(None))


def _writer(name: str, row: Row | None) -> Writer:
    return Writer(name, b"", "", 0) if row is None else Writer(name, row.public_key, row.host, row.started_at)


def _seal(row: Row) -> Seal:
    return Seal(
        row.writer,
        row.sequence,
        row.previous_root,
        row.root,
        unpack_ids(row.event_ids),
        row.created_at,
        row.signature,
    )


def _checkpoint(row: Row) -> Checkpoint:
    return Checkpoint(
        row.writer,
        row.sequence,
        row.root,
        row.events,
        row.first_at,
        row.last_at,
        row.created_at,
        row.signature,
    )

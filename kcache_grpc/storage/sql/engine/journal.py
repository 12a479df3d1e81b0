"""Appending audit events on SQL, and remembering them until they are sealed."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from kcache_grpc.storage.audit.sealing import event_leaf
from kcache_grpc.storage.records import AuditEvent, AuditRecord, Namespace
from kcache_grpc.storage.schema import audit_events
from kcache_grpc.storage.sql.engine.bulk import BulkInsert

#: Columns of an event, as ``AuditEvent`` names them.
EVENT_FIELDS = tuple(each.name for each in fields(AuditEvent))
#: Where a connection has the list of what its transaction appends.
_APPENDED = "kcache.appended"
_INSERT = insert(audit_events)
_LAST_ID = select(func.max(audit_events.c.id))
_COLUMNS = ("namespace_id", "epoch", "writer", *EVENT_FIELDS)
_INSERT_ALL = BulkInsert(audit_events, _COLUMNS)
#: Numbers rise in the order of the rows.
_INSERT_NUMBERED = BulkInsert(audit_events, _COLUMNS, lambda rows: rows.returning(audit_events.c.id))


def select_events() -> Select[Any]:
    """Stored events, for ``record_of``."""
    return select(
        audit_events.c.id,
        audit_events.c.namespace_id,
        audit_events.c.epoch,
        audit_events.c.writer,
        *(audit_events.c[name] for name in EVENT_FIELDS),
    )


def record_of(row: Any) -> AuditRecord:
    """An event from a row of ``select_events``."""
    return AuditRecord(row[0], AuditEvent(*row[4:]), row[1], row[2], row[3])


class Journal:
    """What this process appended and no seal lists yet: a leaf hash by id. Thread-safe.

    The hash is of what was appended, not of what is read back: a row that is changed before it is sealed
    does not match its seal. Nothing is remembered before ``keep``, nor in the child of a fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._waiting: dict[int, bytes] = {}

    def keep(self) -> None:
        """Remember from here on."""
        self._process = os.getpid()

    @contextmanager
    def listening(self, connection: Connection) -> Generator[list[AuditRecord]]:
        """The events that a transaction appends. Tell ``committed`` of them once it is."""
        appended: list[AuditRecord] = []
        if self._process != os.getpid():
            yield appended
            return
        # Taken hold of once: a connection that was lost meanwhile does not give it any more.
        info = connection.info
        info[_APPENDED] = appended
        try:
            yield appended
        finally:
            info.pop(_APPENDED, None)

    def committed(self, appended: Sequence[AuditRecord]) -> None:
        """Their transaction has ended well."""
        if not appended:
            return
        leaves = {record.id: event_leaf(record) for record in appended}
        with self._lock:
            self._waiting.update(leaves)

    def first(self, most: int) -> list[tuple[int, bytes]]:
        """Those with the smallest ids, rising."""
        with self._lock:
            return sorted(self._waiting.items())[:most]

    def forget(self, ids: Sequence[int]) -> None:
        """They are sealed."""
        with self._lock:
            for number in ids:
                self._waiting.pop(number, None)


def insert_events(
    connection: Connection, namespace: Namespace, batch: Sequence[AuditEvent], writer: str, now: int
) -> None:
    """Append events in the caller's transaction."""
    here: dict[str, Any] = {"namespace_id": namespace.id, "epoch": namespace.epoch, "writer": writer}
    insert_rows(
        connection,
        [
            {**here, **{name: getattr(event, name) for name in EVENT_FIELDS}, "at": event.at or now}
            for event in batch
        ],
    )


def insert_rows(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Append rows of ``audit_events`` in the caller's transaction. What they leave out has its default."""
    appended: list[AuditRecord] | None = connection.info.get(_APPENDED)
    if appended is None:
        _INSERT_ALL.execute(connection, rows)
        return
    for row, number in zip(rows, _insert_numbered(connection, rows), strict=True):
        event = AuditEvent(**{name: row[name] for name in EVENT_FIELDS if name in row})
        appended.append(AuditRecord(number, event, row["namespace_id"], row["epoch"], row["writer"]))


def _insert_numbered(connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
    """The ids that the rows got, in their order."""
    if connection.dialect.name != "sqlite":
        return sorted(_INSERT_NUMBERED.execute(connection, rows).scalars())
    # SQLite has one writer at a time, and numbers without gaps: several times faster than RETURNING.
    connection.execute(_INSERT, rows)
    last = connection.execute(_LAST_ID).scalar_one()
    return range(last - len(rows) + 1, last + 1)


def note(connection: Connection, record: AuditRecord) -> None:
    """The database itself appended an event in the caller's transaction."""
    appended: list[AuditRecord] | None = connection.info.get(_APPENDED)
    if appended is not None:
        appended.append(record)

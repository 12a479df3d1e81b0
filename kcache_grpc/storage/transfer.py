"""Moving a store into another database: row by row, resumable, compared at the end.

The other database becomes the store: its rows, its keys, its id. Where it stopped stands in ``transfers``, in
the transaction that wrote the rows, so that a move that was interrupted goes on when it is called again. No
server opens the target before all rows are compared.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, bindparam, func, insert, select, text, tuple_, update

from kcache_grpc.storage.errors import Conflict, CorruptStore, InvalidValue
from kcache_grpc.storage.opening import migrate, open_database, planned_migration
from kcache_grpc.storage.schema import (
    METADATA,
    artifact_chunks,
    audit_days,
    audit_misses,
    audit_writers,
    gc_permits,
    leases,
    namespaces,
    store_meta,
    transfers,
)
from kcache_grpc.storage.sql.engine.bulk import insert_once
from kcache_grpc.storage.sql.engine.database import Database

#: Rows of one transaction; of chunks, which are up to a MiB each, fewer.
_ROWS, _CHUNKS = 1000, 16

#: What stays behind: rights to compile end with their servers, permits with their transactions.
_LEFT_BEHIND = {leases.name, gc_permits.name, transfers.name, store_meta.name}

#: Go last: the target's triggers made rows of the events that came, the source's are true of pruned ones too.
_SUMMARIES = (audit_days, audit_misses)

_ID = select(store_meta.c.value).where(store_meta.c.name == "store_id")
_SET_ID = update(store_meta).where(store_meta.c.name == "store_id").values(value=bindparam("id"))
_META = select(store_meta.c.name, store_meta.c.value).order_by(store_meta.c.name)
_INSERT_META = insert_once(store_meta)
#: What a server leaves in a store as soon as it starts, and its first request.
_TRACES = (
    select(store_meta.c.name).where(store_meta.c.name != "store_id").limit(1),
    select(audit_writers.c.writer).limit(1),
    select(namespaces.c.id).limit(1),
)
_POSITIONS = select(transfers)
_BEGIN = insert_once(transfers)
_ADVANCE = (
    update(transfers)
    .where(transfers.c.source_id == bindparam("source"), transfers.c.table_name == bindparam("table"))
    .values(
        position=bindparam("at"),
        row_count=transfers.c.row_count + bindparam("rows"),
        updated_at=bindparam("now"),
    )
)
_FINISH = update(transfers).values(finished_at=bindparam("now"))

#: Called with the table and the rows that are done there.
Tell = Callable[[str, int], None]


@dataclass(frozen=True)
class Moved:
    """What a move came to: rows by table, in the order in which they went; each was compared."""

    rows: Mapping[str, int]


def move_store(source_url: str, target_url: str, tell: Tell = lambda table, rows: None) -> Moved:
    """Copy everything of the store at ``source_url`` into the database at ``target_url``, and compare.

    No server may run on either. The target gets its schema if it has none, and must be empty, or hold what an
    interrupted move of the same store left. The source stays as it is. Raises ``Conflict`` for a target that
    holds something else, ``CorruptStore`` when the comparison fails, and what opening stores raises.
    """
    if source_url == target_url:
        raise InvalidValue("source and target of a move are the same store")
    source = open_database(source_url)
    try:
        migrate(target_url)
        target = open_database(target_url)
        try:
            return _move(source, target, tell)
        finally:
            target.close()
    finally:
        source.close()


def planned_move(source_url: str, target_url: str) -> Moved:
    """The rows that ``move_store`` would copy or has copied, by table; changes nothing.

    Raises as ``move_store`` does, but for what comes of copying.
    """
    if source_url == target_url:
        raise InvalidValue("source and target of a move are the same store")
    source = open_database(source_url)
    try:
        if not planned_migration(target_url).revisions:
            target = open_database(target_url)
            try:
                _reject_other_rows(target, source.fetch(_ID)[0].value)
            finally:
                target.close()
        counts = {
            table.name: int(source.fetch(select(func.count().label("rows")).select_from(table))[0].rows)
            for table in _moving()
        }
        return Moved(counts)
    finally:
        source.close()


def _moving() -> list[Table]:
    """The tables that move, in their order."""
    tables = [table for table in METADATA.sorted_tables if table.name not in _LEFT_BEHIND]
    tables.sort(key=lambda table: table in _SUMMARIES)
    return tables


def _move(source: Database, target: Database, tell: Tell) -> Moved:
    source_id: str = source.fetch(_ID)[0].value
    tables = _moving()
    done = _finished(target, source_id)
    if done:
        # Servers may write to either by now: nothing is copied any more.
        for table in tables:
            if _digest(source, table) != _digest(target, table):
                raise Conflict(
                    f"this store has been moved into the target already, and table {table.name} of one of "
                    "them was written to since: use the target, or move into an empty database"
                )
        return Moved(done)
    _begin(source, target, source_id, tables)
    rows: dict[str, int] = {}
    for table in tables:
        rows[table.name] = _copy(source, target, source_id, table, tell)
        target.transact(lambda connection, table=table: _continue_numbers(connection, table))
    for table in tables:
        _compare(source, target, table)
    now = time.time_ns() // 1000
    target.transact(lambda connection: connection.execute(_FINISH, {"now": now}).rowcount)
    return Moved(rows)


def _finished(target: Database, source_id: str) -> dict[str, int]:
    """The rows by table of a move of this store that was finished; nothing if there was none."""
    places = target.fetch(_POSITIONS)
    if not all(place.source_id == source_id and place.finished_at for place in places):
        return {}
    return {place.table_name: place.row_count for place in places}


def _reject_other_rows(target: Database, source_id: str) -> bool:
    """Raises ``Conflict`` for a target that is another store. Whether a move of this one began."""
    begun = {row.source_id for row in target.fetch(_POSITIONS)}
    if begun - {source_id} or (not begun and any(target.fetch(trace) for trace in _TRACES)):
        raise Conflict("the target is another store, with its own rows: move into an empty database")
    return bool(begun)


def _begin(source: Database, target: Database, source_id: str, tables: Sequence[Table]) -> None:
    if _reject_other_rows(target, source_id):
        return
    meta = [{"name": row.name, "value": row.value} for row in source.fetch(_META)]
    now = time.time_ns() // 1000

    def work(connection: Connection) -> None:
        # The target is the same store from here on: object stores know it by its id.
        connection.execute(_SET_ID, {"id": source_id})
        connection.execute(_INSERT_META, meta)
        places = [
            {"source_id": source_id, "table_name": t.name, "position": "", "row_count": 0, "updated_at": now}
            for t in tables
        ]
        connection.execute(_BEGIN, places)

    target.transact(work)


def _copy(source: Database, target: Database, source_id: str, table: Table, tell: Tell) -> int:
    places = {row.table_name: row for row in target.fetch(_POSITIONS)}
    position, done = places[table.name].position, int(places[table.name].row_count)
    after = _read_position(position)
    if table in _SUMMARIES and not done:
        target.transact(lambda connection: connection.execute(table.delete()).rowcount)
    for batch in _batches(source, table, after):
        last = _position(table, batch[-1])
        values = {"source": source_id, "table": table.name, "at": last, "rows": len(batch)}
        place = {**values, "now": time.time_ns() // 1000}

        def work(connection: Connection, batch: Sequence[Any] = batch, place: Any = place) -> None:
            connection.execute(insert(table), [row._asdict() for row in batch])
            connection.execute(_ADVANCE, place)

        target.transact(work)
        done += len(batch)
        tell(table.name, done)
    return done


def _batches(database: Database, table: Table, after: Sequence[Any] | None) -> Iterator[Sequence[Any]]:
    """All rows behind ``after`` in the order of the primary key."""
    names = list(table.primary_key.columns)
    size = _CHUNKS if table is artifact_chunks else _ROWS
    ordered = select(table).order_by(*names).limit(size)
    marks: list[ColumnElement[Any]] = [
        bindparam(f"after_{column.name}", type_=column.type) for column in names
    ]
    following = ordered.where(tuple_(*names) > tuple_(*marks))
    while True:
        if after is None:
            rows = database.fetch(ordered)
        else:
            rows = database.fetch(
                following, {f"after_{c.name}": value for c, value in zip(names, after, strict=True)}
            )
        if not rows:
            return
        yield rows
        after = [getattr(rows[-1], column.name) for column in names]


def _position(table: Table, row: Any) -> str:
    """The primary key as text; bytes in hex."""
    values = [getattr(row, column.name) for column in table.primary_key.columns]
    return json.dumps([{"hex": value.hex()} if isinstance(value, bytes) else value for value in values])


def _read_position(position: str) -> Sequence[Any] | None:
    if not position:
        return None
    values: list[int | str | dict[str, str]] = json.loads(position)
    return [bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in values]


def _continue_numbers(connection: Connection, table: Table) -> None:
    """New rows are numbered behind those that came. SQLite sees to that itself."""
    if connection.dialect.name == "postgresql" and "id" in table.columns:
        sequence = f"{table.name}_id_seq"
        largest = connection.execute(select(func.max(table.c.id))).scalar()
        if largest is not None:
            connection.execute(text("SELECT setval(:name, :largest)"), {"name": sequence, "largest": largest})


def _compare(source: Database, target: Database, table: Table) -> None:
    """Raises ``CorruptStore`` unless both tables hold the same rows."""
    if _digest(source, table) != _digest(target, table):
        raise CorruptStore(
            f"table {table.name} is not the same in both stores: did a server write meanwhile? "
            "Stop all servers, empty the target, and move again"
        )


def _digest(database: Database, table: Table) -> bytes:
    """Of all rows, in whatever order: databases sort texts in their own ways."""
    total, count = 0, 0
    for batch in _batches(database, table, None):
        for row in batch:
            hashed = hashlib.sha256(repr(tuple(row)).encode()).digest()
            total = (total + int.from_bytes(hashed, "big")) % (1 << 256)
            count += 1
    return total.to_bytes(32, "big") + count.to_bytes(8, "big")

"""Inserts that may conflict, and many names or rows in one statement, the way each database does it best.

On Postgres all names are one array and all rows one text: a list of parameters costs it and its driver more
than the rows do, and without statistics it would read a whole namespace to find a few names of it.

SQLite has PostgreSQL's form of ``INSERT ... ON CONFLICT``, so one statement compiles for both: a database
with another form needs its own ``insert`` here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    bindparam,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import Insert as Insert
from sqlalchemy.dialects.postgresql import insert as insert

if TYPE_CHECKING:
    from kcache_grpc.storage.sql.engine.database import Database, Rows

T = TypeVar("T")

#: Most names in one IN list: below every database's limit on parameters.
BATCH = 500


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """``values`` in slices of at most ``BATCH``."""
    for start in range(0, len(values), BATCH):
        yield values[start : start + BATCH]


class Probe:
    """A ``Select`` for each of many values of ``column``, each an index lookup.

    Postgres, whose store servers share, gets an array in one statement; SQLite lists of ``BATCH`` values.
    """

    def __init__(self, statement: Any, column: Column[Any]) -> None:
        self._listed = statement.where(column.in_(bindparam("names", expanding=True)))
        names = bindparam("names", type_=ARRAY(column.type))
        keys = func.unnest(names).table_valued("name", name="given").render_derived()
        # What has an OFFSET is planned separately, for one name, however the tables look.
        each = statement.where(column == keys.c.name).offset(literal_column("0")).lateral("found")
        self._probed = select(*each.c).select_from(keys.join(each, true()))

    def rows(self, connection: Connection, values: Mapping[str, Any], names: Sequence[Any]) -> Sequence[Any]:
        """In no order. ``names`` are all different."""
        if connection.dialect.name == "postgresql":
            return connection.execute(self._probed, {**values, "names": list(names)}).all()
        result: list[Any] = []
        for batch in batches(names):
            result += connection.execute(self._listed, {**values, "names": batch})
        return result

    def fetch(self, database: Database, values: Mapping[str, Any], names: Iterable[Any]) -> Rows:
        """The same outside of a transaction. ``names`` may be equal."""
        distinct = list(dict.fromkeys(names))
        if database.shared:
            return database.fetch(self._probed, {**values, "names": distinct}) if distinct else ()
        result: list[Any] = []
        for batch in batches(distinct):
            result += database.fetch(self._listed, {**values, "names": batch})
        return result


class BulkInsert:
    """Rows of ``table`` in their order. ``clauses`` adds what follows the rows: ON CONFLICT, RETURNING."""

    def __init__(
        self,
        table: Table,
        columns: Sequence[str],
        clauses: Callable[[Insert], Any] = lambda statement: statement,
    ) -> None:
        self._columns = columns
        self._each = clauses(insert(table))
        rows = select(*cells("given", columns)).select_from(rows_of_json(table, "given"))
        ordered = rows.order_by(text("given.ordinality"))
        self._together = clauses(insert(table).from_select(list(columns), ordered, include_defaults=False))

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The result. Every row, of at least one, has all the columns and no other."""
        if connection.dialect.name != "postgresql" or len(rows) == 1:
            return connection.execute(self._each, rows)
        return connection.execute(self._together, {"rows": as_json(rows)})


def rows_of_json(table: Table, name: str) -> Any:
    """On Postgres: rows of ``table`` from the JSON in the parameter ``rows``, with their ``ordinality``."""
    return text(f"json_populate_recordset(NULL::{table.name}, CAST(:rows AS json)) WITH ORDINALITY AS {name}")


def cells(name: str, columns: Sequence[str]) -> list[ColumnElement[Any]]:
    """Columns of ``rows_of_json``."""
    return [literal_column(f"{name}.{column}") for column in columns]


def as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """What ``rows_of_json`` reads."""
    return json.dumps(rows, default=_hexadecimal)


def _hexadecimal(value: bytes) -> str:
    """As Postgres reads bytes."""
    return f"\\x{value.hex()}"


def up_to_size(rows: Iterable[Any], amount: int | None) -> list[Any]:
    """The first rows whose ``size`` sums up to ``amount``; all rows if it is ``None``."""
    chosen: list[Any] = []
    total = 0
    for row in rows:
        if amount is not None and total >= amount:
            break
        chosen.append(row)
        total += row.size
    return chosen


def insert_once(table: Table) -> Insert:
    """Insert unless a row of that name is there."""
    return insert(table).on_conflict_do_nothing()

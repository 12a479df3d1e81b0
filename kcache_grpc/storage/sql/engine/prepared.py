"""Statements of the hot path: compiled once, run on the driver's own cursor.

SQLAlchemy takes 20 (SQLite) to 130 (Postgres) microseconds of CPU to run a statement that takes the driver 8
to 30. These statements use the driver directly; SQLAlchemy executes all others.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Compiled, Dialect, Executable

from kcache_grpc.storage.sql.engine.database import Row


class Prepared:
    """A statement that returns rows. Rows have its columns as attributes, in types of the driver: none may be
    one that SQLAlchemy converts. An INSERT or UPDATE ends with RETURNING and its columns.

    Lists of parameters (``expanding``) are excluded: the text of such a statement differs each time.
    """

    def __init__(self, select: Any) -> None:
        self._select = select
        names: list[str] = [column.name for column in select.exported_columns]
        self._row: Any = namedtuple("_row", names)  # pyright: ignore[reportUntypedNamedTuple]
        self._compiled: dict[str, tuple[str, dict[str, Any]]] = {}

    @property
    def select(self) -> Executable:
        """For execution by SQLAlchemy."""
        return self._select

    def sql(self, dialect: Dialect, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Text and parameters for a dialect with named parameters."""
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            statement: Compiled = self._select.compile(dialect=dialect)
            compiled = self._compiled[dialect.name] = (str(statement), dict(statement.params or {}))
        text, constants = compiled
        return text, {**constants, **values}

    def numbered(self, dialect: Dialect) -> tuple[str, Sequence[str], Mapping[str, Any]]:
        """Text for a dialect with numbered parameters, their names, and the values of those that have one."""
        statement: Any = self._select.compile(dialect=dialect)
        return str(statement), statement.positiontup, statement.params

    def rows(self, fetched: Iterable[Sequence[Any]]) -> list[Row]:
        """What the driver fetched."""
        return [self._row(*row) for row in fetched]

"""Triggers that keep rows as they were written, by dialect.

Batch mode drops a table's triggers on SQLite: a migration that rebuilds a table makes them again, and the
runner refuses a migration after which one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Names = Sequence[Sequence[str]]


def guard_statements(dialect: str, table: str, names: Names, permanent: bool) -> Iterator[str]:
    """Statements that make rows of ``table`` immutable.

    ``names`` are the sets of columns that name a row. An insert under a taken name is refused, which leaves
    REPLACE nothing to replace even where the connection's triggers do not recurse. Rows of a ``permanent``
    table are never deleted, others only while a row in ``gc_permits`` allows it.
    """
    if dialect != "sqlite":
        raise NotImplementedError(f"no triggers are known for {dialect}")
    permit = "" if permanent else " WHEN NOT EXISTS (SELECT 1 FROM gc_permits)"
    yield from (
        f"CREATE TRIGGER {table}_refuse_update BEFORE UPDATE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'kcache: rows of {table} are never changed'); END",
        f"CREATE TRIGGER {table}_refuse_delete BEFORE DELETE ON {table}{permit} "
        f"BEGIN SELECT RAISE(ABORT, 'kcache: rows of {table} are never deleted'); END",
        f"CREATE TRIGGER {table}_refuse_insert BEFORE INSERT ON {table} WHEN {_taken(table, names)} "
        f"BEGIN SELECT RAISE(ABORT, 'kcache: rows of {table} are never replaced'); END",
    )


def _taken(table: str, names: Names) -> str:
    """True when a row with a name of the new row is there. The rowid, which every table has, is one."""
    tests = [["rowid"], *(list(columns) for columns in names if list(columns) != ["id"])]
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE "  # noqa: S608 (names of our own tables)
        + " AND ".join(f"{column} = NEW.{column}" for column in columns)
        + ")"
        for columns in tests
    )

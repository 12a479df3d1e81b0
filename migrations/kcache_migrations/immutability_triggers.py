"""Triggers that keep rows as they were written, by dialect.

Batch mode drops a table's triggers on SQLite: a migration that rebuilds a table makes them again, and the
runner refuses a migration after which one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Names = Sequence[Sequence[str]]

#: The only role of Postgres that may delete; it owns the function that does (``collector.py``).
COLLECTOR = "kcache_collector"

#: What the triggers of Postgres call. Their argument is ``permanent`` or ``collectable``.
REFUSE_FUNCTION = f"""
CREATE FUNCTION kcache_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND TG_ARGV[0] = 'collectable' AND current_user = '{COLLECTOR}' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'kcache: rows of % are never %', TG_TABLE_NAME,
        CASE TG_OP WHEN 'UPDATE' THEN 'changed' ELSE 'deleted' END
        USING ERRCODE = 'integrity_constraint_violation';
END $$
"""


def immutability_triggers(dialect: str, table: str, names: Names, permanent: bool) -> Iterator[str]:
    """Statements that make rows of ``table`` immutable.

    ``names`` are the sets of columns that name a row. On SQLite an insert under a taken name is refused,
    which leaves REPLACE nothing to replace even where the connection's triggers do not recurse. Rows of a
    ``permanent`` table are never deleted; others on SQLite only while a row in ``gc_permits`` allows it, on
    Postgres only by ``COLLECTOR``.
    """
    if dialect == "postgresql":
        yield from _postgres(table, permanent)
        return
    permit = "" if permanent else " WHEN NOT EXISTS (SELECT 1 FROM gc_permits)"
    yield from (
        f"CREATE TRIGGER {table}_refuse_update BEFORE UPDATE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'kcache: rows of {table} are never changed'); END",
        f"CREATE TRIGGER {table}_refuse_delete BEFORE DELETE ON {table}{permit} "
        f"BEGIN SELECT RAISE(ABORT, 'kcache: rows of {table} are never deleted'); END",
        f"CREATE TRIGGER {table}_refuse_insert BEFORE INSERT ON {table} WHEN {_taken(table, names)} "
        f"BEGIN SELECT RAISE(ABORT, 'kcache: rows of {table} are never replaced'); END",
    )


def _postgres(table: str, permanent: bool) -> Iterator[str]:
    """Triggers that fire on replicas and under ``session_replication_role`` too."""
    call = f"EXECUTE FUNCTION kcache_refuse('{'permanent' if permanent else 'collectable'}')"
    for verb, each in (("update", "ROW"), ("delete", "ROW"), ("truncate", "STATEMENT")):
        name = f"{table}_refuse_{verb}"
        yield f"CREATE TRIGGER {name} BEFORE {verb.upper()} ON {table} FOR EACH {each} {call}"
        yield f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"


def _taken(table: str, names: Names) -> str:
    """True when a row with a name of the new row is there. The rowid, which every table has, is one."""
    tests = [["rowid"], *(list(columns) for columns in names if list(columns) != ["id"])]
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE "  # noqa: S608 (names of our own tables)
        + " AND ".join(f"{column} = NEW.{column}" for column in columns)
        + ")"
        for columns in tests
    )

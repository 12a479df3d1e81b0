"""Reads what a Postgres database has: tables of kcache or others, their revision, their triggers."""

from __future__ import annotations

from sqlalchemy import Connection

from kcache_grpc.storage.errors import CorruptStore, ForeignDatabase, UnsupportedStore
from kcache_grpc.storage.schema import triggers

#: ENABLE ALWAYS, generated identity and MERGE apart, what we use is older; older servers are not tested.
_OLDEST_SERVER = 13

_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
#: ``tgenabled`` A: fires always, on replicas and under session_replication_role too.
_TRIGGERS = """
SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal AND t.tgenabled = 'A'
"""


def refuse_unfit(connection: Connection) -> None:
    """Raises ``UnsupportedStore`` for a server or database whose texts or statements are not what we need."""
    major = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
    if major < _OLDEST_SERVER:
        raise UnsupportedStore(f"this is PostgreSQL {major}: kcache needs {_OLDEST_SERVER} or later")
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise UnsupportedStore(
            f"the database keeps text as {encoding}: make one with UTF8 (createdb -E UTF8 -T template0 NAME)"
        )
    if connection.exec_driver_sql("SELECT current_schema()").scalar_one() is None:
        raise UnsupportedStore("no schema of the search_path exists: make one, or set search_path in the URL")


def revision_of(connection: Connection, url: str) -> str:
    """The schema revision, empty for a database without tables.

    Raises ``ForeignDatabase`` for tables of another application.
    """
    tables = set(connection.exec_driver_sql(_TABLES).scalars())
    if not tables:
        return ""
    if not {"store_meta", "alembic_version", "key_counters"} <= tables:
        some = ", ".join(sorted(tables)[:3])
        raise ForeignDatabase(f"{url} is a database of another application: it has tables ({some}) not ours")
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return "" if revision is None else str(revision)


def refuse_missing_triggers(connection: Connection) -> None:
    """Raises ``CorruptStore`` when a trigger that keeps rows immutable is gone or disabled."""
    existing = {(name, table) for name, table in connection.exec_driver_sql(_TRIGGERS)}
    missing = sorted(name for name, _ in triggers("postgresql") - existing)
    if missing:
        raise CorruptStore(f"the store has lost the triggers that protect its rows: {', '.join(missing)}")

"""Stores by URL."""

from __future__ import annotations

import importlib
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import CorruptStore, InvalidValue, UnsupportedStore
from kcache_grpc.storage.objects import INLINE_BYTES, ObjectStore, open_objects

if TYPE_CHECKING:
    from sqlalchemy import URL

    from kcache_grpc.storage.migration import MigrationPlan
    from kcache_grpc.storage.sql.engine.database import Database

_MEMORY = "memory:"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


def open_store(
    url: str,
    *,
    migrate: bool = False,
    clock: Clock | None = None,
    objects: str | None = None,
    inline_bytes: int = INLINE_BYTES,
) -> Store:
    """The store at ``url``.

    ``memory:`` is a new store in this process; ``sqlite://`` a new one in a temporary file that goes with it;
    ``sqlite:///relative`` and ``sqlite:////absolute`` are files; ``postgresql://user@host/database`` is
    shared by any number of servers. With ``migrate`` the schema is made or upgraded first; else a store
    without this version's schema is rejected: ``SchemaMismatch`` says what to type. Raises
    ``UnsupportedStore``, ``ForeignDatabase``, ``CorruptStore``, ``StoreUnavailable`` too.

    ``objects``: URL of the object store for blobs of more than ``inline_bytes`` bytes. A store that has one
    is opened with it ever after: ``ObjectStoreMismatch`` says which.
    """
    clock = clock or Clock.system()
    if url == _MEMORY and objects is not None:
        raise UnsupportedStore("memory: keeps all bytes in memory: it has no object store")
    if url == _MEMORY:
        from kcache_grpc.storage.memory import MemoryStore

        return MemoryStore(clock)
    parsed = _parse(url)
    beside = None if objects is None else open_objects(objects, inline_bytes)
    if parsed.drivername in _POSTGRES:
        return _open_postgres(parsed, migrate, clock, beside)
    path = _sqlite_path(parsed)
    if path is None:
        return _open_temporary(clock, beside)
    if migrate:
        _migrate(path, url)
    return _open_sqlite(path, url, clock, beside)


def migrate(url: str, *, server_role: str | None = None) -> None:
    """Make or upgrade the schema of the store at ``url``. Safe to call at once; whole or not at all.

    ``server_role``: on Postgres, the role that servers connect as: it gets what they need, and no more, while
    the user of ``url`` owns the schema. Raises ``InvalidValue`` for one that may do more.
    """
    if url == _MEMORY:
        return
    parsed = _parse(url)
    if server_role is not None and parsed.drivername not in _POSTGRES:
        raise InvalidValue(f"a role of servers is for Postgres: {url} has none")
    if parsed.drivername in _POSTGRES:
        _postgres_driver()
        from kcache_grpc.storage.migration import migrate_postgres

        migrate_postgres(parsed, _shown(parsed), server_role)
        return
    path = _sqlite_path(parsed)
    if path is None:
        raise InvalidValue(f"{url} is a new store each time: there is nothing to migrate")
    _migrate(path, url)


def planned_migration(url: str) -> MigrationPlan:
    """What ``migrate`` would apply to the store at ``url``: reads only, and makes no file.

    Raises what ``migrate`` raises, but what comes of applying it.
    """
    from kcache_grpc.storage.migration import MigrationPlan, plan_migration, postgres_plan

    if url == _MEMORY:
        return MigrationPlan("", ())
    parsed = _parse(url)
    if parsed.drivername in _POSTGRES:
        _postgres_driver()
        return postgres_plan(parsed, _shown(parsed))
    path = _sqlite_path(parsed)
    if path is None:
        raise InvalidValue(f"{url} is a new store each time: there is nothing to migrate")
    return plan_migration(_revision_of(path))


def open_database(url: str) -> Database:
    """The database at ``url``, with this version's schema and without a store around it: for moving stores.

    Raises what ``open_store`` raises, and ``InvalidValue`` for stores that last no longer than their process.
    """
    if url == _MEMORY:
        raise InvalidValue("memory: has no database")
    parsed = _parse(url)
    if parsed.drivername in _POSTGRES:
        return _postgres_database(parsed, migrating=False)
    path = _sqlite_path(parsed)
    if path is None:
        raise InvalidValue(f"{url} is a new store each time")
    return _sqlite_database(path, url, Clock.system())


def sqlite_path(url: str) -> Path | None:
    """The file of a store; ``None`` for what is none. Raises ``InvalidValue``, ``UnsupportedStore``."""
    parsed = None if url == _MEMORY else _parse(url)
    return None if parsed is None or parsed.drivername in _POSTGRES else _sqlite_path(parsed)


def require_directory(url: str, own: Path | None = None) -> None:
    """Raises ``InvalidValue`` where the directory of an SQLite file is missing: a mistyped path makes none.

    ``own``: a directory that is ours to make, such as the state directory.
    """
    path = sqlite_path(url)
    directory = None if path is None else path.absolute().parent
    if directory is None or directory.exists() or (own is not None and directory == own.absolute()):
        return
    raise InvalidValue(
        f"there is no directory {directory} for {url}; make it first: mkdir -p -m 700 {directory}"
    )


def postgres_parsed(url: str) -> URL | None:
    """The database of a store on Postgres; ``None`` for others. Raises as ``sqlite_path`` does."""
    parsed = None if url == _MEMORY else _parse(url)
    if parsed is None or parsed.drivername not in _POSTGRES:
        return None
    _postgres_driver()
    return parsed


def shown_url(url: str) -> str:
    """``url`` as it may be printed: without passwords. Raises ``InvalidValue``, ``UnsupportedStore``."""
    return url if url == _MEMORY else _shown(_parse(url))


def _shown(parsed: URL) -> str:
    # libpq takes passwords as parameters too.
    secret = {name: "***" for name in parsed.query if "password" in name.lower()}
    return parsed.update_query_dict(secret).render_as_string()


def _parse(url: str) -> URL:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidValue(
            "this is not the URL of a store: sqlite:///FILE or postgresql://HOST/NAME"
        ) from error
    if parsed.drivername not in ("sqlite", *_POSTGRES):
        raise UnsupportedStore(
            f"no store is known for {parsed.drivername}: this version has memory:, sqlite: and postgresql:"
        )
    return parsed


def _sqlite_path(parsed: URL) -> Path | None:
    """The file of an SQLite URL, none for a temporary one."""
    if parsed.host or parsed.username or parsed.query:
        raise InvalidValue("an SQLite URL has a path only: sqlite:///relative or sqlite:////absolute")
    database = parsed.database
    return Path(database) if database and database != ":memory:" else None


def _postgres_driver() -> None:
    """Raises ``UnsupportedStore`` with the command to type where psycopg is not installed."""
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        raise UnsupportedStore(
            "Postgres needs its driver; run: pip install 'kcache-grpc[postgres]'"
        ) from error


def _open_postgres(parsed: URL, migrating: bool, clock: Clock, objects: ObjectStore | None) -> Store:
    database = _arrived(_postgres_database(parsed, migrating))
    from kcache_grpc.storage.sql.store import SqlStore

    return SqlStore(database, _shown(parsed), clock, objects=objects)


def _postgres_database(parsed: URL, migrating: bool) -> Database:
    _postgres_driver()
    from kcache_grpc.storage.revision import reject_other_revision
    from kcache_grpc.storage.schema import SCHEMA_REVISION
    from kcache_grpc.storage.sql.engine.errors import translated
    from kcache_grpc.storage.sql.postgres import roles
    from kcache_grpc.storage.sql.postgres.engine import PostgresDatabase, postgres_engine

    shown = _shown(parsed)
    engine = postgres_engine(parsed, connections=1)
    try:
        with translated(), engine.connect() as connection:
            roles.reject_unfit(connection)
            revision = roles.revision_of(connection, shown)
            if migrating and revision != SCHEMA_REVISION:
                from kcache_grpc.storage.migration import migrate_postgres

                migrate_postgres(parsed, shown)
            else:
                reject_other_revision(revision, shown)
            roles.reject_missing_triggers(connection)
    finally:
        engine.dispose()
    return PostgresDatabase(parsed)


def _migrate(path: Path, url: str) -> None:
    from kcache_grpc.storage.schema import SCHEMA_REVISION

    if _revision_of(path) == SCHEMA_REVISION:
        return
    # Alembic takes 0.3 s to import, and is wanted only where the schema changes.
    from kcache_grpc.storage.migration import migrate_sqlite

    migrate_sqlite(path, url)


def _open_temporary(clock: Clock, objects: ObjectStore | None) -> Store:
    directory = tempfile.TemporaryDirectory(prefix="kcache-")
    path = Path(directory.name) / "store.sqlite"
    try:
        _migrate(path, "sqlite://")
        return _open_sqlite(path, "sqlite://", clock, objects, directory)
    except BaseException:
        directory.cleanup()
        raise


def _open_sqlite(
    path: Path,
    url: str,
    clock: Clock,
    objects: ObjectStore | None,
    directory: tempfile.TemporaryDirectory[str] | None = None,
) -> Store:
    from kcache_grpc.storage.sql.store import SqlStore

    on_close = directory.cleanup if directory else None
    return SqlStore(_arrived(_sqlite_database(path, url, clock)), url, clock, on_close, objects)


def _sqlite_database(path: Path, url: str, clock: Clock) -> Database:
    from kcache_grpc.storage.sql.sqlite.engine import SqliteDatabase

    _reject_unusable(path, url)
    return SqliteDatabase(path.absolute(), clock)


def _arrived(database: Database) -> Database:
    """Raises ``CorruptStore`` for what a move has not filled yet: its keys would be given twice."""
    from sqlalchemy import select

    from kcache_grpc.storage.schema import transfers

    try:
        if database.fetch(select(transfers.c.table_name).where(transfers.c.finished_at == 0).limit(1)):
            raise CorruptStore(
                "a store is being moved into this one, or that was interrupted: "
                "type the same kcache migrate --from --to again"
            )
    except BaseException:
        database.close()
        raise
    return database


def _reject_unusable(path: Path, url: str) -> None:
    from kcache_grpc.storage.revision import reject_other_revision
    from kcache_grpc.storage.schema import triggers
    from kcache_grpc.storage.sql.engine.errors import translated
    from kcache_grpc.storage.sql.sqlite.file import reject_missing_triggers, use_write_ahead_log

    reject_other_revision(_revision_of(path), url)
    with translated(), closing(sqlite3.connect(path, timeout=20)) as connection:
        reject_missing_triggers(connection, triggers("sqlite"))
        use_write_ahead_log(connection, path)


def _revision_of(path: Path) -> str:
    """The schema revision of a file that may be a store, empty when there is none yet."""
    from kcache_grpc.storage.sql.engine.errors import translated
    from kcache_grpc.storage.sql.sqlite import file

    file.reject_old_library()
    file.reject_network_file_system(path)
    if file.is_empty(path):
        return ""
    with translated(), closing(sqlite3.connect(path, timeout=20)) as connection:
        file.reject_foreign(connection, path)
        return file.schema_revision(connection)

"""Bringing a database to this version's schema, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection

from kcache_grpc.storage.errors import CorruptStore, SchemaMismatch, StorageError, StoreUnavailable
from kcache_grpc.storage.revision import UPGRADE_COMMAND
from kcache_grpc.storage.schema import APPLICATION_ID, SCHEMA_REVISION, triggers
from kcache_grpc.storage.sql.engine.errors import translated
from kcache_grpc.storage.sql.postgres import roles
from kcache_grpc.storage.sql.postgres.engine import postgres_engine
from kcache_grpc.storage.sql.sqlite import file as sqlite_file
from kcache_grpc.storage.sql.sqlite.engine import driver, sqlite_engine
from kcache_grpc.storage.sql.sqlite.file import (
    create_directory,
    create_private,
    schema_revision,
    use_write_ahead_log,
)
from kcache_migrations import LOCATION


@dataclass(frozen=True)
class Revision:
    """A schema revision, and what it adds to the one before."""

    revision: str
    description: str


@dataclass(frozen=True)
class MigrationPlan:
    """The revision that a store has, empty for none, and those that a migration applies, oldest first."""

    current: str
    revisions: tuple[Revision, ...]


def plan_migration(current: str) -> MigrationPlan:
    """What a migration of a store of revision ``current`` applies.

    Raises ``SchemaMismatch`` for a schema from the future.
    """
    _reject_future(current)
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions("head", current or "base")
    revisions = [Revision(script.revision, script.doc) for script in scripts if script.revision != current]
    return MigrationPlan(current, tuple(reversed(revisions)))


def postgres_plan(url: URL, shown: str) -> MigrationPlan:
    """That of a database of Postgres, which is only read. Raises as ``migrate_postgres`` does."""
    engine = postgres_engine(url, connections=1)
    try:
        with translated(), engine.connect() as connection:
            roles.reject_unfit(connection)
            return plan_migration(roles.revision_of(connection, shown))
    finally:
        engine.dispose()


def migrate_sqlite(path: Path, url: str) -> None:
    """Make the file if need be, and upgrade it; safe to call from many processes at once.

    What is there is known to be ours, or nothing. Raises ``SchemaMismatch`` for a schema from the future.
    """
    create_directory(path)
    with _locked(path):
        create_private(path)
        engine = sqlite_engine(path)
        with translated(), engine.connect() as connection:
            _upgrade(connection, path, url)


def migrate_postgres(url: URL, shown: str, server_role: str | None = None) -> None:
    """Make or upgrade the schema; safe to call from many servers at once, which wait for one another.

    ``server_role``: the role that servers connect as, which gets what they need; ``None``: that of ``url``.
    Raises ``ForeignDatabase``, ``UnsupportedStore``, ``SchemaMismatch`` for a schema from the future.
    """
    engine = postgres_engine(url, connections=1)
    try:
        with translated(), engine.connect() as connection:
            roles.reject_unfit(connection)
            # An upgrade of a large store takes long, and so does waiting for somebody else's.
            connection.exec_driver_sql("SET statement_timeout = 0")
            connection.exec_driver_sql("SET lock_timeout = 0")
            connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 0")
            _upgrade_postgres(connection, shown, server_role)
    finally:
        engine.dispose()


#: Names the lock that migrations of one database take: "kcache" in ASCII.
_ADVISORY_LOCK = 0x6B6361636865


def _upgrade_postgres(connection: Connection, shown: str, server_role: str | None) -> None:
    # Alembic leaves a transaction alone that SQLAlchemy knows of; in autocommit SQLAlchemy begins none.
    connection.rollback()
    with connection.begin():
        connection.exec_driver_sql("BEGIN")
        try:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            current = roles.revision_of(connection, shown)
            if current != SCHEMA_REVISION:
                _reject_future(current)
                _run(connection, shown)
                connection.exec_driver_sql(
                    "INSERT INTO store_meta VALUES ('store_id', %(id)s) ON CONFLICT DO NOTHING",
                    {"id": secrets.token_hex(16)},
                )
                roles.reject_missing_triggers(connection)
                _reject_early_end(roles.revision_of(connection, shown))
            if server_role is not None:
                roles.grant_to_servers(connection, server_role)
        except BaseException:
            if not connection.invalidated:
                connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """One migration at a time. The kernel frees the lock when its holder dies."""
    lock = path.with_name(f"{path.name}.migrate-lock")
    try:
        file = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{lock} cannot be made: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _upgrade(connection: Connection, path: Path, url: str) -> None:
    raw = driver(connection)
    current = schema_revision(raw)
    if current == SCHEMA_REVISION:
        return
    _reject_future(current)
    use_write_ahead_log(raw, path)
    # Rebuilding a table drops it for a moment: foreign keys are checked at the end instead.
    raw.execute("PRAGMA foreign_keys = OFF")
    # Alembic leaves a transaction alone that SQLAlchemy knows of; SQLAlchemy begins none on SQLite
    # automatically.
    with connection.begin():
        raw.execute("BEGIN IMMEDIATE")
        _run(connection, url)
        _finish(raw)


def _reject_future(current: str) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current and current not in known:
        raise SchemaMismatch(current, SCHEMA_REVISION, UPGRADE_COMMAND)


def _reject_early_end(revision: str) -> None:
    if revision != SCHEMA_REVISION:
        raise StorageError(f"the migrations end at {revision}, not at {SCHEMA_REVISION}")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(LOCATION).replace("%", "%%"))
    return config


def _run(connection: Connection, url: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StorageError(f"the migration of {url} failed: {error}") from error


def _finish(raw: sqlite3.Connection) -> None:
    """Mark the file as ours, name it, and look whether the schema is what we say it is."""
    raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    raw.execute("INSERT OR IGNORE INTO store_meta VALUES ('store_id', ?)", (secrets.token_hex(16),))
    sqlite_file.reject_missing_triggers(raw, triggers("sqlite"))
    _reject_early_end(schema_revision(raw))
    if raw.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise CorruptStore("rows refer to rows that are not there")

"""Bringing a database to this version's schema, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from kcache_grpc.storage.errors import CorruptStore, SchemaMismatch, StorageError, StoreUnavailable
from kcache_grpc.storage.revision import UPGRADE_COMMAND
from kcache_grpc.storage.schema import APPLICATION_ID, SCHEMA_REVISION, TRIGGERS
from kcache_grpc.storage.sql.faults import translated
from kcache_grpc.storage.sql.sqlite import driver, sqlite_engine
from kcache_grpc.storage.sql.sqlite_file import (
    create_folder,
    create_private,
    refuse_missing_triggers,
    schema_revision,
)
from kcache_migrations import LOCATION


def migrate_sqlite(path: Path, url: str) -> None:
    """Make the file if need be, and upgrade it; safe to call from many processes at once.

    What is there is known to be ours, or nothing. Raises ``SchemaMismatch`` for a schema from the future.
    """
    create_folder(path)
    with _locked(path):
        create_private(path)
        engine = sqlite_engine(path)
        with translated(), engine.connect() as connection:
            _upgrade(connection, path, url)


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
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current and current not in known:
        raise SchemaMismatch(current, SCHEMA_REVISION, UPGRADE_COMMAND)
    (mode,) = raw.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnavailable(f"{path} cannot use a write-ahead log, only {mode}")
    # Rebuilding a table drops it for a moment: foreign keys are checked at the end instead.
    raw.execute("PRAGMA foreign_keys = OFF")
    # Alembic leaves a transaction alone that SQLAlchemy knows of; SQLAlchemy begins none on SQLite by itself.
    with connection.begin():
        raw.execute("BEGIN IMMEDIATE")
        _run(connection, url)
        _finish(raw)


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
    refuse_missing_triggers(raw, TRIGGERS)
    if schema_revision(raw) != SCHEMA_REVISION:
        raise StorageError(f"the migrations end at {schema_revision(raw)}, not at {SCHEMA_REVISION}")
    if raw.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise CorruptStore("rows refer to rows that are not there")

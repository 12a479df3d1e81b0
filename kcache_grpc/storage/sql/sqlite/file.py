"""Files of SQLite databases: where they may lie, how they are made, what they are."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import stat
from pathlib import Path

from kcache_grpc.storage.errors import CorruptStore, ForeignDatabase, StoreUnavailable, UnsupportedStore
from kcache_grpc.storage.schema import APPLICATION_ID

#: RETURNING.
_OLDEST_LIBRARY = (3, 35, 0)

#: Bytes of the smallest page.
_SMALLEST_DATABASE = 512

#: ``f_type`` of statfs(2) where locks or shared memory do not reach other machines: WAL would lose data.
_NETWORK_FILE_SYSTEMS = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB2",
    0xFF534D42: "CIFS",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x73757245: "Coda",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x01021997: "9P",
}


def reject_old_library() -> None:
    """Raises ``UnsupportedStore`` when Python's SQLite is older than the statements that we use."""
    if sqlite3.sqlite_version_info < _OLDEST_LIBRARY:
        needed = ".".join(map(str, _OLDEST_LIBRARY))
        raise UnsupportedStore(f"this Python has SQLite {sqlite3.sqlite_version}, {needed} is needed")


def file_system_type(path: Path) -> int:
    """``f_type`` of the file system of an existing path; 0 where statfs(2) is not to be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "statfs"):
        return 0
    buffer = (ctypes.c_long * 64)()
    if libc.statfs(os.fsencode(path), ctypes.byref(buffer)) != 0:
        return 0
    return buffer[0] & 0xFFFFFFFF


def reject_network_file_system(path: Path) -> None:
    """Raises ``UnsupportedStore`` for a path, existing or not, on a network file system."""
    nearest = next(directory for directory in (path, *path.absolute().parents) if directory.exists())
    name = _NETWORK_FILE_SYSTEMS.get(file_system_type(nearest))
    if name is not None:
        raise UnsupportedStore(
            f"{path} is on {name}: SQLite loses data on network file systems; use Postgres"
        )


def create_directory(path: Path) -> None:
    """Make the missing directories above ``path``, each only for its owner (0700)."""
    try:
        missing = [directory for directory in path.absolute().parents if not directory.exists()]
        for directory in reversed(missing):
            directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{path.parent} cannot be made: {error.strerror}") from error


def create_private(path: Path) -> None:
    """Make an empty file only for its owner (0600); one that exists is left as it is, and unopened.

    Closing a file drops all locks that the process has on it: those of SQLite's connections too.
    """
    if path.exists():
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be made: {error.strerror}") from error


def is_empty(path: Path) -> bool:
    """Whether there is no database yet: no file, or one without content. Does not open it.

    Raises ``ForeignDatabase`` for what is too small to be one: SQLite would take it for empty, and write.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode) or 0 < status.st_size < _SMALLEST_DATABASE:
        raise ForeignDatabase(f"{path} is not an SQLite database")
    return status.st_size == 0


def reject_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """Raises ``ForeignDatabase`` for a database with tables that is not marked as ours."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise ForeignDatabase(f"{path} is not an SQLite database") from error
        raise
    if tables and application != APPLICATION_ID:
        raise ForeignDatabase(f"{path} is a database of another application")


def reject_missing_triggers(connection: sqlite3.Connection, expected: frozenset[tuple[str, str]]) -> None:
    """Raises ``CorruptStore`` when a trigger that keeps rows immutable is gone."""
    existing = set(connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"))
    missing = sorted(name for name, _ in expected - existing)
    if missing:
        raise CorruptStore(f"the store has lost the triggers that protect its rows: {', '.join(missing)}")


def schema_revision(connection: sqlite3.Connection) -> str:
    """The Alembic revision, empty when there is none."""
    named = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = named and connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def use_write_ahead_log(connection: sqlite3.Connection, path: Path) -> None:
    """Readers and writers do not wait for each other then; a copy that was put back has no such log yet."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnavailable(f"{path} cannot use a write-ahead log, only {mode}")

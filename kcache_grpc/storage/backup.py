"""Copies of SQLite stores: taken while servers write, checked before they count, put back as files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kcache_grpc.errors import KcacheError
from kcache_grpc.storage.errors import (
    CorruptStore,
    InvalidValue,
    StoreUnavailable,
    UnsupportedStore,
)
from kcache_grpc.storage.opening import sqlite_path
from kcache_grpc.storage.revision import reject_other_revision
from kcache_grpc.storage.schema import triggers
from kcache_grpc.storage.sql.engine.errors import translated
from kcache_grpc.storage.sql.sqlite.file import (
    create_directory,
    is_empty,
    reject_foreign,
    reject_missing_triggers,
    schema_revision,
)

_COUNTERS = """
SELECT n.name, c.last_key, coalesce(max(s.key), 0), count(s.key)
FROM namespaces n LEFT JOIN key_counters c ON c.namespace_id = n.id LEFT JOIN specs s ON s.namespace_id = n.id
GROUP BY n.id ORDER BY n.id
"""


#: Generations that are served, and lie in their own rows.
_CHUNKS = """
SELECT n.name, a.digest, a.size, a.id, c.generation, c.content, c.digest
FROM artifacts a JOIN namespaces n ON n.id = a.namespace_id JOIN artifact_chunks c ON c.artifact_id = a.id
LEFT JOIN quarantine q ON q.artifact_id = c.artifact_id AND q.generation = c.generation
WHERE q.artifact_id IS NULL AND c.location IS NULL ORDER BY a.id, c.generation, c.seq
"""


@dataclass(frozen=True)
class Copy:
    """A copy that was checked: its store, bytes of the file, and the last key of each namespace."""

    store_id: str
    size: int
    last_keys: dict[str, int]


def back_up(url: str, target: Path, examine: Callable[[Path], object] | None = None) -> Copy:
    """Copy the store as it is at one moment to the new file ``target`` (0600), and check the copy.

    Writers go on meanwhile; what they commit after the beginning is not in the copy. The file appears whole
    or not at all; ``examine`` sees it before that. Raises ``UnsupportedStore`` for what is not a file of
    SQLite, ``InvalidValue`` for a target that exists, ``StoreUnavailable`` and ``CorruptStore``.
    """
    source = _file(url)
    _reject_taken(target)
    create_directory(target)
    with _arriving(target) as temporary:
        with translated(), closing(sqlite3.connect(source, timeout=20)) as reading:
            reject_foreign(reading, source)
            reject_other_revision(schema_revision(reading), url)
            with closing(sqlite3.connect(temporary)) as writing:
                # All pages in one step: one read transaction, which writers in WAL mode do not disturb.
                reading.backup(writing, pages=-1)
                # The copy is one file: nothing of it is in a separate log.
                writing.execute("PRAGMA journal_mode = DELETE").fetchone()
        return _checked(temporary, examine)


def restore(
    source: Path, url: str, examine: Callable[[Path], object] | None = None, *, dry_run: bool = False
) -> Copy:
    """Put a checked copy in the place of a store that is not there. Raises as ``back_up`` does.

    ``examine`` sees the new file before it is there: what it raises leaves the place empty. ``dry_run``: the
    checks only, on a copy in the directory for temporary files.
    """
    target = _file(url)
    _reject_taken(target)
    for log in (target.with_name(f"{target.name}-wal"), target.with_name(f"{target.name}-shm")):
        if log.exists():
            raise InvalidValue(f"{log} of the lost store is still there: move it away first")
    if is_empty(source):
        raise InvalidValue(f"there is no copy in {source}")
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="kcache-") as directory:
            return _copied(source, Path(directory) / target.name, examine)
    create_directory(target)
    with _arriving(target) as temporary:
        return _copied(source, temporary, examine)


def _copied(source: Path, target: Path, examine: Callable[[Path], object] | None) -> Copy:
    """A copy that is checked."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise StoreUnavailable(f"{source} cannot be copied: {error.strerror}") from error
    return _checked(target, examine)


def _checked(path: Path, examine: Callable[[Path], object] | None) -> Copy:
    copy = check_copy(path)
    if examine is None:
        return copy
    examine(path)
    return check_copy(path)


def damaged_blobs(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Blobs whose bytes in the file are not those that were stored: namespace, digest, what is wrong.

    Bytes in quarantine, which are never served, and those in an object store are not looked at.
    """
    with translated(), closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(_CHUNKS)
        for (name, digest, size, *_), chunks in groupby(rows, key=lambda row: row[:5]):
            hasher, length, wrong = hashlib.sha256(), 0, False
            for *_, content, of_chunk in chunks:
                hasher.update(content)
                length += len(content)
                wrong |= of_chunk is not None and hashlib.sha256(content).digest() != of_chunk
            if length != size:
                yield name, digest, f"it has {length} bytes instead of {size}"
            elif hasher.digest() != digest:
                yield name, digest, "its bytes do not hash to its digest"
            elif wrong:
                yield name, digest, "the digest of one of its chunks is wrong"


def make_one_file(path: Path) -> None:
    """Bring what is in the log next to an SQLite file into the file, and keep none from here on."""
    with translated(), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()


def check_copy(path: Path) -> Copy:
    """Raises ``CorruptStore`` unless the file is whole, protected, and counts its keys right."""
    with translated(), closing(sqlite3.connect(path)) as connection:
        reject_foreign(connection, path)
        reject_other_revision(schema_revision(connection), f"sqlite:///{path}")
        reject_missing_triggers(connection, triggers("sqlite"))
        # Not the quick check: an index that lacks a row would give its key again.
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise CorruptStore(f"{path} is damaged: {verdict}")
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise CorruptStore(f"rows of {path} refer to rows that are not there")
        counters = connection.execute(_COUNTERS).fetchall()
        for name, last, largest, count in counters:
            if not last == largest == count:
                state = f"its counter is at {last}, its largest key is {largest}, it has {count} specs"
                raise CorruptStore(f"namespace {name} of {path} would give a key twice: {state}")
        row = connection.execute("SELECT value FROM store_meta WHERE name = 'store_id'").fetchone()
    if row is None:
        raise CorruptStore(f"{path} has lost the id of its store")
    return Copy(row[0], path.stat().st_size, {name: last for name, last, _, _ in counters})


def _file(url: str) -> Path:
    path = sqlite_path(url)
    if path is None:
        raise UnsupportedStore(
            "only files of SQLite are copied; for Postgres: pg_dump --format=custom, pg_restore "
            "(docs/operate/lifecycle.md)"
        )
    return path.absolute()


def _reject_taken(path: Path) -> None:
    if path.exists() and path.stat().st_size:
        raise InvalidValue(f"{path} exists: it is not overwritten")


@contextmanager
def _arriving(target: Path) -> Generator[Path]:
    """A private file that takes its place when all went well, and goes when it did not."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be made: {error.strerror}") from error
    try:
        yield temporary
        _settle(temporary)
        temporary.replace(target)
        _settle(target.parent)
    except KcacheError:
        raise  # which may be an OSError too
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Wait until the disk has it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

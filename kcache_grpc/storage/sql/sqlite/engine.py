"""SQLite: one writing connection a process, reading connections as threads need them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import (
    URL,
    Connection,
    Delete,
    Engine,
    Executable,
    NullPool,
    bindparam,
    create_engine,
    delete,
    event,
    exc,
    exists,
)
from sqlalchemy.dialects import sqlite

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.schema import METADATA, artifact_chunks, quarantine
from kcache_grpc.storage.sql.engine.bulk import batches
from kcache_grpc.storage.sql.engine.counters import add_together
from kcache_grpc.storage.sql.engine.database import Database, Removal, Rows, removal_event
from kcache_grpc.storage.sql.engine.errors import translate, translated
from kcache_grpc.storage.sql.engine.journal import insert_rows
from kcache_grpc.storage.sql.engine.prepared import Prepared

T = TypeVar("T")

#: How long a writer waits for writers of other processes, or of this one, before it gives up.
BUSY_TIMEOUT_SECONDS = 20.0
#: How long a reader in a hurry waits. Writers never hold readers up; recovery of the log, and programs that
#: lock the whole file, do.
_HURRIED_SECONDS = 0.05

#: For prepared statements.
_DIALECT = sqlite.dialect(paramstyle="named")


def sqlite_engine(path: Path, busy_timeout: float = BUSY_TIMEOUT_SECONDS) -> Engine:
    """An engine without a pool, in driver autocommit, whose connections protect rows and wait for locks."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={"check_same_thread": False, "timeout": busy_timeout},
    )

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        for pragma in (
            f"busy_timeout = {int(busy_timeout * 1000)}",
            "foreign_keys = ON",
            "recursive_triggers = ON",
            "synchronous = FULL",
            "trusted_schema = OFF",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "connect", prepare)
    return engine


def _deletion(table: str, column: str) -> Delete:
    named = METADATA.tables[table].c[column]
    return delete(named.table).where(named.in_(bindparam("ids", expanding=True)))


#: Generations in quarantine of these artifacts. ``kcache_collect`` does the same on Postgres.
_QUARANTINED = _deletion("artifact_chunks", "artifact_id").where(
    exists().where(
        quarantine.c.artifact_id == artifact_chunks.c.artifact_id,
        quarantine.c.generation == artifact_chunks.c.generation,
    )
)


def driver(connection: Connection) -> sqlite3.Connection:
    """The driver's connection."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def _connect(engine: Engine) -> Connection:
    with translated():
        return engine.connect()


class _Hurry(threading.local):
    """A context: whether reads of this thread are in a hurry."""

    on = False

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False


class SqliteDatabase(Database):
    """A database file that exists and has our schema."""

    answers_from_memory = True

    def __init__(self, path: Path, clock: Clock, busy_timeout: float = BUSY_TIMEOUT_SECONDS) -> None:
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._engine = sqlite_engine(path, busy_timeout)
        self._hurried_engine = sqlite_engine(path, min(busy_timeout, _HURRIED_SECONDS))
        self._abandoned: list[object] = []
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._writer: Connection | None = None
        self._durable = True
        self._readers: deque[Connection] = deque()
        self._hurried_readers: deque[Connection] = deque()
        self._hurry = _Hurry()

    def _leave_parent(self) -> None:
        """In the child of a fork: begin anew. Closing the parent's connections would disturb its file."""
        self._abandoned.append((self._writer, self._readers, self._hurried_readers))
        self._start()

    def fetch(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Rows:
        return self._with_reader(lambda reader: reader.execute(statement, parameters).all())

    def read(self, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        text, parameters = statement.sql(_DIALECT, values)
        # The driver keeps the last 128 statements of a connection prepared.
        fetched = self._with_reader(lambda reader: driver(reader).execute(text, parameters).fetchall())
        return statement.rows(fetched)

    def short_lock_waits(self) -> AbstractContextManager[None]:
        return self._hurry

    def _with_reader(self, ask: Callable[[Connection], T]) -> T:
        if self._process != os.getpid():
            self._leave_parent()
        hurried = self._hurry.on
        readers = self._hurried_readers if hurried else self._readers
        reader = self._reader(readers, self._hurried_engine if hurried else self._engine)
        try:
            rows = ask(reader)
        except BaseException as error:
            reader.close()
            if isinstance(error, exc.SQLAlchemyError | sqlite3.Error):
                raise translate(error) from error
            raise
        readers.append(reader)
        if self._closed:
            self._close_readers()
        return rows

    def _reader(self, readers: deque[Connection], engine: Engine) -> Connection:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return readers.pop()
        except IndexError:
            return _connect(engine)

    def transact(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        if self._process != os.getpid():
            self._leave_parent()
        if not self._lock.acquire(timeout=self._busy_timeout):
            raise StoreUnavailable(
                "writers of this process kept the store busy for longer than the time limit"
            )
        try:
            return self._transact(work, durable)
        finally:
            self._lock.release()

    def _transact(self, work: Callable[[Connection], T], durable: bool) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._writer is None:
            self._writer, self._durable = _connect(self._engine), True
        writer = self._writer
        try:
            with translated():
                self._synchronize(writer, durable)
                driver(writer).execute("BEGIN IMMEDIATE")
                with self.journal.listening(writer) as appended:
                    result = work(writer)
                driver(writer).execute("COMMIT")
            self.journal.committed(appended)
            return result
        except BaseException:
            self._roll_back(writer)
            raise

    def _synchronize(self, writer: Connection, durable: bool) -> None:
        """NORMAL does not wait for the disk at commit; the next FULL commit carries it there."""
        if durable != self._durable:
            driver(writer).execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}").close()
            self._durable = durable

    def _roll_back(self, writer: Connection) -> None:
        """Undo. A connection that cannot even do that is closed, which undoes too."""
        try:
            if driver(writer).in_transaction:
                driver(writer).execute("ROLLBACK")
        except sqlite3.Error:
            self._writer = None
            writer.close()

    def add_specs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Mapping[bytes, int]:
        return add_together(connection, rows)

    def collect(
        self, connection: Connection, table: str, column: str, ids: Sequence[int], removal: Removal
    ) -> int:
        raw = driver(connection)
        raw.execute("INSERT INTO gc_permits (reason, created_at) VALUES (?, ?)", (removal.reason, removal.at))
        deleting = _QUARANTINED if column == "quarantined" else _deletion(table, column)
        removed = sum(connection.execute(deleting, {"ids": batch}).rowcount for batch in batches(ids))
        raw.execute("DELETE FROM gc_permits")
        if removed:
            insert_rows(connection, [removal_event(removal, table, removed)])
        return removed

    def lease_time(self, connection: Connection | None = None) -> tuple[str, int]:
        return self._clock.boot, self._clock.steady()

    def close(self) -> None:
        if self._process != os.getpid():
            self._leave_parent()
        self._closed = True
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._close_readers()

    def _close_readers(self) -> None:
        for readers in (self._readers, self._hurried_readers):
            with suppress(IndexError):  # another thread took the last
                while readers:
                    readers.pop().close()

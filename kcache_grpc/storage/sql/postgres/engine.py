"""Postgres: a small pool of connections in driver autocommit, transactions by explicit BEGIN."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import (
    URL,
    BigInteger,
    Connection,
    Engine,
    Executable,
    QueuePool,
    create_engine,
    event,
    exc,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from kcache_grpc.storage.contract.change_notifications import ChangeListener, Claim, Watch
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.schema import audit_events
from kcache_grpc.storage.sql.engine.database import Database, Removal, Rows
from kcache_grpc.storage.sql.engine.errors import translate, translated
from kcache_grpc.storage.sql.engine.journal import note, record_of, select_events
from kcache_grpc.storage.sql.engine.prepared import Prepared
from kcache_grpc.storage.sql.postgres.async_reads import Asker
from kcache_grpc.storage.sql.postgres.claims import Claims
from kcache_grpc.storage.sql.postgres.counters import add_at_once
from kcache_grpc.storage.sql.postgres.listener import Listener

logger = logging.getLogger("kcache.storage")
T = TypeVar("T")

#: Connections of one process, at most.
MAX_CONNECTIONS = 16

#: Seconds. A server that freezes inside a transaction holds a namespace's counter for at most that long.
IDLE_IN_TRANSACTION_SECONDS = 5
LOCK_SECONDS = 10
STATEMENT_SECONDS = 60
#: Seconds until a peer that no longer answers counts as gone.
SILENCE_SECONDS = 10
CONNECT_SECONDS = 5

#: SQLSTATEs after which the whole transaction is worth another try: serialization failure, deadlock.
_REPEATABLE = ("40001", "40P01")
_TRIES = 5

_SETTINGS = f"""
SET statement_timeout = '{STATEMENT_SECONDS}s';
SET lock_timeout = '{LOCK_SECONDS}s';
SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_SECONDS}s';
SET tcp_user_timeout = '{SILENCE_SECONDS}s';
SET default_transaction_isolation = 'read committed';
SET timezone = 'UTC'
"""
_BEGIN, _BEGIN_LIGHT = "BEGIN", "BEGIN; SET LOCAL synchronous_commit = off"
#: The same for a statement that is a transaction: one more column of what it returns.
_LIGHT = "set_config('synchronous_commit', 'off', true)"
_COLLECT = text("SELECT kcache_collect(:target, :named_by, :ids, :namespace, :epoch, :writer, :at, :reason)")
#: What this session appended. Not the writer's largest id: its other threads append meanwhile.
_LAST_EVENT = select_events().where(
    audit_events.c.id == select(func.currval("audit_events_id_seq")).scalar_subquery()
)
_NOW = select(
    literal_column("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", BigInteger).label("now")
)
_READ_NOW = Prepared(_NOW)
#: For statements that go to the database as they are: parameters are $1, $2, ... with their types.
_NUMBERED = PGDialect_asyncpg()


class Driver(Protocol):
    """What we use of a connection of psycopg."""

    def execute(self, query: str, *, prepare: bool | None = None) -> object: ...

    def close(self) -> None: ...


def postgres_url(url: URL) -> URL:
    """``url`` for psycopg 3, with timeouts unless it has its own."""
    timeouts = {
        "connect_timeout": str(CONNECT_SECONDS),
        "tcp_user_timeout": str(SILENCE_SECONDS * 1000),
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
        "application_name": "kcache",
        "client_encoding": "utf8",
    }
    return url.set(drivername="postgresql+psycopg", query={**timeouts, **url.query})


def postgres_engine(url: URL, connections: int = MAX_CONNECTIONS) -> Engine:
    """An engine in driver autocommit, whose sessions give up in time."""
    engine = create_engine(
        postgres_url(url),
        isolation_level="AUTOCOMMIT",
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=LOCK_SECONDS,
        pool_use_lifo=True,
        # In autocommit there is nothing to roll back when a connection returns.
        pool_reset_on_return=None,
    )

    def prepare(connection: Driver, _record: object) -> None:
        connection.execute(_SETTINGS)

    event.listen(engine, "connect", prepare)
    return engine


class PostgresDatabase(Database):
    """A database that exists and has our schema. Close it to free its connections."""

    shared = True
    cheap_writes = True

    def __init__(self, url: URL) -> None:
        self._engine = postgres_engine(url)
        self._process = os.getpid()
        self._closed = False
        self._listeners: list[Listener] = []
        self._askers: dict[Prepared, Asker] = {}
        self._claims = Claims(lambda: self._arguments)

    def _connect(self) -> Connection:
        return self._usable().connect()

    def _usable(self) -> Engine:
        if self._process != os.getpid():
            # In the child of a fork: the connections are the parent's.
            self._engine.dispose(close=False)
            self._process = os.getpid()
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._engine

    def fetch(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Rows:
        with translated():
            try:
                return self._fetch(statement, parameters)
            except exc.DBAPIError as error:
                # The connection may be from before a restart of the database: one try with a new one.
                if not error.connection_invalidated:
                    raise
            return self._fetch(statement, parameters)

    def read(self, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        text, parameters = statement.sql(self._engine.dialect, values)
        fetched = self._ask(text, parameters)
        return self.fetch(statement.select, values) if fetched is None else statement.rows(fetched)

    def ask(self, statement: Prepared, values: Mapping[str, Any]) -> Awaitable[Rows] | None:
        if self._closed or self._process != os.getpid():
            return None
        asker = self._askers.get(statement)
        if asker is None:
            asker = self._askers[statement] = Asker(self._connect_alone, *statement.numbered(_NUMBERED))
        answer = asker.ask(values)
        return None if answer is None else _named(statement, answer)

    def _connect_alone(self) -> Any:
        """A connection that no pool has."""
        import psycopg

        arguments: dict[str, Any] = {**self._arguments, "application_name": "kcache-asker"}
        connection: Any = psycopg.connect(**arguments, autocommit=True)
        connection.execute(_SETTINGS)
        return connection

    def write(self, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        text, parameters = statement.sql(self._engine.dialect, values)
        fetched = self._ask(f"{text}, {_LIGHT}", parameters)
        return (
            super().write(statement, values)
            if fetched is None
            else statement.rows(row[:-1] for row in fetched)
        )

    def _ask(self, text: str, parameters: Mapping[str, Any]) -> list[Any] | None:
        """All rows by the driver. ``None`` when the ordinary way is to do it, with a new connection."""
        with translated():
            try:
                pooled = self._usable().raw_connection()
            except self._engine.dialect.loaded_dbapi.Error as error:
                # A connection that cannot be made: the driver's own error, nothing of SQLAlchemy is between.
                raise translate(error) from error
            raw = cast("Any", pooled.driver_connection)
            try:
                # In the binary format bytes come as they are. What the driver saw five times it prepares.
                return raw.cursor(binary=True).execute(text, parameters).fetchall()
            except self._engine.dialect.loaded_dbapi.Error as error:
                if raw.closed:
                    pooled.invalidate()
                elif getattr(error, "sqlstate", None) not in _REPEATABLE:
                    raise translate(error) from error
            finally:
                pooled.close()
        return None

    def _fetch(self, statement: Executable, parameters: Mapping[str, Any] | None) -> Rows:
        with self._connect() as connection:
            return connection.execute(statement, parameters).all()

    def transact(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        with translated():
            for attempt in range(1, _TRIES):
                try:
                    return self._transact(work, durable)
                except exc.DBAPIError as error:
                    if not _repeatable(error):
                        raise
                    logger.info("a transaction is repeated: %s", error.orig)
                time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 (spreads those who collided)
            return self._transact(work, durable)

    def _transact(self, work: Callable[[Connection], T], durable: bool) -> T:
        with self._connect() as connection:
            raw = driver(connection)
            try:
                _begin(connection, durable)
                with self.journal.listening(connection) as appended:
                    result = work(connection)
            except BaseException:
                _roll_back(connection, raw)
                raise
            _commit(connection)
            self.journal.committed(appended)
            return result

    def add_specs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Mapping[bytes, int]:
        return add_at_once(connection, rows)

    def collect(
        self, connection: Connection, table: str, column: str, ids: Sequence[int], removal: Removal
    ) -> int:
        """Delete rows by a function of the database, which inserts the audit event; return their number."""
        values = {
            "target": table,
            "named_by": column,
            "ids": list(ids),
            "namespace": removal.namespace_id,
            "epoch": removal.epoch,
            "writer": removal.writer,
            "at": removal.at,
            "reason": removal.reason,
        }
        removed = int(connection.execute(_COLLECT, values).scalar_one())
        if removed:
            note(connection, record_of(connection.execute(_LAST_EVENT).one()))
        return removed

    def lease_time(self, connection: Connection | None = None) -> tuple[str, int]:
        """The database's clock: one for all replicas, whatever theirs say."""
        if connection is not None:
            return "", int(connection.execute(_NOW).scalar_one())
        return "", int(self.read(_READ_NOW, {})[0].now)

    def watch(self, listener: ChangeListener) -> Watch:
        thread = Listener({**self._arguments, "application_name": "kcache-listener"}, listener)
        self._listeners.append(thread)
        return thread

    def claim(self, name: bytes) -> Claim | None:
        self._usable()
        return self._claims.take(name)

    @property
    def _arguments(self) -> dict[str, Any]:
        """What the driver connects with."""
        _, arguments = self._engine.dialect.create_connect_args(self._engine.url)
        return dict(arguments)

    def close(self) -> None:
        self._closed = True
        self._claims.close()
        if self._process == os.getpid():
            for listener in self._listeners:
                listener.close()
            for asker in self._askers.values():
                asker.close()
        self._engine.dispose(close=self._process == os.getpid())


async def _named(statement: Prepared, answer: Awaitable[list[list[Any]]]) -> Rows:
    return statement.rows(await answer)


def driver(connection: Connection) -> Driver:
    """The driver's connection."""
    return cast("Driver", connection.connection.driver_connection)


def _begin(connection: Connection, durable: bool) -> None:
    # One message to the server. SQLAlchemy would prepare it, which takes one statement at a time.
    try:
        driver(connection).execute(_BEGIN if durable else _BEGIN_LIGHT, prepare=False)
    except Exception:  # the connection is lost: SQLAlchemy must hear of it, and says so in its own words
        connection.exec_driver_sql("ROLLBACK")
        raise


def _commit(connection: Connection) -> None:
    """Raises ``StoreUnavailable`` when the connection is lost meanwhile: nobody knows then what happened.

    Repeating the whole call is right for what is written once, and left to the caller for what is not.
    """
    try:
        connection.exec_driver_sql("COMMIT")
    except exc.DBAPIError as error:
        connection.invalidate()
        if error.connection_invalidated:
            raise StoreUnavailable("the database was lost while it committed: ask again") from error
        raise


def _roll_back(connection: Connection, raw: Driver) -> None:
    """Undo. A connection that cannot even do that is closed, which undoes too."""
    if connection.invalidated:
        return
    try:
        raw.execute("ROLLBACK")
    except Exception:  # noqa: BLE001 (whatever it is, the connection is not used again)
        connection.invalidate()


def _repeatable(error: exc.DBAPIError) -> bool:
    """Whether the transaction is undone for sure, and may succeed when it is repeated."""
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _REPEATABLE

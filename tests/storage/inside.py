"""What tests do behind a store's back, in one place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kcache_grpc.storage import Store
from kcache_grpc.storage.sql.engine.database import Database
from kcache_grpc.storage.sql.sqlite.engine import SqliteDatabase, driver
from kcache_grpc.storage.sql.store import SqlStore
from tests.storage.drafts import Time


def database(store: Store) -> SqliteDatabase:
    assert isinstance(store, SqlStore)
    opened: Database = store._db
    assert isinstance(opened, SqliteDatabase)
    return opened


def path_of(store: Store) -> Path:
    return Path(store.url.removeprefix("sqlite:///"))


def writer(store: Store) -> sqlite3.Connection:
    """The driver's connection that all writes of the store go through."""
    opened = database(store)
    opened.transact(lambda connection: None)
    assert opened._writer is not None
    return driver(opened._writer)


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection, such as anybody's who has the file: no pragmas of ours."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def rows(path: Path, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
    with raw(path) as connection:
        return connection.execute(query, parameters).fetchall()


def tamper(path: Path, *statements: str) -> None:
    """Change protected rows, as somebody would who takes the triggers away and puts them back."""
    with raw(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)


def contents(path: Path) -> list[str]:
    """Everything in the database, as SQL."""
    with raw(path) as connection:
        return list(connection.iterdump())


def assert_sound(path: Path) -> None:
    """The file is whole, references hold, and keys are 1..n with the counter at n."""
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        counters = connection.execute("SELECT namespace_id, last_key FROM key_counters").fetchall()
        for namespace, last in counters:
            keys = connection.execute(
                "SELECT key FROM specs WHERE namespace_id = ? ORDER BY key", (namespace,)
            ).fetchall()
            assert [key for (key,) in keys] == list(range(1, last + 1))


def date_leases_by(store: Store, time: Time) -> None:
    """Put ``time`` in the place of the database's clock, which tests cannot turn."""
    assert isinstance(store, SqlStore)
    store._db.lease_time = lambda connection=None: (time.boot, time.steady)  # type: ignore[method-assign]


def call_on_close(store: Store, call: Callable[[], None]) -> None:
    """Once, after the database is closed."""
    assert isinstance(store, SqlStore)
    store._on_close = call


def hurry(store: Store) -> None:
    """Never wait for the disk: for tests whose subject is not power loss."""
    connection = writer(store)
    connection.execute("PRAGMA synchronous = OFF")
    database(store)._synchronize = lambda writer, durable: None  # type: ignore[method-assign]

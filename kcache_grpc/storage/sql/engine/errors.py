"""The one place where errors of databases become errors of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import exc

from kcache_grpc.storage.errors import CorruptStore, StorageError, StoreUnavailable

#: Part of SQLite's message -> what to say. Messages, since the codes reach Python only from 3.11 on.
_UNAVAILABLE = {
    "database or disk is full": "no space is left for the store",
    "readonly database": "the store is read-only",
    "is locked": "the store is locked by another process for longer than the time limit",
    "unable to open database file": "the store's file cannot be opened",
    "disk I/O error": "reading or writing the store's file failed",
    "closed": "the store is closed",
    "interrupted": "the statement was interrupted",
}
_CORRUPT = {
    "malformed": "the store's file is damaged",
    "not a database": "the store's file is damaged or not a database",
    "no such table": "the store lacks a table that its schema revision has",
    "Could not decode": "a text of the store is damaged",
    "no such column": "the store lacks a column that its schema revision has",
}


#: SQLSTATE, or the class that it begins with -> what to say.
_STATES_UNAVAILABLE = {
    "08": "the database cannot be reached",
    "57P": "the database is shutting down or starting",
    "57014": "the database took longer than the time limit",
    "55P03": "another session kept a lock for longer than the time limit",
    "25P03": "the transaction stood idle for longer than the time limit",
    "25006": "the database is read-only",
    "53100": "no space is left for the database",
    "53300": "the database has no connection left",
    "53": "the database is short of a resource",
    "58": "reading or writing the database's files failed",
    "40": "the transaction collided with others again and again",
    "28": "the database does not let this user in",
    "3D000": "there is no such database: make it with createdb",
    "42501": "the database does not let this user do that",
}
_STATES_CORRUPT = {
    "XX001": "the database is damaged",
    "XX002": "an index of the database is damaged",
    "42P01": "the store lacks a table that its schema revision has",
    "42703": "the store lacks a column that its schema revision has",
    "42883": "the store lacks a function that its schema revision has",
}


@contextmanager
def translated() -> Generator[None]:
    """Raises errors of databases as errors of the store, with the original as cause."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        raise translate(error) from error


def translate(error: Exception) -> StorageError:
    """The error of the store that ``error`` means."""
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    message = " ".join(str(cause).split())
    if isinstance(error, exc.TimeoutError):
        return StoreUnavailable(
            "all connections to the database stayed in use for longer than the time limit"
        )
    state: str | None = getattr(cause, "sqlstate", None)
    if state is not None:
        return _by_state(state, message)
    if type(cause).__module__.startswith("psycopg"):
        return StoreUnavailable(f"the database cannot be reached ({message})")
    for part, meaning in _UNAVAILABLE.items():
        if part in message:
            return StoreUnavailable(f"{meaning} ({message})")
    for part, meaning in _CORRUPT.items():
        if part in message:
            return CorruptStore(f"{meaning} ({message})")
    return StorageError(f"the database rejected: {message}")


def _by_state(state: str, message: str) -> StorageError:
    for length in (5, 3, 2):
        if (meaning := _STATES_UNAVAILABLE.get(state[:length])) is not None:
            return StoreUnavailable(f"{meaning} ({message})")
    if (meaning := _STATES_CORRUPT.get(state)) is not None:
        return CorruptStore(f"{meaning} ({message})")
    return StorageError(f"the database rejected: {message}")

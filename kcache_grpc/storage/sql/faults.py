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
    message = str(cause)
    for part, meaning in _UNAVAILABLE.items():
        if part in message:
            return StoreUnavailable(f"{meaning} ({message})")
    for part, meaning in _CORRUPT.items():
        if part in message:
            return CorruptStore(f"{meaning} ({message})")
    return StorageError(f"the database refused: {message}")

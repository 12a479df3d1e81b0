"""Claims on Postgres: session-level advisory locks, which end with the session however the process ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.sql.engine.errors import translate
from kcache_grpc.storage.sql.postgres.listener import CHANNEL

if TYPE_CHECKING:
    from kcache_grpc.storage.contract.change_notifications import Claim

#: Seconds that a statement may take: a claim only saves work, so waiting longer costs more than the work.
_STATEMENT_SECONDS = 2
_SETTINGS = f"SET statement_timeout = '{_STATEMENT_SECONDS}s'".encode()
_TAKE = b"SELECT pg_try_advisory_lock(%s)"
#: Sent after the lock is released: a notification is sent at the end of the statement.
_GIVE_BACK = f"SELECT pg_advisory_unlock(%s), pg_notify('{CHANNEL}', %s)".encode()


class Claims:
    """The claims of one process, on one connection, opened on first use. Thread-safe, also after a fork."""

    def __init__(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        self._arguments = arguments
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: Any = None
        #: A session may take a lock that it has: who holds what here is known here.
        self._held: set[bytes] = set()
        self._closed = False

    def take(self, name: bytes) -> Claim | None:
        """As ``NotifyingStore.claim``."""
        with self._own_lock():
            if name in self._held:
                return None
            connection = self._connected()
            if not self._ask(connection, _TAKE, (_number(name),)):
                return None
            self._held.add(name)
            return _Held(self, name, connection)

    def give_back(self, name: bytes, connection: Any) -> None:
        """Nothing is left to be done where the connection was lost."""
        with self._own_lock():
            if connection is self._connection and name in self._held:
                self._held.discard(name)
                self._ask(connection, _GIVE_BACK, (_number(name), f"claim:{name.hex()}"))

    def close(self) -> None:
        """Gives all back, by ending the session. Idempotent."""
        with self._own_lock():
            self._closed = True
            self._lose()

    def _own_lock(self) -> threading.Lock:
        if self._process != os.getpid():
            # In the child of a fork: the connection is the parent's, and so is whoever held the lock.
            self._process, self._lock = os.getpid(), threading.Lock()
            self._connection, self._held = None, set()
        return self._lock

    def _connected(self) -> Any:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._connection is None:
            import psycopg

            try:
                arguments: dict[str, Any] = {**self._arguments(), "application_name": "kcache-claims"}
                self._connection = psycopg.connect(**arguments, autocommit=True)
                self._connection.execute(_SETTINGS)
            except psycopg.Error as error:
                self._lose()
                raise translate(error) from error
        return self._connection

    def _ask(self, connection: Any, query: bytes, values: tuple[object, ...]) -> bool:
        import psycopg

        try:
            return bool(connection.execute(query, values).fetchone()[0])
        except psycopg.Error as error:
            self._lose()
            raise translate(error) from error

    def _lose(self) -> None:
        """All that is held goes with the session."""
        connection, self._connection, self._held = self._connection, None, set()
        if connection is not None:
            connection.close()


class _Held:
    """A claim that was given."""

    def __init__(self, claims: Claims, name: bytes, connection: Any) -> None:
        self._claims = claims
        self._name = name
        self._connection = connection

    def release(self) -> None:
        self._claims.give_back(self._name, self._connection)


def _number(name: bytes) -> int:
    """What advisory locks are named by. Two names with one number wait for each other, and no more."""
    return int.from_bytes(name[:8], "big", signed=True)

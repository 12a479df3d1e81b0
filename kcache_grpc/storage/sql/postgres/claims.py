"""Claims and notifications on Postgres.

A claim is an advisory lock of one session, which ends with it however the process ends. ``LISTEN`` has one
connection of its own, in a thread, made again whenever it breaks.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kcache_grpc.storage.contract.change_notifications import (
    Change,
    ChangeListener,
    ClaimEnded,
    KernelPublished,
    LeaseChanged,
    Missed,
    NamespaceChanged,
)
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.sql.engine.errors import translate

if TYPE_CHECKING:
    import psycopg

    from kcache_grpc.storage.contract.change_notifications import Claim

logger = logging.getLogger("kcache.storage")

#: As in ``kcache_migrations.notices``.
CHANNEL = "kcache"
#: Seconds between two attempts to connect: the first, the most.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
#: Seconds of silence after which the connection is tried.
_SILENCE = 10.0
#: Seconds that closing waits for a thread that hangs in a database that does not answer.
_JOIN_TIMEOUT = 2.0
#: Seconds that a statement may take: who waits for a hint could have done the work.
_STATEMENT_SECONDS = 2
_SETTINGS = f"SET statement_timeout = '{_STATEMENT_SECONDS}s'".encode()
_TAKE = b"SELECT pg_try_advisory_lock(%s)"
#: Told after the lock is free: a notice is sent at the end of the statement.
_GIVE_BACK = f"SELECT pg_advisory_unlock(%s), pg_notify('{CHANNEL}', %s)".encode()


class Listener:
    """Tells what is heard until it is closed."""

    def __init__(self, arguments: Mapping[str, Any], on_change: ChangeListener) -> None:
        self._arguments = arguments
        self._on_change = on_change
        self._closing = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="kcache-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        os.write(self._wake_writer, b".")
        self._thread.join(_JOIN_TIMEOUT)

    def _run(self) -> None:
        # The server extra has no driver of Postgres.
        import psycopg

        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            try:
                with psycopg.connect(**self._arguments, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}".encode())
                    pause = _FIRST_PAUSE
                    self._on_change(Missed())
                    self._follow(connection)
            except psycopg.Error as error:
                logger.info(
                    "change notifications of the database are not received: %s", " ".join(str(error).split())
                )
            self._closing.wait(pause)
            pause = min(pause * 2, _LAST_PAUSE)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        # Not select.select: it takes no descriptor above 1023, which a busy server has.
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while not self._closing.is_set():
                if not selector.select(_SILENCE):
                    connection.execute(b"SELECT 1")  # raises when nobody is there any more
                for notification in connection.notifies(timeout=0):
                    change = parse(notification.payload)
                    if change is not None:
                        self._on_change(change)


def parse(payload: str) -> Change | None:
    """The change; ``None`` for one of another version."""
    kind, *rest = payload.split(":")
    try:
        match kind, rest:
            case "lease", [namespace, digest]:
                return LeaseChanged(int(namespace), bytes.fromhex(digest))
            case "kernel", [namespace, key]:
                return KernelPublished(int(namespace), int(key))
            case "namespace", [namespace]:
                return NamespaceChanged(int(namespace))
            case "claim", [name]:
                return ClaimEnded(bytes.fromhex(name))
            case _:
                return None
    except ValueError:
        return None


class Claims:
    """Of one process, on one connection that is made when it is needed. Thread-safe, also after a fork."""

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

"""``LISTEN`` on Postgres: receives the change notifications of the database.

``LISTEN`` has one dedicated connection, in a thread, which is reopened whenever it breaks.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Mapping
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

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger("kcache.storage")

#: As in ``kcache_migrations.change_notifications``.
CHANNEL = "kcache"
#: Seconds between two attempts to connect: the first pause, and the longest.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
#: Seconds without a notification after which the connection is tested.
_SILENCE = 10.0
#: Seconds that ``close`` waits for a thread that waits for an unresponsive database.
_JOIN_TIMEOUT = 2.0


class Listener:
    """Calls ``on_change`` with each change that the database reports, in a thread, until it is closed.

    After each connect it reports ``Missed``: earlier notifications may be lost.
    """

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
        # Not select.select: it accepts no descriptor above 1023, which a busy server has.
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while not self._closing.is_set():
                if not selector.select(_SILENCE):
                    connection.execute(b"SELECT 1")  # raises if the connection is lost
                for notification in connection.notifies(timeout=0):
                    change = parse_change(notification.payload)
                    if change is not None:
                        self._on_change(change)


def parse_change(payload: str) -> Change | None:
    """Return the change that a notification's payload names; ``None`` for a payload of another version."""
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

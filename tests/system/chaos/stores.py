"""The database that the servers share, and what can happen to it."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg

from kcache_grpc.storage import migrate
from tests.ports import free_port
from tests.postgres import PostgresServer, running
from tests.system.chaos.faults.proxy import Proxy
from tests.system.chaos.faults.shim import Switches

#: A fault returns once it is in place. The number says how often it comes beside others.
Faults = dict[Callable[[], None], int]


class SharedStore(ABC):
    """Made by ``postgres_store`` and ``sqlite_store``."""

    def __init__(self, url: str, direct: str) -> None:
        #: What servers are given.
        self.url = url
        #: The same store, with nothing in between.
        self.direct = direct

    @abstractmethod
    def faults(self) -> Faults:
        """What ``heal`` takes away again."""

    @abstractmethod
    def heal(self) -> None:
        """Nothing is broken any more."""

    @abstractmethod
    def shift_clock(self, seconds: float) -> None:
        """The wall clock of the database is off by so much."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What the database says, past proxy and servers."""


class PostgresStore(SharedStore):
    """A server under the shim, behind a proxy."""

    def __init__(self, server: PostgresServer, proxy: Proxy, switches: Switches, direct: str) -> None:
        super().__init__(direct.replace(f":{server.port}/", f":{proxy.port}/"), direct)
        self._server = server
        self._proxy = proxy
        self._switches = switches

    def faults(self) -> Faults:
        return {
            self.kill_database: 3,
            self.restart_database: 2,
            self.cut_connections: 4,
            self.refuse_connections: 2,
            self.fill_database_disk: 2,
        }

    def kill_database(self) -> None:
        self._server.stop("immediate")

    def restart_database(self) -> None:
        self._server.stop("fast")
        self._server.start()

    def cut_connections(self) -> None:
        self._proxy.cut()

    def refuse_connections(self) -> None:
        self._proxy.refuse(True)
        self._proxy.cut()

    def fill_database_disk(self) -> None:
        self._switches.disk_full(True)

    def shift_clock(self, seconds: float) -> None:
        self._switches.shift_clock(seconds)

    def heal(self) -> None:
        self._proxy.refuse(False)
        self._switches.heal()
        self._start()

    def _start(self) -> None:
        """If it is not there: as a machine's init would."""
        with contextlib.suppress(psycopg.OperationalError):
            self._server.execute("SELECT 1")
            return
        # It may be gone, or lie in its last moments, in which a new one does not start yet.
        for attempt in range(5):
            with contextlib.suppress(AssertionError):
                self._server.stop("immediate")
            try:
                self._server.start()
                return
            except AssertionError:
                if attempt == 4:
                    raise
                time.sleep(1)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.direct) as connection:
            return connection.execute(query.encode()).fetchall()


class SqliteStore(SharedStore):
    """A file that all servers of the machine have open. Its disk is theirs: ``Server`` fills it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}", f"sqlite:///{path}")
        self._path = path
        self._writer: sqlite3.Connection | None = None

    def faults(self) -> Faults:
        return {self.hold_database: 3}

    def hold_database(self) -> None:
        """A program that is not ours begins to write, and takes its time."""
        self._writer = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        self._writer.execute("BEGIN IMMEDIATE")

    def shift_clock(self, seconds: float) -> None:
        """It has no clock of its own."""

    def heal(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection:
            return connection.execute(query).fetchall()


@contextmanager
def postgres_store(folder: Path, shim: Path) -> Iterator[SharedStore]:
    """Real durability: a killed database must keep what it acknowledged. A crash of Postgres loses no page
    that the system has, so that fsync itself is not asked for.
    """
    switches = Switches(shim, folder / "database.switches")
    with ExitStack() as stack:
        server = stack.enter_context(running(port=free_port(), environment=switches.environment))
        direct = server.create()
        migrate(direct)
        assert server.port is not None
        proxy = Proxy(server.port)
        stack.callback(proxy.close)
        yield PostgresStore(server, proxy, switches, direct)


@contextmanager
def sqlite_store(folder: Path, shim: Path) -> Iterator[SharedStore]:
    """``shim`` is the servers' alone: the database is a library in them."""
    store = SqliteStore(folder / "kcache.sqlite")
    migrate(store.direct)
    yield store

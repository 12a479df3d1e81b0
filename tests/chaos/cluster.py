"""Servers on one Postgres, all real processes, and everything that can happen to them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from kcache_grpc.storage import migrate
from tests.chaos.proxy import Proxy
from tests.chaos.shim import Switches, build
from tests.ports import free_port
from tests.postgres import PostgresServer, running
from tests.s3 import FaultyLine, s3_server
from tests.s3 import environment as s3_environment

SERVERS = 3


class Server:
    """One replica, which keeps its address through all of its lives."""

    def __init__(
        self, folder: Path, url: str, key: Path, switches: Switches, objects: Mapping[str, str]
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.switches = switches
        self._objects = objects
        self._command = [sys.executable, "-m", "kcache_grpc", "serve", "--listen", self.address, "--db", url]
        self._command += ["--socket", str(folder / "run" / "s"), "--state-dir", str(folder / "state")]
        self._command += ["--key-file", str(key), "--workers", "1", "--lease-ttl", "3"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Does not wait until it serves."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KCACHE_")}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**clean, **self._objects, **self.switches.environment},
            )

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """Process ids of its workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(OSError):
            return [int(child) for child in children.read_text().split()]
        return []

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


class Cluster:
    """Made by ``cluster``."""

    def __init__(
        self,
        postgres: PostgresServer,
        proxy: Proxy,
        database: Switches,
        servers: list[Server],
        direct: str,
        objects: FaultyLine | None,
    ) -> None:
        self.postgres = postgres
        self.proxy = proxy
        self.database = database
        self.servers = servers
        #: The database's URL past the proxy.
        self.direct = direct
        #: The way to the object store, if bytes are there.
        self.objects = objects
        self._healing = threading.Lock()

    def heal(self) -> None:
        """Nothing is broken any more; who died lives again."""
        with self._healing:
            self._heal()

    def _heal(self) -> None:
        self.proxy.refuse(False)
        if self.objects is not None:
            self.objects.heal()
        for switches in (self.database, *(server.switches for server in self.servers)):
            switches.heal()
        self.start_postgres()
        for server in self.servers:
            for pid in server.workers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            server.signal(signal.SIGCONT)
            if not server.alive:
                server.start()

    def start_postgres(self) -> None:
        """If it is not there: as a machine's init would."""
        with contextlib.suppress(psycopg.OperationalError):
            self.postgres.execute("SELECT 1")
            return
        # It may be gone, or lie in its last moments, in which a new one does not start yet.
        for attempt in range(5):
            with contextlib.suppress(AssertionError):
                self.postgres.stop("immediate")
            try:
                self.postgres.start()
                return
            except AssertionError:
                if attempt == 4:
                    raise
                time.sleep(1)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What the database says, past proxy and servers."""
        with psycopg.connect(self.direct) as connection:
            return connection.execute(query.encode()).fetchall()


@contextmanager
def cluster(folder: Path, objects: bool, servers: int = SERVERS) -> Iterator[Cluster]:
    """A database behind a proxy, and servers, all under the shim; with ``objects`` an S3 server for bytes."""
    shim = build(folder)
    shim.chmod(0o755)
    with ExitStack() as stack:
        database = Switches(shim, folder / "database.switches")
        folder.chmod(0o755)
        # Real durability: a killed database must keep what it acknowledged. A crash of Postgres loses no page
        # that the system has, so that fsync itself is not asked for.
        port = free_port()
        postgres = stack.enter_context(running(port=port, environment=database.environment))
        direct = postgres.create()
        migrate(direct)
        proxy = Proxy(port)
        stack.callback(proxy.close)
        url = direct.replace(f":{port}/", f":{proxy.port}/")
        line, environment = None, {}
        if objects:
            store = stack.enter_context(s3_server(folder))
            line = FaultyLine(store)
            stack.callback(line.close)
            environment = {
                **s3_environment(line.endpoint),
                "AWS_ALLOW_HTTP": "true",
                "KCACHE_OBJECTS": f"s3://{store.bucket()}/artifacts",
                "KCACHE_OBJECTS_INLINE_BYTES": "0",
            }
        made = []
        for number in range(servers):
            switches = Switches(shim, folder / f"server-{number}.switches")
            made.append(
                Server(folder / f"server-{number}", url, folder / "signing.key", switches, environment)
            )
            made[-1].start()
            stack.callback(made[-1].kill)
        yield Cluster(postgres, proxy, database, made, direct, line)

"""Servers on one store, all real processes, and an object store, if there is one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.processes import children, workers
from tests.s3 import FaultyLine, s3_server
from tests.s3 import environment as s3_environment
from tests.system.chaos.faults.shim import Switches, build
from tests.system.chaos.stores import SharedStore, postgres_store, sqlite_store

_STORES: dict[str, Callable[[Path, Path], AbstractContextManager[SharedStore]]] = {
    "postgres": postgres_store,
    "sqlite": sqlite_store,
}
STORES = tuple(_STORES)


@dataclass(frozen=True)
class Setup:
    """What is broken. ``module``: what serves, for servers that break the contract themselves."""

    store: str = "postgres"
    #: Bytes in an object store.
    objects: bool = False
    #: Whether anything is broken from outside.
    faults: bool = True
    servers: int = 3
    module: tuple[str, ...] = ("kcache_grpc",)


class Server:
    """One replica, which keeps its address through all of its lives."""

    def __init__(
        self,
        folder: Path,
        module: tuple[str, ...],
        url: str,
        key: Path,
        switches: Switches,
        objects: Mapping[str, str],
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.switches = switches
        self._objects = objects
        self._command = [sys.executable, "-m", *module, "serve", "--listen", self.address, "--db", url]
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
        """Process ids of its fork server and its workers."""
        return [*children(self.process.pid), *workers(self.process.pid)]

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


class Cluster:
    """Made by ``cluster``."""

    def __init__(
        self,
        setup: Setup,
        store: SharedStore,
        servers: list[Server],
        objects: FaultyLine | None,
        settings: dict[str, str],
    ) -> None:
        self.setup = setup
        self.store = store
        self.servers = servers
        #: The way to the object store, if bytes are there.
        self.objects = objects
        #: What commands need beside the URL of the database.
        self.settings = settings
        self._healing = threading.Lock()

    def heal(self) -> None:
        """Nothing is broken any more; who died lives again."""
        with self._healing:
            self._heal()

    def _heal(self) -> None:
        if self.objects is not None:
            self.objects.heal()
        for server in self.servers:
            server.switches.heal()
        self.store.heal()
        for server in self.servers:
            for pid in server.workers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            server.signal(signal.SIGCONT)
            if not server.alive:
                server.start()


@contextmanager
def cluster(folder: Path, setup: Setup) -> Iterator[Cluster]:
    """A store, and servers, all under the shim; with ``objects`` an S3 server for bytes."""
    shim = build(folder)
    shim.chmod(0o755)
    folder.chmod(0o755)
    with ExitStack() as stack:
        store = stack.enter_context(_STORES[setup.store](folder, shim))
        line, settings = None, {}
        if setup.objects:
            s3 = stack.enter_context(s3_server(folder))
            line = FaultyLine(s3)
            stack.callback(line.close)
            settings = {
                **s3_environment(line.endpoint),
                "AWS_ALLOW_HTTP": "true",
                "KCACHE_OBJECTS": f"s3://{s3.bucket()}/artifacts",
                "KCACHE_OBJECTS_INLINE_BYTES": "0",
            }
        servers: list[Server] = []
        for number in range(setup.servers):
            switches = Switches(shim, folder / f"server-{number}.switches")
            key = folder / "signing.key"
            servers.append(
                Server(folder / f"server-{number}", setup.module, store.url, key, switches, settings)
            )
            servers[-1].start()
            stack.callback(servers[-1].kill)
        yield Cluster(setup, store, servers, line, settings)

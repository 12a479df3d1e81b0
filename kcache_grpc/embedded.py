"""The user's own service: what a client without an address uses.

A whole server in a separate process, on a private Unix socket, with database and key in the cache
directory. One a process and cache directory; several processes may share the directory. Forked children use
the service of their parent. It drains and ends when the last of them ends, however they end: it reads a pipe
whose other end they hold.

A process, and not a thread: gRPC's server does not survive ``os.fork`` (a child that calls gRPC crashes), and
the user's interpreter lock stays his.

The cache directory holds only a cache. If a store or its key is damaged, its directory is renamed to
``embedded.damaged-TIME`` and a new one is created, with one warning that names the path. A store of a newer
version of kcache is not changed, and this version uses its own directory. If the directory cannot be used
(full disk, read-only, no permission) the store is a temporary one.

``python -m kcache_grpc.embedded STATE_DIR PRIVATE_DIR`` is that process. Only it imports the server: this
module is the bridge between two layers.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kcache_grpc.errors import Conflict, IntegrityError, KcacheError, PermissionDenied, Unavailable
from kcache_grpc.model.signing import Signer
from kcache_grpc.model.signing import server_id as id_of_key
from kcache_grpc.server_extra import how_to_install

#: What the server extra brings, as it is imported.
_NEEDED = (
    "kcache_compiler",
    "torch_mlir",
    "llvmlite",
    "sqlalchemy",
    "alembic",
    "grpc_health",
    "grpc_reflection",
)
#: Distributions whose version decides which compiler this is.
_COMPILER = ("kcache-grpc", "torch-mlir", "llvmlite")
#: More compilers than a user's own machine should be kept busy with.
_MOST_WORKERS = 4
_START_SECONDS = 120.0
#: Seconds that the user's process waits for the service to end, and that the service has for what still runs.
_END_SECONDS = 2.0
_GRACE_SECONDS = 5.0
_LOG_BYTES = 1 << 20
_LONGEST_TEMPORARY = 80
#: Directory of the embedded service in the cache directory, and the prefix of the names of damaged ones.
_DIRECTORY = "embedded"
_ASIDE = f"{_DIRECTORY}.damaged-"
#: Held, shared, by services that use a directory.
_IN_USE = "in-use"
#: A damaged store is renamed, the next one is of a newer version, the next directory cannot be
#: used.
_MOST_STARTS = 4

#: Why a service did not start, and what to do about it; else the service cannot start at all.
_DAMAGED, _NEWER, _UNUSABLE = "damaged", "newer", "unusable"

Warn = Callable[[str], None]


@dataclass(frozen=True)
class EmbeddedService:
    """A running service: its socket and its identity."""

    socket: Path
    server_id: str


def missing() -> str:
    """Why this installation has no service to embed; empty when it has."""
    absent = [name for name in _NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed; {how_to_install()}" if absent else ""


def start(cache_dir: Path | None, warn: Warn) -> EmbeddedService:
    """The service for ``cache_dir``, started at the first call, and again if it was killed.

    ``None``: with a database that goes when the process ends. ``warn`` is told of a damaged store that was
    renamed and of a directory that cannot be used. Raises ``Unavailable`` when the server extra is not
    installed (with the command that does it) or the service does not start.
    """
    absent = missing()
    if absent:
        raise Unavailable(f"no service address is given, and none can be embedded: {absent}", extra="server")
    with _running.lock:
        process = _running.processes.get(cache_dir)
        if process is None or process.ended:
            process = _running.processes[cache_dir] = _Process(cache_dir, warn)
        return process.service


def is_running(cache_dir: Path | None) -> bool:
    """Whether this process started the service for ``cache_dir`` and it serves. Never waits."""
    process = _running.processes.get(cache_dir)
    return process is not None and not process.ended


def replace_damaged(cache_dir: Path | None, damaged: str, warn: Warn) -> None:
    """End the service for ``cache_dir`` that found its store damaged, and rename its directory.

    ``damaged`` is the identity of that service; nothing is done if another service has replaced it. The next
    ``start`` creates a new store.
    """
    with _running.lock:
        process = _running.processes.get(cache_dir)
        if process is not None and process.service.server_id == damaged:
            del _running.processes[cache_dir]
            process.replace(warn)


def server_id(cache_dir: Path | None) -> str | None:
    """The identity of the service of ``cache_dir``; ``None`` before its first start."""
    if cache_dir is None:
        return None
    process = _running.processes.get(cache_dir)
    if process is not None:
        return process.service.server_id
    path = _key_file(state_dir(cache_dir))
    try:
        return id_of_key(Signer.from_file(path).public_key) if path.exists() else None
    except (KcacheError, OSError):
        return None  # the service, when it starts, renames the directory


def state_dir(cache_dir: Path) -> Path:
    """Directory of database, key and log of the service for ``cache_dir``."""
    return cache_dir / _DIRECTORY


def store_file(state_dir: Path) -> Path:
    """The database in such a directory."""
    return state_dir / "kcache.sqlite"


def directories(cache_dir: Path) -> list[Path]:
    """Return the directories of embedded services: this version's and those of older versions."""
    return sorted(
        path
        for path in cache_dir.glob(f"{_DIRECTORY}*")
        if path.is_dir() and not path.name.startswith(_ASIDE)
    )


def damaged_directories(cache_dir: Path) -> list[Path]:
    """Return the renamed directories of damaged stores, oldest first."""
    return sorted(cache_dir.glob(f"{_ASIDE}*"))


def remove(directory: Path) -> None:
    """Remove a directory of an embedded service. Raises ``OSError``, and ``Conflict`` while it is in use."""
    with contextlib.suppress(FileNotFoundError), (directory / _IN_USE).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(
                f"an embedded service uses {directory}: end the programs that use kcache, then try again",
                path=str(directory),
            ) from error
        shutil.rmtree(directory)


@lru_cache(maxsize=1)
def installation() -> str:
    """Names the compiler that is installed, without loading it: versions, and the state of its own files."""
    digest = hashlib.sha256()
    for name in _COMPILER:
        digest.update(f"{name} {_installed_version(name)}\n".encode())
    spec = find_spec("kcache_compiler")
    for directory in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(directory).rglob("*.py")):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _key_file(state_dir: Path) -> Path:
    return state_dir / "signing.key"


class _Process:
    """One service process, held by a pipe."""

    def __init__(self, cache_dir: Path | None, warn: Warn) -> None:
        # Short: the path of a socket has 107 bytes at most.
        temporary = tempfile.gettempdir()
        directory = temporary if len(os.fsencode(temporary)) <= _LONGEST_TEMPORARY else "/tmp"  # noqa: S108
        self.private = Path(tempfile.mkdtemp(prefix="kcache-", dir=directory))
        self._cache_dir = cache_dir or self.private
        self._state_dir = state_dir(self._cache_dir)
        self._inode = 0
        self._socket = self.private / "s"
        self._owner = os.getpid()
        try:
            self._process = self._begin(warn)
            key = Signer.from_file(_key_file(self._state_dir))
        except BaseException:
            shutil.rmtree(self.private, ignore_errors=True)
            raise
        self.service = EmbeddedService(self._socket, id_of_key(key.public_key))
        atexit.register(self.release)

    @property
    def pid(self) -> int:
        """Process id of the service."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it serves no more, as far as this process can tell."""
        if os.getpid() == self._owner and self._process.poll() is not None:
            return True
        return not self._socket.exists()

    def release(self) -> None:
        """At the end of the user's process: the service ends, unless forked children still use it."""
        if os.getpid() != self._owner:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # It has work or children left, and ends by itself: nothing to warn of.
            self._process.returncode = 0

    def replace(self, warn: Warn) -> None:
        """End the service, and rename its directory."""
        if os.getpid() == self._owner:
            self._process.kill()
            self._process.communicate()
            shutil.rmtree(self.private, ignore_errors=True)
        self._rename_damaged("it was found damaged while it was used", warn)

    def _begin(self, warn: Warn) -> subprocess.Popen[bytes]:
        """The service's process, which listens. Raises ``Unavailable``."""
        reason = ""
        for _ in range(_MOST_STARTS):
            try:
                self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._inode = self._state_dir.stat().st_ino
                process = self._spawn()
            except OSError as error:
                event: dict[str, Any] = {"kind": _UNUSABLE, "message": str(error)}
            else:
                event = self._first_event(process)
                if event.get("event") == "listening":
                    return process
            reason = event.get("message") or f"see {self._state_dir / 'service.log'}"
            kind = event.get("kind")
            if kind == _DAMAGED:
                self._rename_damaged(reason, warn)
            elif kind == _NEWER:
                self._state_dir = self._cache_dir / f"{_DIRECTORY}-{event['expected']}"
            elif kind == _UNUSABLE and self._cache_dir != self.private:
                warn(
                    f"the embedded service cannot use {self._state_dir} ({reason}); what it compiles is kept "
                    "until this process ends. Free space, repair the permissions, or run: kcache cache clear"
                )
                self._cache_dir = self.private
                self._state_dir = state_dir(self.private)
            else:
                break
        raise Unavailable(
            f"the embedded service did not start in {self._state_dir}: {reason}", path=str(self._state_dir)
        )

    def _rename_damaged(self, reason: str, warn: Warn) -> None:
        """Renames the directory, unless another process has done so since this one's service began in it."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        try:
            with _renaming(self._cache_dir):
                if self._state_dir.stat().st_ino != self._inode:
                    return
                aside = self._cache_dir / f"{_ASIDE}{moment}-{os.urandom(2).hex()}"
                self._state_dir.rename(aside)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable(
                f"the store of the embedded service in {self._state_dir} is damaged ({reason}) and cannot be "
                f"renamed: {error}; remove that directory",
                path=str(self._state_dir),
            ) from error
        warn(
            f"the store of the embedded service was damaged ({reason}); it was moved to {aside}, and a new "
            "one begins, with new keys. kcache cache clear removes it"
        )

    def _spawn(self) -> subprocess.Popen[bytes]:
        log = self._state_dir / "service.log"
        with contextlib.suppress(OSError):
            if log.stat().st_size > _LOG_BYTES:
                log.unlink()
        environment = {name: text for name, text in os.environ.items() if not name.startswith("KCACHE_")}
        with log.open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "kcache_grpc.embedded", str(self._state_dir), str(self.private)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                # Where this package is: the user's directory may hold modules of the same names as ours.
                cwd=Path(__file__).parent.parent,
                env=environment,
                # A Ctrl-C is for the user's process.
                start_new_session=True,
            )

    @staticmethod
    def _first_event(process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What the service says first; it is ended unless it listens."""
        stdout = process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            ready = selector.select(_START_SECONDS)
        line = stdout.readline() if ready else b""
        event: dict[str, Any] = json.loads(line or b"{}")
        if event.get("event") != "listening":
            process.kill()
            process.communicate()
        return event


@contextmanager
def _renaming(cache_dir: Path) -> Generator[None]:
    """One process at a time renames directories of the embedded service."""
    with (cache_dir / f".{_DIRECTORY}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Running:
    """The services that this process or its parent started, by cache directory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes: dict[Path | None, _Process] = {}

    def after_fork(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self.lock = threading.Lock()


_running = _Running()
os.register_at_fork(after_in_child=_running.after_fork)


def _main(state_dir: Path, private: Path) -> int:
    """The service's process."""
    import logging

    from kcache_grpc.server import ServerConfig, serve
    from kcache_grpc.worker import machine

    logging.getLogger("kcache.request").setLevel(logging.WARNING)
    threading.Thread(target=_end_with_users, daemon=True).start()
    try:
        in_use = (state_dir / _IN_USE).open("ab")
        fcntl.flock(in_use, fcntl.LOCK_SH)
        serve(
            ServerConfig(
                db=f"sqlite:///{store_file(state_dir)}",
                state_dir=state_dir,
                key_file=_key_file(state_dir),
                migrate=True,
                listen=(),
                socket=private / "s",
                workers=min(_MOST_WORKERS, machine.compilers()),
                prepare=("host",),
                grace=_GRACE_SECONDS,
            )
        )
    except Exception as error:  # noqa: BLE001  (told to the process that started this one)
        event = {"event": "failed", "message": str(error) or repr(error), **_remedy(error)}
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
        return 1  # the process that started this one may start another with the same socket
    shutil.rmtree(private, ignore_errors=True)
    return 0


def _remedy(error: Exception) -> dict[str, str]:
    """What the process that started this one can do about an error."""
    from kcache_grpc.storage.errors import ForeignDatabase, SchemaMismatch

    if isinstance(error, SchemaMismatch) and error.current > error.expected:
        return {"kind": _NEWER, "expected": error.expected}
    # A key that is not the one that signed the store, or that others may read, is PermissionDenied.
    if isinstance(error, (IntegrityError, ForeignDatabase, PermissionDenied)):
        return {"kind": _DAMAGED}
    return {"kind": _UNUSABLE} if isinstance(error, (Unavailable, OSError)) else {}


def _end_with_users() -> None:
    """Ends this process like SIGTERM does when nobody holds the other end of its input."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), Path(sys.argv[2])))

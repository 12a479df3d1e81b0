"""The user's own service: what a client without an address uses.

A whole server in a process beside the user's, on a private Unix socket, with database and key in the cache
directory. One a process and cache directory; several processes may share the directory. Forked children use
the service of their parent. It drains and ends when the last of them ends, however they end: it reads a pipe
whose other end they hold.

A process, and not a thread: gRPC's server does not survive ``os.fork`` (a child that calls gRPC crashes), and
the user's interpreter lock stays his.

``python -m kcache_grpc.embedded STATE_DIR PRIVATE_DIR`` is that process. Only it imports the server: this
module is the bridge between two layers.
"""

from __future__ import annotations

import atexit
import contextlib
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
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kcache_grpc.errors import Unavailable
from kcache_grpc.model.signing import Signer
from kcache_grpc.model.signing import server_id as id_of_key

_INSTALL = "pip install 'kcache-grpc[server]'"
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


@dataclass(frozen=True)
class EmbeddedService:
    """A running service: its socket and its identity."""

    socket: Path
    server_id: str


def missing() -> str:
    """Why this installation has no service to embed; empty when it has."""
    absent = [name for name in _NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed; run: {_INSTALL}" if absent else ""


def start(cache_dir: Path | None) -> EmbeddedService:
    """The service for ``cache_dir``, started at the first call, and again if it was killed.

    ``None``: with a database that goes when the process ends. Raises ``Unavailable`` when the server extra is
    not installed (with the command that does it) or the service does not start.
    """
    absent = missing()
    if absent:
        raise Unavailable(f"no service address is given, and none can be embedded: {absent}", extra="server")
    with _running.lock:
        process = _running.processes.get(cache_dir)
        if process is None or process.ended:
            process = _running.processes[cache_dir] = _Process(cache_dir)
        return process.service


def server_id(cache_dir: Path | None) -> str | None:
    """The identity of the service of ``cache_dir``; ``None`` before its first start."""
    if cache_dir is None:
        return None
    path = _key_file(_state_dir(cache_dir))
    return id_of_key(Signer.from_file(path).public_key) if path.exists() else None


@lru_cache(maxsize=1)
def installation() -> str:
    """Names the compiler that is installed, without loading it: versions, and the state of its own files."""
    digest = hashlib.sha256()
    for name in _COMPILER:
        digest.update(f"{name} {_installed_version(name)}\n".encode())
    spec = find_spec("kcache_compiler")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).rglob("*.py")):
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _state_dir(cache_dir: Path) -> Path:
    return cache_dir / "embedded"


def _key_file(state_dir: Path) -> Path:
    return state_dir / "signing.key"


class _Process:
    """One service process, held by a pipe."""

    def __init__(self, cache_dir: Path | None) -> None:
        # Short: the path of a socket has 107 bytes at most.
        temporary = tempfile.gettempdir()
        folder = temporary if len(os.fsencode(temporary)) <= _LONGEST_TEMPORARY else "/tmp"  # noqa: S108
        self.private = Path(tempfile.mkdtemp(prefix="kcache-", dir=folder))
        self._state_dir = _state_dir(cache_dir or self.private)
        self._socket = self.private / "s"
        self._owner = os.getpid()
        try:
            self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._process = self._spawn()
            self._await_listening()
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
                # Where this package is: the user's folder may hold modules of the same names as ours.
                cwd=Path(__file__).parent.parent,
                env=environment,
                # A Ctrl-C is for the user's process.
                start_new_session=True,
            )

    def _await_listening(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            ready = selector.select(_START_SECONDS)
        line = stdout.readline() if ready else b""
        event: dict[str, Any] = json.loads(line or b"{}")
        if event.get("event") == "listening":
            return
        self._process.kill()
        self._process.communicate()
        reason = event.get("message") or f"see {self._state_dir / 'service.log'}"
        raise Unavailable(f"the embedded service did not start: {reason}")


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

    logging.getLogger("kcache.request").setLevel(logging.WARNING)
    threading.Thread(target=_end_with_users, daemon=True).start()
    try:
        serve(
            ServerConfig(
                db=f"sqlite:///{state_dir / 'kcache.sqlite'}",
                state_dir=state_dir,
                key_file=_key_file(state_dir),
                migrate=True,
                listen=(),
                socket=private / "s",
                workers=min(_MOST_WORKERS, len(os.sched_getaffinity(0))),
                grace=_GRACE_SECONDS,
            )
        )
    except Exception as error:  # noqa: BLE001  (told to the process that started this one)
        sys.stdout.write(json.dumps({"event": "failed", "message": str(error) or repr(error)}) + "\n")
        sys.stdout.flush()
        return 1
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return 0


def _end_with_users() -> None:
    """Ends this process like SIGTERM does when nobody holds the other end of its input."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), Path(sys.argv[2])))

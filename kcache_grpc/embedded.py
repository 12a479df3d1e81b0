"""The service inside the user's own process: what a client without an address uses.

A whole server, on a private Unix socket, in a thread with an event loop of its own; its database and key
lie in the cache directory, its parsers and compilers run in worker processes. One instance a process and
cache directory; several processes may share the directory. It ends with the process.

This module imports the server only when one is started: it is the bridge between two layers.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from kcache_grpc.errors import KcacheError, Unavailable
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
#: More compilers than a user's own process should start.
_MOST_WORKERS = 4
_START_SECONDS = 120.0
_STOP_SECONDS = 5.0


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
    """The service of this process for ``cache_dir``, started at the first call.

    ``None``: with a database that goes when the process ends. Raises ``Unavailable`` when the server extra is
    not installed (with the command that does it) or the service does not start.
    """
    absent = missing()
    if absent:
        raise Unavailable(f"no service address is given, and none can be embedded: {absent}", extra="server")
    with _running.lock:
        key = (os.getpid(), cache_dir)
        runner = _running.runners.get(key)
        if runner is None or runner.ended:
            runner = _running.runners[key] = _Runner(cache_dir)
        try:
            return runner.service()
        except BaseException:
            del _running.runners[key]
            raise


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


class _Runner:
    """One service in one thread."""

    def __init__(self, cache_dir: Path | None) -> None:
        # Short: the path of a socket has 107 bytes at most.
        self._private = Path(tempfile.mkdtemp(prefix="kcache-"))
        self._state_dir = _state_dir(cache_dir or self._private)
        self._socket = self._private / "s"
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="kcache-embedded", daemon=True)
        _at_shutdown(self.stop)
        self._thread.start()

    def service(self) -> EmbeddedService:
        """Once it serves. Raises ``Unavailable``."""
        try:
            self._ready.result(_START_SECONDS)
        except KcacheError as error:
            raise Unavailable(f"the embedded service did not start: {error}", **error.metadata) from error
        except (OSError, RuntimeError, TimeoutError, ImportError) as error:
            raise Unavailable(f"the embedded service did not start: {error!r}") from error
        key = Signer.from_file(_key_file(self._state_dir))
        return EmbeddedService(self._socket, id_of_key(key.public_key))

    @property
    def ended(self) -> bool:
        """Whether the service served and does no more."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends the service, if this is the process that started it."""
        if os.getpid() != self._pid:
            return
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_STOP_SECONDS + 1)
        shutil.rmtree(self._private, ignore_errors=True)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  (told to whoever waits; a thread has nobody else)
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        from kcache_grpc.server import ServerConfig, start_server

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = ServerConfig(
            db=f"sqlite:///{self._state_dir / 'kcache.sqlite'}",
            state_dir=self._state_dir,
            key_file=_key_file(self._state_dir),
            migrate=True,
            listen=(),
            socket=self._socket,
            workers=min(_MOST_WORKERS, len(os.sched_getaffinity(0))),
        )
        handle = await start_server(config)
        self._ready.set_result(None)
        await self._stop.wait()
        await handle.stop(_STOP_SECONDS)


class _Running:
    """The services of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runners: dict[tuple[int, Path | None], _Runner] = {}

    def forget(self) -> None:
        """In a forked child, whose parent's threads are not here."""
        self.lock = threading.RLock()
        # Kept from being collected: they are the parent's to end.
        _inherited.extend(self.runners.values())
        self.runners = {}


_inherited: list[_Runner] = []
_running = _Running()
os.register_at_fork(after_in_child=_running.forget)


def _at_shutdown(stop: Callable[[], None]) -> None:
    """Runs ``stop`` while threads can still be started: at ``atexit`` thread pools are gone already."""
    register = cast(
        "Callable[[Callable[[], None]], Any]", getattr(threading, "_register_atexit", atexit.register)
    )
    try:
        register(stop)
    except RuntimeError as error:
        raise Unavailable("the embedded service cannot be started while Python shuts down") from error

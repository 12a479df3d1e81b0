"""All settings of a server in one frozen object; the environment is read here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from kcache_grpc.errors import ArgumentError
from kcache_grpc.service.collection import MIN_AGE
from kcache_grpc.service.values import Limits
from kcache_grpc.storage import INLINE_BYTES
from kcache_grpc.worker import WorkerSettings

DEFAULT_PORT = 7420
#: Bytes: sun_path has 108, one of them a zero.
MAX_SOCKET_PATH = 107


@dataclass(frozen=True)
class ServerConfig:
    """How a server runs. Times in seconds, sizes in bytes, paths may be relative to the working directory.

    ``db``: a store's URL, such as ``sqlite:///kcache.sqlite``; a new one gets its schema, an older one is
    upgraded only with ``migrate``. ``objects``: URL of the object store for artifacts of more than
    ``objects_inline_bytes``; ``None``: all bytes are in ``db``. ``state_dir`` holds signing key and spool.
    ``disown``: take over a store that another key signed, whose kernels are then compiled anew.
    ``listen``: addresses ``host:port``; port 0 takes a free one. ``socket``: path of a Unix socket, in a
    directory of mode 0700 that is made if need be; ``None``: no socket.
    ``metrics``: ``host:port`` where Prometheus may scrape, in plain HTTP; empty: nowhere.
    ``workers``: compilers; 0: as many as CPUs. One more worker only parses. ``worker``: how they are started.
    """

    db: str
    state_dir: Path
    objects: str | None = None
    objects_inline_bytes: int = INLINE_BYTES
    migrate: bool = False
    disown: bool = False
    listen: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)
    socket: Path | None = None
    key_file: Path | None = None
    token: str = field(default="", repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    workers: int = 0
    grace: float = 30.0
    lease_ttl: float = 10.0
    failure_ttl: float = 3600.0
    evict_min_age: float = MIN_AGE
    spool_bytes: int = 4 << 30
    spool_ttl: float = 3600.0
    max_concurrent: int = 10_000
    heartbeat: float = 5.0
    limits: Limits = field(default_factory=Limits)
    metrics: str = ""
    log_format: str = "text"
    ready_file: Path | None = None
    worker: WorkerSettings = field(default_factory=WorkerSettings)

    def __post_init__(self) -> None:
        if not self.listen and self.socket is None:
            raise ArgumentError("the server has no address; set listen or socket")
        if self.log_format not in ("text", "json"):
            raise ArgumentError(f"log_format is {self.log_format!r}; use text or json")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs both tls_cert and tls_key")

    @property
    def compilers(self) -> int:
        """How many workers compile."""
        return self.workers or max(1, len(os.sched_getaffinity(0)))

    @property
    def signing_key(self) -> Path:
        """The server's identity."""
        return self.key_file or self.state_dir / "signing.key"

    @classmethod
    def from_env(cls, environ: Mapping[str, str], **overrides: Any) -> ServerConfig:
        """Settings from ``KCACHE_<NAME>``, those of ``LIMIT_VARIABLES`` included.

        ``overrides`` that are not ``None`` win. Raises ``ArgumentError`` that names an unreadable variable.
        """
        values: dict[str, Any] = {}
        for name, read in _READERS.items():
            variable = f"KCACHE_{name.upper()}"
            if environ.get(variable):
                values[name] = _read(variable, environ[variable], read)
        values.update({name: value for name, value in overrides.items() if value is not None})
        if (memory := values.pop("worker_memory", None)) is not None:
            values["worker"] = replace(values.get("worker", WorkerSettings()), memory_bytes=memory)
        limits = values.pop("limits", Limits())
        found = {
            name: _read(variable, environ[variable], read)
            for variable, (name, read) in LIMIT_VARIABLES.items()
            if environ.get(variable)
        }
        values.setdefault("state_dir", _default_state_dir(environ, values.get("db")))
        values["state_dir"] = Path(values["state_dir"])
        values.setdefault("db", f"sqlite:///{values['state_dir'] / 'kcache.sqlite'}")
        socket = values["state_dir"] / "run" / "kcache.sock"
        values.setdefault("socket", socket if fits_socket(socket) else None)
        return cls(**values, limits=replace(limits, **found))


def fits_socket(path: Path) -> bool:
    """Whether a Unix socket may have this name."""
    return len(os.fsencode(path.absolute())) <= MAX_SOCKET_PATH


def _paths(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "db": str,
    "objects": str,
    "objects_inline_bytes": int,
    "state_dir": Path,
    "listen": _paths,
    "socket": Path,
    "key_file": Path,
    "token": str,
    "tls_cert": Path,
    "tls_key": Path,
    "insecure": _flag,
    "migrate": _flag,
    "disown": _flag,
    "workers": int,
    "worker_memory": int,
    "grace": float,
    "lease_ttl": float,
    "failure_ttl": float,
    "evict_min_age": float,
    "spool_bytes": int,
    "spool_ttl": float,
    "max_concurrent": int,
    "metrics": str,
    "log_format": str,
    "ready_file": Path,
}

#: Environment variable -> field of ``Limits`` and how its text is read.
LIMIT_VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "KCACHE_MAX_PROGRAM_BYTES": ("program_bytes", int),
    "KCACHE_MAX_OPERATIONS": ("operations", int),
    "KCACHE_MAX_NESTING": ("nesting", int),
    "KCACHE_MAX_QUERIES": ("queries", int),
    "KCACHE_MAX_INLINE_ARTIFACT_BYTES": ("inline_artifact_bytes", int),
    "KCACHE_NORMALIZE_TIMEOUT": ("normalize_seconds", float),
    "KCACHE_COMPILE_TIMEOUT": ("compile_seconds", float),
    "KCACHE_DEFAULT_DEADLINE": ("default_deadline_seconds", float),
}


def _read(variable: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError:
        raise ArgumentError(f"{variable} is {text!r}, which is not a value of its kind") from None


def _default_state_dir(environ: Mapping[str, str], db: str | None) -> Path:
    """Beside an SQLite file, so that all its servers have one identity; else the user's state directory."""
    if db and db.startswith("sqlite:///"):
        return Path(db.removeprefix("sqlite:///")).resolve().parent / "kcache-state"
    home = environ.get("XDG_STATE_HOME")
    return Path(home) / "kcache" if home else Path(platformdirs.user_state_dir("kcache"))

"""All settings of a server in one frozen object; the environment is read here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.target import parse_target
from kcache_grpc.service.lifecycle.garbage_collection import MIN_AGE
from kcache_grpc.service.values import Limits
from kcache_grpc.storage import INLINE_BYTES
from kcache_grpc.worker import WorkerSettings, machine

DEFAULT_PORT = 7420
#: Bytes: sun_path has 108, one of them a zero.
MAX_SOCKET_PATH = 107
#: Bytes of a record that share a message of 4 MB with the rest of its assertion.
_MOST_ASSERTION_BYTES = 3 << 20


@dataclass(frozen=True)
class ServerConfig:
    """How a server runs. Times in seconds, sizes in bytes, paths may be relative to the working directory.

    ``db``: a store's URL, such as ``sqlite:///kcache.sqlite``; a new one gets its schema, an older one is
    upgraded only with ``migrate``. ``objects``: URL of the object store for artifacts of more than
    ``objects_inline_bytes``; ``None``: all bytes are in ``db``. ``state_dir`` holds signing key and spool.
    ``disown``: take over a store that another key signed, whose kernels are then compiled anew.
    ``default_key``: nobody named the signing key, although the store is not a file next to it: the key may be
    of another store, and no destructive command uses it.
    ``listen``: addresses ``host:port``; port 0 takes a free one. ``socket``: path of a Unix socket, in a
    directory of mode 0700 that is made if need be; ``None``: no socket. ``socket_optional``: while another
    server holds the socket, this one starts without it; so it is for the default path of ``from_env``.
    ``token``: what every caller shows; ``principals``: file of those who have their own tokens.
    ``metrics``: ``host:port`` where Prometheus may scrape, in plain HTTP; empty: nowhere.
    ``workers``: compilers at most; 0: as many as processors and memory allow. One more worker only parses.
    ``worker``: how they are started. ``verify_rate``: stored kernels that are verified an hour at most, while
    the server is idle; 0: none.
    ``prepare``: targets whose libraries, those that most kernels are linked with, are compiled while the
    server is idle; "host" is this machine's.
    ``preload``: bundles, and directories of bundles, that are imported at the start. ``trust_signer``: whose
    bundles may be imported in addition to those of ``signing_key``: identities of 64 hex digits, or files
    with one a line.
    """

    db: str
    state_dir: Path
    objects: str | None = None
    objects_inline_bytes: int = INLINE_BYTES
    migrate: bool = False
    disown: bool = False
    default_key: bool = False
    listen: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)
    socket: Path | None = None
    socket_optional: bool = False
    key_file: Path | None = None
    token: str = field(default="", repr=False)
    principals: Path | None = None
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
    verify_rate: float = 0.0
    prepare: tuple[str, ...] = ()
    preload: tuple[Path, ...] = ()
    trust_signer: tuple[str, ...] = ()
    worker: WorkerSettings = field(default_factory=WorkerSettings)

    def __post_init__(self) -> None:
        if not self.listen and self.socket is None:
            raise ArgumentError("the server has no address; set listen or socket")
        if self.log_format not in ("text", "json"):
            raise ArgumentError(f"log_format is {self.log_format!r}; use text or json")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs both tls_cert and tls_key")
        if not 0 <= self.verify_rate < float("inf"):
            raise ArgumentError(
                f"verify_rate is {self.verify_rate!r}; use a number of kernels an hour from 0"
            )
        for name in self.prepare:
            if name != "host":
                parse_target(name)
        if not 0 < self.limits.assertion_bytes <= _MOST_ASSERTION_BYTES:
            raise ArgumentError(
                f"the limit of the bytes of an assertion is {self.limits.assertion_bytes}; use 1 to "
                f"{_MOST_ASSERTION_BYTES}: it travels in one message"
            )

    @property
    def authenticates(self) -> bool:
        """Whether every call shows a token."""
        return bool(self.token) or self.principals is not None

    @property
    def compilers(self) -> int:
        """How many workers compile."""
        return self.workers or machine.compilers()

    @property
    def precompile_targets(self) -> tuple[str, ...]:
        """The names of ``prepare`` without "host": this machine's target in its place, if it has one."""
        names: dict[str, None] = {}
        for name in self.prepare:
            with suppress(ArgumentError):  # a machine that no target fits
                names[str(parse_target(name))] = None
        return tuple(names)

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
        configured = {
            name: _read(variable, environ[variable], read)
            for variable, (name, read) in LIMIT_VARIABLES.items()
            if environ.get(variable)
        }
        named = {"key_file", "state_dir"} & values.keys()
        values.setdefault("prepare", ("host",))
        values.setdefault("default_key", not named and _is_shared(values.get("db")))
        values.setdefault("state_dir", _default_state_dir(environ, values.get("db")))
        values["state_dir"] = Path(values["state_dir"])
        values.setdefault("db", f"sqlite:///{values['state_dir'] / 'kcache.sqlite'}")
        if "socket" not in values:
            socket = values["state_dir"] / "run" / "kcache.sock"
            values |= {"socket": socket if fits_socket(socket) else None, "socket_optional": True}
        return cls(**values, limits=replace(limits, **configured))


def fits_socket(path: Path) -> bool:
    """Whether a Unix socket may have this name."""
    return len(os.fsencode(path.absolute())) <= MAX_SOCKET_PATH


def _paths(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def per_hour(text: str) -> float:
    """A rate such as ``20``, ``20/hour``, ``1/minute`` or ``100/day``, an hour. Raises ``ValueError``."""
    number, _, unit = text.partition("/")
    hours = {"": 1.0, "minute": 1 / 60, "hour": 1.0, "day": 24.0}.get(unit.strip().lower())
    rate = float(number)
    if hours is None or not 0 <= rate < float("inf"):
        raise ValueError(text)
    return rate / hours


def precompile_targets(text: str) -> tuple[str, ...]:
    """The targets of a list such as ``host,x86-64-v3``; none for ``none``."""
    return () if text.strip() == "none" else _paths(text)


def _directories(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(":") if part)


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
    "principals": Path,
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
    "verify_rate": per_hour,
    "prepare": precompile_targets,
    "preload": _directories,
    "trust_signer": _paths,
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
    "KCACHE_MAX_NAMESPACES": ("namespaces", int),
    "KCACHE_MAX_ASSERTION_BYTES": ("assertion_bytes", int),
}


def _read(variable: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError:
        raise ArgumentError(f"{variable} is {text!r}, which is not a value of its kind") from None


def _is_shared(db: str | None) -> bool:
    """Whether the store is none of this user's: a database server."""
    return bool(db) and not str(db).startswith(("sqlite:", "memory:"))


def _default_state_dir(environ: Mapping[str, str], db: str | None) -> Path:
    """Next to an SQLite file, so that all its servers have one identity; else the user's state directory."""
    if db and db.startswith("sqlite:///"):
        return Path(db.removeprefix("sqlite:///")).resolve().parent / "kcache-state"
    home = environ.get("XDG_STATE_HOME")
    return Path(home) / "kcache" if home else Path(platformdirs.user_state_dir("kcache"))

"""The configuration of a client: one frozen object, and the one place that reads the environment.

=========================  ==================================================================================
KCACHE_ADDR                ``host:port`` or ``unix:/path`` of the service; unset: the embedded one
KCACHE_NAMESPACE           key space, ``default``
KCACHE_TOKEN               bearer token
KCACHE_TLS                 ``system``, or a PEM file with the authorities to trust
KCACHE_CACHE_DIR           directory of the local tiers, ``$XDG_CACHE_HOME/kcache``
KCACHE_SERVER_ID           the server's identity, instead of the one pinned at first contact
KCACHE_TIMEOUT             seconds that one call may take, 600
KCACHE_ACTOR               who asks, for the service's audit log; the name of the user
KCACHE_JOB                 what for, such as the id of a training job
KCACHE_COMPATIBLE_TARGETS  whether kernels for lower targets will do: yes or no; unset: as the namespace says
KCACHE_PRELOAD             bundles, or directories of them, separated by ``:``
KCACHE_TRUST               identities whose bundles are trusted, separated by commas
=========================  ==================================================================================
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kcache_grpc.errors import ArgumentError

Tls = bool | bytes | str | os.PathLike[str] | None

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_SERVER_ID = re.compile(r"[0-9a-f]{64}")
#: Bytes of what a caller says of itself.
_MOST_SAID = 128

DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True)
class ClientConfig:
    """All settings of one client. Raises ``ArgumentError`` for values that cannot be meant."""

    #: ``None``: the embedded service.
    address: str | None
    cache_dir: Path
    namespace: str = "default"
    token: str | None = field(default=None, repr=False)
    #: ``True``: the system's authorities; bytes: a PEM; str or path: a file with one.
    tls: Tls = field(default=None, repr=False)
    server_id: str | None = None
    #: Seconds for one call of the client, all retries included.
    timeout: float = DEFAULT_TIMEOUT
    #: Never falls back to the embedded service.
    strict: bool = False
    #: Who asks and what for: sent with every request, for the audit log of the service.
    actor: str = ""
    job: str = ""
    #: Whether stored kernels for lower targets will do where ``Options`` leave it open; ``None``: as the
    #: namespace says.
    compatible_targets: bool | None = None
    #: Bundles and directories of bundles that are searched before the disk tier and the service.
    preload: tuple[str, ...] = ()
    #: Identities whose bundles are trusted in addition to those of the services.
    trust: tuple[str, ...] = ()
    #: Kernels kept in memory; bytes of program texts in memory by which kernels are found without a digest.
    memory_kernels: int = 1024
    memory_program_bytes: int = 64 << 20
    #: Bytes of the disk tier, all servers together.
    disk_bytes: int = 4 << 30
    #: Seconds for which the server's answer about itself holds: the longest that a raised epoch stays unseen.
    freshness: float = 60.0
    #: Grace period in seconds until a server counts as unavailable: one that never answered, one that did.
    grace_period_new: float = 2.0
    grace_period_known: float = 8.0

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ArgumentError(
                f"namespace {self.namespace!r}: use at most 128 of a-z 0-9 . _ -, first a letter or digit"
            )
        if self.server_id is not None and not _SERVER_ID.fullmatch(self.server_id):
            raise ArgumentError(f"server_id {self.server_id!r} is not 64 lower-case hex digits")
        if not 0 < self.timeout < float("inf"):
            raise ArgumentError(f"timeout is {self.timeout!r}; use a number of seconds above 0")
        for name, text in (("actor", self.actor), ("job", self.job)):
            if "\0" in text or len(text.encode("utf-8", "replace")) > _MOST_SAID:
                raise ArgumentError(f"{name} {text[:40]!r}: use at most {_MOST_SAID} bytes, without NUL")
        for identity in self.trust:
            if not _SERVER_ID.fullmatch(identity):
                raise ArgumentError(
                    f"KCACHE_TRUST: {identity!r} is no identity of a signer: use 64 lower-case hex digits"
                )


def from_environment(
    address: str | None = None,
    *,
    namespace: str | None = None,
    token: str | None = None,
    tls: Tls = None,
    cache_dir: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    strict: bool = False,
    server_id: str | None = None,
    actor: str | None = None,
    job: str | None = None,
    compatible_targets: bool | None = None,
    environment: Mapping[str, str] | None = None,
) -> ClientConfig:
    """What was given, else what the environment says, else the defaults. Empty variables count as unset."""
    variables = os.environ if environment is None else environment
    home = cache_dir or variables.get("KCACHE_CACHE_DIR") or _user_cache_dir()
    return ClientConfig(
        address=address or variables.get("KCACHE_ADDR") or None,
        cache_dir=Path(home).expanduser().absolute(),
        namespace=namespace or variables.get("KCACHE_NAMESPACE") or "default",
        token=token or variables.get("KCACHE_TOKEN") or None,
        tls=tls if tls is not None else _tls(variables.get("KCACHE_TLS")),
        server_id=server_id or variables.get("KCACHE_SERVER_ID") or None,
        timeout=timeout if timeout is not None else _seconds(variables.get("KCACHE_TIMEOUT")),
        strict=strict,
        actor=actor if actor is not None else variables.get("KCACHE_ACTOR") or _user(),
        job=job if job is not None else variables.get("KCACHE_JOB") or "",
        compatible_targets=compatible_targets
        if compatible_targets is not None
        else _flag("KCACHE_COMPATIBLE_TARGETS", variables.get("KCACHE_COMPATIBLE_TARGETS")),
        preload=tuple(filter(None, variables.get("KCACHE_PRELOAD", "").split(os.pathsep))),
        trust=tuple(filter(None, map(str.strip, variables.get("KCACHE_TRUST", "").split(",")))),
        grace_period_new=3.0 if strict else ClientConfig.grace_period_new,
        grace_period_known=30.0 if strict else ClientConfig.grace_period_known,
    )


def _flag(name: str, text: str | None) -> bool | None:
    """Yes or no; ``None`` for an empty variable. Raises ``ArgumentError`` naming it."""
    if not text:
        return None
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ArgumentError(f"{name} is {text!r}; use yes or no")


def _user_cache_dir() -> str:
    import platformdirs

    return platformdirs.user_cache_dir("kcache", False)


def _tls(text: str | None) -> Tls:
    return True if text == "system" else text or None


def _user() -> str:
    """The user's name, as far as the system knows it and it can be sent."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
    return name if name.isprintable() and len(name.encode("utf-8", "replace")) <= _MOST_SAID else ""


def _seconds(text: str | None) -> float:
    if not text:
        return DEFAULT_TIMEOUT
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentError(f"KCACHE_TIMEOUT is {text!r}; use a number of seconds") from error


@lru_cache(maxsize=1)
def package_version() -> str:
    """As installed; ``0+unknown`` in a source tree that is not."""
    try:
        return version("kcache-grpc")
    except PackageNotFoundError:
        return "0+unknown"

"""The store that a command works on directly, and what the commands for operators share."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.server_extra import require_extra

if TYPE_CHECKING:
    from kcache_grpc.server import ServerConfig
    from kcache_grpc.service.admin.operations import Administration
    from kcache_grpc.storage import Store
    from kcache_grpc.storage.records import Namespace

Db = Annotated[
    str | None,
    typer.Option(envvar="KCACHE_DB", help="Store to work on. Default: that of kcache serve."),
]
OneNamespace = Annotated[str, typer.Option("--namespace", "-n", help="Key space.")]
Namespaces = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Key space. Without it all of them.")
]
StateDir = Annotated[Path | None, typer.Option(help="Directory of the server's signing key.")]
KeyFile = Annotated[Path | None, typer.Option(help="The server's signing key.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Apply = Annotated[bool, typer.Option("--dry-run/--apply", help="Only say what would be done, or do it.")]
Reason = Annotated[str, typer.Option(help="Why, for those who read the audit log.")]

_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[KMGT]?)(?:i?B)?")
_BYTES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def settings(db: str | None, state_dir: Path | None = None, key_file: Path | None = None) -> ServerConfig:
    """As a server would have them. Raises ``NotFound`` without the server extra."""
    require_extra("for operators")
    from kcache_grpc.server import ServerConfig

    return ServerConfig.from_env(os.environ, db=db, state_dir=state_dir, key_file=key_file)


def signing_key(config: ServerConfig) -> Path | None:
    """The file of the key that signs what the store holds; ``None`` where there is none. Makes none.

    The default key of the user is not taken for that of a database server, which may be of other people.
    Raises ``NotFound`` for a file that was named and is not there.
    """
    if config.default_key:
        return None
    if config.signing_key.exists():
        return config.signing_key
    if config.key_file is not None:
        raise NotFound(f"there is no signing key at {config.key_file}; name it with --key-file")
    return None


@contextmanager
def opened(db: str | None) -> Generator[Store]:
    """The store, which is there: a command for operators makes none."""
    from kcache_grpc.storage import open_store

    config = settings(db)
    with open_store(config.db, objects=config.objects, inline_bytes=config.objects_inline_bytes) as store:
        yield store


@contextmanager
def administered(db: str | None) -> Generator[tuple[Store, Administration]]:
    """The store, and what may be done to it in the user's name."""
    with opened(db) as store:
        from kcache_grpc.client.config import package_version
        from kcache_grpc.service.admin.operations import Administration
        from kcache_grpc.service.values import Caller

        who = Caller(client=f"kcache-cli/{package_version()}", peer=f"user:{_user()}@{socket.gethostname()}")
        yield store, Administration(store, who)


def say_how_to_apply(dry_run: bool) -> None:
    """A line on stderr after a dry run, for those who expected more."""
    if dry_run:
        from kcache_grpc.cli import output

        output.warn("nothing was changed: this was a dry run; repeat the command with --apply")


def chosen(store: Store, name: str | None) -> list[Namespace]:
    """The namespace of that name, or all. Raises ``NotFound``."""
    if name is None:
        return list(store.list_namespaces())
    namespace = store.find_namespace(name)
    if namespace is None:
        raise NotFound(f"the store has no namespace {name}", namespace=name)
    return [namespace]


def seconds(text: str, option: str) -> float:
    """``90``, ``15m``, ``36h``, ``30d``. Raises ``ArgumentError``."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ArgumentError(f"{option}: {text!r} is not a duration such as 90s, 15m, 36h or 30d")
    return float(match["number"]) * _SECONDS[match["unit"]]


def size(text: str, option: str) -> int:
    """``1000``, ``64K``, ``20G``: powers of 1024. Raises ``ArgumentError``."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ArgumentError(f"{option}: {text!r} is not a size such as 1000, 512M or 20G")
    return int(float(match["number"]) * (1 << _BYTES[match["unit"]]))


def digest(text: str, subject: str) -> bytes:
    """64 hex digits. Raises ``ArgumentError``."""
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != 32:
        raise ArgumentError(f"{text!r} is not a {subject}: 64 hex digits")
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

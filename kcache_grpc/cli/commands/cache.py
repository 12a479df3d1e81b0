"""``kcache cache``: what this user's cache directory holds, and how to empty it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import ArgumentError, KcacheError

#: Directories of the client's disk tier, of imported bundles, of what servers said of themselves, and of
#: caches of plain values.
_DISK_TIER = ("kernels", "blobs", "imported", "servers", "caches")
#: Directories with identities that the user trusts: they stay.
_TRUST = ("pins", "signers")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True)
class Part:
    """One part of the cache directory. ``entries`` are kernels of a store, files of other parts."""

    part: str
    path: str
    entries: int | None
    bytes: int
    #: What is wrong with it; empty: nothing that was found.
    problem: str = ""


def info(json: o.Json = False, cache_dir: o.CacheDir = None, debug: o.Debug = False) -> None:
    """Show the parts of the cache directory: disk tier, caches, embedded store, damaged stores, trust."""
    directory = _directory(cache_dir)
    parts = _parts(directory)
    described = {"cache_dir": str(directory), "parts": [asdict(part) for part in parts]}
    output.show(described, json, lambda: _page(directory, parts))


def clear(
    yes: Yes = False, json: o.Json = False, cache_dir: o.CacheDir = None, debug: o.Debug = False
) -> None:
    """Remove kernels and caches on disk, the embedded store with its keys, and damaged stores.

    Pins and trusted signers stay. Asks before it does so. Rejected while a program uses the embedded service.
    """
    from kcache_grpc import embedded

    directory = _directory(cache_dir)
    parts = [part for part in _parts(directory) if part.part not in _TRUST]
    if parts and not yes:
        _ask(directory, parts)
    for path in (*embedded.directories(directory), *embedded.damaged_directories(directory)):
        embedded.remove(path)
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        embedded.state_dir(directory).unlink()  # where something else has its name
    for name in _DISK_TIER:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory / name)
    removed = sum(part.bytes for part in parts)
    described = {
        "cache_dir": str(directory),
        "removed_bytes": removed,
        "removed": [part.path for part in parts],
    }
    output.show(described, json, lambda: f"removed {output.count(removed, 'byte')} from {directory}")


def application() -> typer.Typer:
    """``kcache cache`` and its commands."""
    app = typer.Typer(no_args_is_help=True)
    app.command("info")(info)
    app.command("clear")(clear)
    return app


def check_embedded_store(cache_dir: Path) -> tuple[str, str, str]:
    """State, detail and advice of the embedded service's store, for ``kcache doctor``."""
    from kcache_grpc import embedded

    reports = [_store(path) for path in embedded.directories(cache_dir)]
    damaged = [part for part in reports if part.problem]
    if damaged:
        detail = "; ".join(f"{part.path}: {part.problem}" for part in damaged)
        return "warning", detail, "its directory is renamed at its next use; or run: kcache cache clear"
    damaged = embedded.damaged_directories(cache_dir)
    if damaged:
        detail = f"directories of damaged stores: {', '.join(map(str, damaged))}"
        return "warning", detail, "to remove them, run: kcache cache clear"
    if not reports:
        return "ok", f"{embedded.state_dir(cache_dir)} will be made at first use", ""
    contents = ", ".join(f"{part.path}, {output.count(part.entries or 0, 'kernel')}" for part in reports)
    return "ok", contents, ""


def _directory(cache_dir: Path | None) -> Path:
    from kcache_grpc.client.config import from_environment

    return from_environment(cache_dir=cache_dir).cache_dir


def _parts(directory: Path) -> list[Part]:
    from kcache_grpc import embedded

    parts = [_files(name, directory / name) for name in (*_DISK_TIER, *_TRUST) if (directory / name).is_dir()]
    parts += [_store(path) for path in embedded.directories(directory)]
    misplaced = embedded.state_dir(directory)
    if misplaced.is_file():
        parts.append(Part("embedded store", str(misplaced), None, _size(misplaced), "it is not a directory"))
    parts += [_files("damaged store", path) for path in embedded.damaged_directories(directory)]
    return parts


def _files(name: str, path: Path) -> Part:
    files = [each for each in path.rglob("*") if each.is_file()]
    return Part(name, str(path), len(files), sum(map(_size, files)))


def _store(directory: Path) -> Part:
    from kcache_grpc import embedded

    files = _files("embedded store", directory)
    path = embedded.store_file(directory)
    if not path.exists():
        return Part("embedded store", str(directory), 0, files.bytes)
    try:
        kernels, problem = _kernels(path), _damage(path)
    except (sqlite3.Error, OSError) as error:
        return Part("embedded store", str(path), None, files.bytes, str(error))
    return Part("embedded store", str(path), kernels, files.bytes, problem)


def _kernels(path: Path) -> int:
    with contextlib.closing(_read_only(path)) as connection:
        [count] = connection.execute("SELECT count(*) FROM kernels").fetchone()
        return int(count)


def _damage(path: Path) -> str:
    """What SQLite and the signing key say; empty: nothing wrong."""
    from kcache_grpc.model.signing import Signer

    with contextlib.closing(_read_only(path)) as connection:
        [verdict] = connection.execute("PRAGMA quick_check(1)").fetchone()
        signer = connection.execute("SELECT value FROM store_meta WHERE name = 'signer'").fetchone()
    if verdict != "ok":
        return str(verdict)
    key = path.with_name("signing.key")
    if signer is None:
        return ""
    try:
        known = key.exists() and Signer.from_file(key).key_id.hex() == signer[0]
    except KcacheError as error:
        return error.message
    return "" if known else f"{key} is not the key that signed it"


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # gone since it was listed


def _ask(directory: Path, parts: Sequence[Part]) -> None:
    """Raises ``ArgumentError`` where nobody can answer, ``typer.Abort`` for a no."""
    import sys

    total = sum(part.bytes for part in parts)
    names = ", ".join(dict.fromkeys(part.part for part in parts))
    if not sys.stdin.isatty():
        raise ArgumentError(
            f"this removes {output.count(total, 'byte')} from {directory} ({names}); confirm it with --yes"
        )
    typer.confirm(f"Remove {output.count(total, 'byte')} from {directory} ({names})?", abort=True, err=True)


def _page(directory: Path, parts: Sequence[Part]) -> Any:
    if not parts:
        return f"{directory} holds nothing"
    problems = any(part.problem for part in parts)
    return output.rows(
        [
            {
                "part": part.part,
                "entries": part.entries,
                "bytes": part.bytes,
                "path": part.path,
                **({"problem": part.problem} if problems else {}),
            }
            for part in parts
        ]
    )

"""Bundles that a server imports when it starts. A bad one is logged, and never a reason not to start."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kcache_grpc.bundle import SUFFIX, open_bundle
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.service.bundles.bundles import Bundles
from kcache_grpc.service.bundles.importing import REJECTED, Imported
from kcache_grpc.service.values import Caller

logger = logging.getLogger("kcache.service")

_IDENTITY = re.compile(r"[0-9a-f]{64}\Z")
#: Rejected entries of one bundle that are logged one by one.
_MOST_LOGGED = 100


async def preload(bundles: Bundles, paths: Iterable[Path]) -> None:
    """Imports bundles, and all ``*.kcb`` of directories, each into the namespace that it was made of.

    What is ignored is logged with its reason. Raises nothing of kcache.
    """
    for path in await asyncio.to_thread(lambda: [*_files(paths)]):
        try:
            await _preload(bundles, path)
        except KcacheError as error:  # noqa: PERF203 (each bundle may fail)
            logger.warning("bundle %s is not preloaded: %s", path, error.message)


async def _preload(bundles: Bundles, path: Path) -> None:
    bundle = await asyncio.to_thread(open_bundle, path)
    with bundle:
        caller = Caller(namespace=bundle.metadata.namespace, actor="preload")
        rejected = 0
        async for done in bundles.add(caller, bundle):
            if isinstance(done, Imported):
                logger.info(
                    "bundle %s is preloaded: %d new, %d present, %d rejected",
                    path, done.new, done.present, done.rejected,
                )  # fmt: skip
                continue
            for entry in done:
                if entry.outcome == REJECTED:
                    rejected += 1
                    _log_rejected(path, f"{entry.kind.label} {entry.name}", entry.reason, rejected)


def _log_rejected(path: Path, entry: str, reason: str, count: int) -> None:
    if count <= _MOST_LOGGED:
        logger.warning("%s of bundle %s is not preloaded: %s", entry, path, reason)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises for a name that is too long)
            yield path
            continue
        try:
            files = sorted(each for each in path.iterdir() if each.suffix == SUFFIX)
        except OSError as error:
            logger.warning("the bundles of directory %s are not preloaded: %s", path, error.strerror)
            continue
        if not files:
            logger.warning("directory %s has no bundle (*%s)", path, SUFFIX)
        yield from files


def read_signers(texts: Iterable[str]) -> frozenset[str]:
    """Identities of trusted signers: each text is one, 64 hex digits, or a file with one a line.

    Empty lines, and what follows ``#``, are left out. Raises ``ArgumentError``.
    """
    return frozenset(identity for text in texts for identity in _identities(text))


def _identities(text: str) -> Iterator[str]:
    if _IDENTITY.match(text.lower()):
        yield text.lower()
        return
    try:
        lines = Path(text).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"trusted signer {text[:200]!r} is neither an identity of 64 hex digits nor a readable file with "
            f"identities: {error}",
            field="trusted_signers",
        ) from error
    for number, line in enumerate(lines, 1):
        identity = line.partition("#")[0].strip().lower()
        if identity and not _IDENTITY.match(identity):
            raise ArgumentError(
                f"line {number} of {text} is no identity of a signer: 64 hex digits", field="trusted_signers"
            )
        if identity:
            yield identity

"""Signers of bundles that this user trusts, one file each, beside the pins of servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from kcache_grpc.errors import ArgumentError
from kcache_grpc.local_files import read_regular, write_whole
from kcache_grpc.model.signing import key_id_of, server_id


def read_identities(trust: str | Iterable[str] | None) -> frozenset[str]:
    """Identities that a caller names: one, or several. Raises ``ArgumentError`` for what is none."""
    names = (trust,) if isinstance(trust, str) else tuple(trust or ())
    for name in names:
        if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            raise ArgumentError(
                f"{name!r} is no identity of a signer: use 64 lower-case hex digits, as kcache bundle "
                "list prints"
            )
    return frozenset(names)


class TrustedSigners:
    """Public keys by identity, in files ``<directory>/<identity>.json``. Thread-safe.

    A key is added by an import that trusts it, and is trusted from then on; removing its file ends that.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def add(self, public_key: bytes, source: str) -> bool:
        """Trusts a key durably; whether it was not before. Raises ``OSError``."""
        if self._directory is None:
            return False
        record = {"public_key": public_key.hex(), "trusted_at": int(time.time()), "source": source}
        path = self._directory / f"{server_id(public_key)}.json"
        return write_whole(path, json.dumps(record, indent=1).encode() + b"\n", replace=False)

    def keys(self) -> dict[bytes, bytes]:
        """Raw public keys by key id. Damaged files, and such whose key does not have its name, do not
        count.
        """
        if self._directory is None:
            return {}
        keys = (_read_key(path) for path in self._directory.glob("*.json"))
        return {key_id_of(key): key for key in keys if key}

    def identities(self) -> frozenset[str]:
        """The identities that are trusted."""
        return frozenset(server_id(key) for key in self.keys().values())


def _read_key(path: Path) -> bytes:
    """The key in a file; empty where it has none, or that of another identity."""
    try:
        record: Any = json.loads(read_regular(path))
        key = bytes.fromhex(cast("dict[str, str]", record)["public_key"])
    except (OSError, ValueError, KeyError, TypeError):
        return b""
    return key if len(key) == 32 and server_id(key) == path.stem else b""

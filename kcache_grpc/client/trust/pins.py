"""What this user trusts, in files: identities of servers at first contact, and signers of bundles.

A server is pinned: later contacts are compared with the identity that it had at the first one.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.config import from_environment
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.local_files import file_name, read_regular, write_whole
from kcache_grpc.model.signing import key_id_of, server_id


@dataclass(frozen=True)
class PinnedServer:
    """The identity that was pinned at an address, and when (ISO 8601)."""

    address: str
    server_id: str
    moment: str
    path: Path


class Pins:
    """Which key was seen first at which address, one file each; ``None``: remembered by this object only."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._seen: dict[str, str] = {}

    def path(self, target: str) -> Path | None:
        """Where the pin of an address is kept."""
        if self._directory is None:
            return None
        return self._directory / f"{file_name(target)}.json"

    def check(self, endpoint: Endpoint, server_id: str) -> None:
        """Pins the key of a new address. Raises ``IntegrityError`` when it is not the expected one."""
        if endpoint.server_id is not None:
            if server_id != endpoint.server_id:
                raise IntegrityError(
                    f"the server at {endpoint.target} has the identity {server_id}, not {endpoint.server_id} "
                    "as asked for (server_id, KCACHE_SERVER_ID), which counts instead of a pin: it was set "
                    "up anew, or somebody else answers in its place. Nothing was loaded. To trust the new "
                    f"identity, set KCACHE_SERVER_ID={server_id}; or leave it unset, and run: "
                    f"{self.forget_command(endpoint.target)}",
                    expected=endpoint.server_id,
                    found=server_id,
                )
            return
        pinned = self._seen.get(endpoint.target) or self._pinned(endpoint.target, server_id)
        if pinned != server_id:
            raise IntegrityError(
                self._changed(endpoint.target, pinned, server_id), expected=pinned, found=server_id
            )
        self._seen[endpoint.target] = pinned

    def all(self) -> list[PinnedServer]:
        """What is pinned, by address; files that are damaged have an empty identity."""
        pins: list[PinnedServer] = []
        for path in sorted(self._directory.glob("*.json")) if self._directory else ():
            record = _read_pin(path)
            seconds = record.get("pinned_at")
            known = isinstance(seconds, int)
            moment = datetime.fromtimestamp(seconds, timezone.utc).isoformat() if known else ""
            address = str(record.get("address") or unquote(path.stem))
            pins.append(PinnedServer(address, str(record.get("server_id", "")), moment, path))
        return pins

    def forget(self, target: str) -> Path | None:
        """Removes the pin of an address; the file that it was, ``None`` where there was none."""
        self._seen.pop(target, None)
        path = self.path(target)
        if path is None or not path.exists():
            return None
        path.unlink()
        return path

    def advice(self, target: str) -> str:
        """Where the identity of an address is pinned, and how to trust another one; empty: it is not."""
        path = self.path(target)
        if path is None or not path.exists():
            return ""
        return (
            f" ({path}): the server at {target} was set up anew, or somebody else answers in its place. To "
            f"trust the new identity, run: {self.forget_command(target)}"
        )

    def forget_command(self, target: str) -> str:
        """What to type so that the identity of an address is pinned anew."""
        command = f"kcache pins forget {shlex.quote(target)}"
        if self._directory is None or self._directory.parent == from_environment().cache_dir:
            return command
        return f"{command} --cache-dir {shlex.quote(str(self._directory.parent))}"

    def _pinned(self, target: str, server_id: str) -> str:
        path = self.path(target)
        if path is None:
            return server_id
        record = {"address": target, "server_id": server_id, "pinned_at": int(time.time())}
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(record, indent=1).encode() + b"\n", replace=False)
        return self.known(target) or server_id

    def known(self, target: str) -> str | None:
        """The pinned identity of an address. Raises ``IntegrityError`` for a file that is none of ours."""
        if target in self._seen:
            return self._seen[target]
        path = self.path(target)
        if path is None:
            return None
        if not path.exists():
            return None
        server_id = _read_pin(path).get("server_id")
        if not isinstance(server_id, str):
            raise IntegrityError(
                f"{path} is damaged: it does not name the identity that was pinned for {target}. To pin the "
                f"identity that the server there has now, run: {self.forget_command(target)}",
                damaged="pin",
                path=str(path),
            )
        return server_id

    def _changed(self, target: str, pinned: str, identity: str) -> str:
        path = self.path(target)
        where = f" in {path}" if path else ""
        forget = f"run: {self.forget_command(target)}" if path else "make a new client"
        return (
            f"the server at {target} shows the identity {identity}, but {pinned} was pinned there{where}: it "
            "was set up anew, or somebody else answers in its place. Nothing was loaded. To trust the new "
            f"identity, {forget}; or set KCACHE_SERVER_ID={identity}"
        )


def _read_pin(path: Path) -> dict[str, Any]:
    """The record of a pin; empty for a file that is damaged."""
    try:
        record: Any = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}


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

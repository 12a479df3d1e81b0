"""Pins: the identity that a server had at first contact, with which later ones are compared."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.config import from_environment
from kcache_grpc.errors import IntegrityError
from kcache_grpc.local_files import file_name, read_regular, write_whole


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

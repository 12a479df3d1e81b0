"""The file of results: a JSON value a line, so that what was written before a crash is kept.

``session`` begins a run on a device, ``result`` is a case, ``sanitizer`` a run of compute-sanitizer, ``end``
why a session ended.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any

from kcache_grpc.errors import KcacheError


class Results:
    """Reads what a file has, and appends to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def begin(self, session: dict[str, Any], again: bool) -> set[str]:
        """Begins a session. Returns the cases that are done: with this pack, target and device.

        With ``again``, only cases that were right are done. Raises ``OSError`` if the file cannot be written,
        ``KcacheError`` if another run writes to it, or it has no results.
        """
        if self._path.exists() and not self._path.is_file():
            raise KcacheError(f"{self._path} is no file")
        self._file = self._path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KcacheError(f"another run writes to {self._path}: name another file by --json") from None
        lines, empty = read(self._path), not self._path.stat().st_size
        if not empty and not any("session" in line for _, line in lines):
            raise KcacheError(f"{self._path} is no file of results: name another file by --json")
        done = set[str]()
        for earlier, message in lines:
            result = message.get("result")
            same = all(earlier.get(key) == session[key] for key in ("pack", "target", "device"))
            if result and same:
                done.discard(result["case"])
                if not again or result["status"] == "right":
                    done.add(result["case"])
        if not empty and not self._path.read_bytes().endswith(b"\n"):
            self._append("\n")
        self.add({"session": session})
        return done

    def add(self, message: dict[str, Any]) -> None:
        """Appends a line, on disk when this returns."""
        self._append(json.dumps(message) + "\n")

    def _append(self, text: str) -> None:
        assert self._file is not None
        self._file.write(text)
        self._file.flush()
        os.fsync(self._file.fileno())


def read(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Session and line of each line of a file that is whole; empty if there is no file."""
    found, session = list[tuple[dict[str, Any], dict[str, Any]]](), dict[str, Any]()
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue  # a line that a crash cut
        if isinstance(message, dict) and isinstance(message.get("session", {}), dict):
            found.append((session := message.get("session", session), message))
    return found

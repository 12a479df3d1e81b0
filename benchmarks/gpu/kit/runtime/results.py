"""The file of results: a JSON value a line, so that what was written before a crash is kept.

``session`` begins a run on a device, ``result`` is a case, ``sanitizer`` a run of compute-sanitizer, ``end``
why a session ended.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Results:
    """Reads what a file has, and appends to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, session: dict[str, Any], again: bool) -> set[str]:
        """Begins a session. Returns the cases that are done: with this pack, target and device.

        With ``again``, only cases that were right are done.
        """
        done = set[str]()
        for earlier, message in read(self._path):
            result = message.get("result")
            same = all(earlier.get(key) == session[key] for key in ("pack", "target", "device"))
            if result and same:
                done.discard(result["case"])
                if not again or result["status"] == "right":
                    done.add(result["case"])
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            self._append("\n")
        self.add({"session": session})
        return done

    def add(self, message: dict[str, Any]) -> None:
        """Appends a line, on disk when this returns."""
        self._append(json.dumps(message) + "\n")

    def _append(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def read(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Session and line of each line of a file that is whole; empty if there is no file."""
    found, session = list[tuple[dict[str, Any], dict[str, Any]]](), dict[str, Any]()
    if not path.exists():
        return found
    for line in path.read_text().splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue  # a line that a crash cut
        session = message.get("session", session)
        found.append((session, message))
    return found

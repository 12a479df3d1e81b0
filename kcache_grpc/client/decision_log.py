"""The log of decisions of frameworks' backends, which ``kcache explain --torch`` shows.

A line of JSON for each graph, appended to ``torch-decisions.jsonl`` in the cache directory. At 1 MiB the file
becomes ``torch-decisions.jsonl.1``, in place of an older one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcache_grpc.local_files import own_directory, read_regular

_NAME = "torch-decisions.jsonl"
_MOST_BYTES = 1 << 20


def append(directory: Path, decision: Mapping[str, Any]) -> None:
    """Add a decision. A log that cannot be written is left as it is: it is for people only."""
    path = directory / _NAME
    line = json.dumps(decision, separators=(",", ":")).encode() + b"\n"
    with contextlib.suppress(OSError):
        if own_directory(directory):
            return
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            path.replace(path.with_name(f"{_NAME}.1"))
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(line)


def read(directory: Path, count: int) -> list[dict[str, Any]]:
    """The last decisions, the oldest first; lines that are damaged are left out."""
    lines: list[bytes] = []
    for name in (f"{_NAME}.1", _NAME):
        with contextlib.suppress(OSError):
            lines += read_regular(directory / name).splitlines()
    decisions: list[dict[str, Any]] = []
    for line in lines[-count:]:
        with contextlib.suppress(ValueError):
            decision = json.loads(line)
            if isinstance(decision, dict):
                decisions.append(decision)  # pyright: ignore[reportUnknownArgumentType]
    return decisions

"""Reads the corpus: one compressed file a graph, its programs separated as MLIR's tools separate modules."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
_SEPARATOR = "// -----\n"


@dataclass(frozen=True)
class Entry:
    """A graph of the corpus: its text at each of its sizes. ``free`` sizes may vary under one key."""

    name: str
    framework: str
    free: tuple[str, ...]
    sizes: tuple[dict[str, int], ...]
    texts: tuple[str, ...]


def write(path: Path, entry: Entry) -> None:
    """Write a file of the corpus; the same bytes each time."""
    head = {"graph": entry.name, "framework": entry.framework, "free": entry.free}
    parts = [f"// {json.dumps(head)}\n"]
    parts += [
        f"// {json.dumps(sizes)}\n{text.rstrip()}\n"
        for sizes, text in zip(entry.sizes, entry.texts, strict=True)
    ]
    path.write_bytes(gzip.compress(_SEPARATOR.join(parts).encode(), 9, mtime=0))


@cache
def read(name: str) -> Entry:
    """Return a graph by name."""
    head, *parts = gzip.decompress((CORPUS / f"{name}.mlir.gz").read_bytes()).decode().split(_SEPARATOR)
    about = json.loads(head.removeprefix("// "))
    pieces = [part.removeprefix("// ").split("\n", 1) for part in parts]
    return Entry(
        about["graph"],
        about["framework"],
        tuple(about["free"]),
        tuple(json.loads(sizes) for sizes, _ in pieces),
        tuple(text for _, text in pieces),
    )


NAMES = sorted(path.name.removesuffix(".mlir.gz") for path in CORPUS.glob("*.mlir.gz"))

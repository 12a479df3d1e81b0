"""An empty SQLite store for whoever wants one: migrated once a process, and copied."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from kcache_grpc.storage import migrate


@functools.cache
def _content() -> bytes:
    with tempfile.TemporaryDirectory(prefix="kc-fresh-") as folder:
        path = Path(folder) / "store.sqlite"
        migrate(f"sqlite:///{path}")
        return path.read_bytes()


def fresh_store(path: Path) -> None:
    """A store without rows at ``path``, where there is none yet. All of them have one id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(_content())

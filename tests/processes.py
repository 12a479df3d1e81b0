"""Process ids of what a process started."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """Children of all threads of a process; none of one that is gone."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            pids += map(int, (thread / "children").read_text().split())
    return pids


def workers(pid: int) -> list[int]:
    """Workers of a service in process ``pid``: children of its fork servers."""
    return [worker for server in children(pid) for worker in children(server)]

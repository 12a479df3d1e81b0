"""Processor time of servers, their workers and their Postgres, by kind of process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """Reads what the kernel has counted for some servers and a postmaster; both are alive."""

    def __init__(self, servers: Sequence[int], postmaster: int) -> None:
        self._servers = servers
        self._postmaster = postmaster

    def read(self) -> dict[str, float]:
        """Seconds so far: ``servers``, ``workers`` and ``postgres``, ended children among them."""
        workers = sum(_seconds(child) for server in self._servers for child in _children(server))
        backends = sum(_seconds(child) for child in _children(self._postmaster))
        return {
            "servers": sum(map(_own, self._servers)),
            "workers": workers,
            "postgres": backends + _seconds(self._postmaster),
        }


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (thread / "children").read_text().split())


def _times(pid: int) -> list[int]:
    """Ticks: user, system, and the same of children that were waited for."""
    return [int(field) for field in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]


def _own(pid: int) -> float:
    return sum(_times(pid)[:2]) / _TICKS


def _seconds(pid: int) -> float:
    """Of a process and of what it started that has ended: a linker, say. 0 when it has just ended itself."""
    try:
        return sum(_times(pid)) / _TICKS
    except (FileNotFoundError, ProcessLookupError):
        return 0.0

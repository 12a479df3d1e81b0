"""Seconds of a clock, and of all processors that a process and its children use."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Runs from its making on. Processor time is of the process tree from ``pid``, in ticks of the kernel."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu = tree_seconds(pid)
        self._wall = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Seconds of the clock and of processors."""
        wall = time.perf_counter() - self._wall
        return wall, tree_seconds(self._pid) - self._cpu


def tree_seconds(pid: int) -> float:
    """Processor seconds of a process, of its living children and theirs, and of those that ended."""
    rows: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        rows[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    members, grown = {pid}, True
    while grown:
        children = {child for child, (parent, _) in rows.items() if parent in members} - members
        members |= children
        grown = bool(children)
    return sum(rows[each][1] for each in members if each in rows) * _TICK

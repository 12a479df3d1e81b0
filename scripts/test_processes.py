"""Prints how many processes ``make test`` runs: two more than processors, since many tests wait for servers.

A container may have fewer processors than its machine shows, and each process takes up to ``PROCESS_BYTES``.
Needs nothing but Python: it runs before there is an environment.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

#: What the largest process of tests takes, with what it starts.
PROCESS_BYTES = 1 << 30
#: More save no time: the longest file of tests is one process's.
MOST = 16


def processes(root: Path, processors: int) -> int:
    """For a machine of this many processors whose ``/proc`` and ``/sys`` are below ``root``."""
    wanted = math.ceil(min(processors, _granted(root / "sys" / "fs" / "cgroup"))) + 2
    return max(1, min(wanted, MOST, _memory(root) // PROCESS_BYTES))


def _granted(cgroup: Path) -> float:
    """Processors' worth of time that the container may take; infinite without a limit."""
    quota, period = (*_words(cgroup / "cpu.max"), "max", "1")[:2]
    if quota == "max":
        return math.inf
    return int(quota) / int(period)


def _memory(root: Path) -> int:
    """Bytes that may be taken."""
    limits = [int(word) for word in _words(root / "sys" / "fs" / "cgroup" / "memory.max") if word != "max"]
    meminfo = _words(root / "proc" / "meminfo")
    if "MemAvailable:" in meminfo:
        limits.append(int(meminfo[meminfo.index("MemAvailable:") + 1]) << 10)
    return min(limits, default=MOST * PROCESS_BYTES)


def _words(path: Path) -> list[str]:
    """Nothing where there is no such file, as without control groups."""
    try:
        return path.read_text().split()
    except OSError:
        return []


if __name__ == "__main__":
    print(processes(Path("/"), len(os.sched_getaffinity(0))))

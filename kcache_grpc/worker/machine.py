"""The number of workers for which this machine or container has processors and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

#: Bytes that a worker is counted with: the libraries take about 270 MB, a compile of a usual size the rest.
WORKER_BYTES = 512 << 20


def compilers(root: Path = Path("/"), processors: int | None = None) -> int:
    """The number of compiling workers by default, at least 1.

    One worker a processor that the process may use, unless the control group grants fewer, and no more than
    fit the memory with one more worker that only parses. ``root`` has ``proc`` and ``sys``;
    ``processors`` is the number of processors of the process's affinity.
    """
    usable = len(os.sched_getaffinity(0)) if processors is None else processors
    groups = tuple(_groups(root))
    limits = [usable, *(share for group in groups if (share := _processors(group)) is not None)]
    return max(1, min(int(min(limits)), _memory(root, groups) // WORKER_BYTES - 1))


def _groups(root: Path) -> Iterator[Path]:
    """The directories of the process's control groups, version 1 and 2, and those above them.

    In a container ``/proc/self/cgroup`` may name the group as the host sees it, while only the container's
    own group is mounted. The mounted root is therefore always read; directories need not exist.
    """
    mounted = root / "sys" / "fs" / "cgroup"
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and not {"cpu", "memory"} & set(controllers.split(",")):
            continue
        base = mounted / controllers if controllers else mounted
        group = base / path.lstrip("/")
        while group != base:
            yield group
            group = group.parent
        yield base


def _processors(group: Path) -> float | None:
    """Processors' worth of time that the group may take; ``None`` without a limit."""
    words = _text(group / "cpu.max").split() or [
        *_text(group / "cpu.cfs_quota_us").split(),
        *_text(group / "cpu.cfs_period_us").split(),
    ]
    if len(words) != 2 or words[0] in ("max", "-1"):
        return None
    quota, period = map(int, words)
    return quota / period


def _memory(root: Path, groups: tuple[Path, ...]) -> int:
    """Bytes that the machine has or the control group grants, whichever is less."""
    words = _text(root / "proc" / "meminfo").split()
    limits = [int(words[words.index("MemTotal:") + 1]) << 10] if "MemTotal:" in words else []
    for group in groups:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _text(group / name).strip()
            if limit and limit != "max":
                limits.append(int(limit))
    return min(limits, default=WORKER_BYTES << 10)


def _text(path: Path) -> str:
    """Empty where there is no such file, as without control groups."""
    try:
        return path.read_text()
    except OSError:
        return ""

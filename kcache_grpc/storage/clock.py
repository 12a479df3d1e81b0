"""The two clocks of a store, in microseconds, injected so that tests own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: How much a steady clock may seem to go back between two readers, one of whom waited, in microseconds. More
#: means another boot, on systems that do not name their boots. Well above any wait for the database.
STEADY_SLACK = 60_000_000


@cache
def boot_id() -> str:
    """Names this boot of the machine; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _wall() -> int:
    return time.time_ns() // 1000


def _steady() -> int:
    return time.monotonic_ns() // 1000


@dataclass(frozen=True)
class Clock:
    """``wall`` is UTC and may jump; ``steady`` dates leases and never goes back within ``boot``."""

    wall: Callable[[], int] = _wall
    steady: Callable[[], int] = _steady
    boot: str = ""

    @staticmethod
    def system() -> Clock:
        """The clocks of this machine."""
        return Clock(boot=boot_id())

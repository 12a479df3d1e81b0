"""Turns that begin when the other contenders' threads sleep.

Pools go on spinning after their last task, in case another follows: GNU OpenMP's (PyTorch) and OpenBLAS's
for some milliseconds, ONNX Runtime's for longer. Where all contenders live in one process, the next one's
turn would be measured beside them, on the same processors.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

#: Seconds that a turn is put off at most: long after every pool's spin time.
TIMEOUT = 1.0
_PAUSE = 2e-4
_TASKS = Path("/proc/self/task")


def settled(timeout: float = TIMEOUT, tasks: Path = _TASKS) -> bool:
    """Waits until no thread of ``tasks`` but the calling one runs; whether that came in time."""
    end = time.perf_counter() + timeout
    while running(tasks):
        if time.perf_counter() > end:
            return False
        time.sleep(_PAUSE)
    return True


def running(tasks: Path = _TASKS) -> int:
    """Threads, without the one that asks, which are on a processor or wait for one."""
    mine = str(threading.get_native_id())
    return sum(_runs(task) for task in tasks.iterdir() if task.name != mine)


def _runs(task: Path) -> bool:
    try:
        status = (task / "stat").read_bytes()
    except OSError:  # it ended
        return False
    return status.rpartition(b")")[2].split()[0] == b"R"

"""Limits processor time and memory of a job while it reads a program, in proportion to the program.

A reader that needs more than that was given something that expands, such as aliases of aliases that a message
prints out. What comes after has the limits of the worker.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from pathlib import Path

#: The stage whose limits are those of this module.
READ = "read"
#: Processor seconds and bytes of memory for a program of no size, and for each byte of one.
_SECONDS, _SECONDS_PER_BYTE = 2, 20 / (1 << 20)
_BYTES, _BYTES_PER_BYTE = 1 << 30, 64

OnStage = Callable[[str], None]


def limited(on_stage: OnStage, size: int, seconds: float) -> OnStage:
    """``on_stage``, with limits for a program of ``size`` bytes during ``READ`` and of ``seconds`` in all.

    Seconds are of the processor; passing them ends the process with SIGXCPU. ``RLIMIT_AS`` limits memory.
    """
    started = time.process_time()
    memory = resource.getrlimit(resource.RLIMIT_AS)

    def begin(stage: str) -> None:
        on_stage(stage)
        if stage == READ:
            _limit_seconds(started, min(seconds, read_seconds(size)))
            _limit_memory(_address_space() + _BYTES + _BYTES_PER_BYTE * size, memory)
        else:
            _limit_seconds(started, seconds)
            resource.setrlimit(resource.RLIMIT_AS, memory)

    return begin


def read_seconds(size: int) -> float:
    """Processor seconds for reading a program of ``size`` bytes."""
    return _SECONDS + _SECONDS_PER_BYTE * size


def _limit_seconds(started: float, seconds: float) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(started + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (_least(soft, hard), hard))


def _limit_memory(size: int, worker: tuple[int, int]) -> None:
    soft, hard = worker
    resource.setrlimit(resource.RLIMIT_AS, (_least(size, soft), hard))


def _least(limit: int, other: int) -> int:
    return limit if other == resource.RLIM_INFINITY else min(limit, other)


def _address_space() -> int:
    """Bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

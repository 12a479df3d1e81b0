"""Jobs of which some run in a fork: a worker runs them in place of the compiler's."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]

#: What jobs leave behind in their process.
_left: list[str] = []


def hello() -> dict[str, Any]:
    return {
        "toolchain": [["compiler", "none"]],
        "gpu_toolchain": [["assembler", "none"]],
        "canonicalizer": 7,
        "limits": {},
    }


def warm() -> None:
    pass


def who(request: Frame, on_stage: OnStage) -> Frame:
    return Frame({"type": "result", "pid": os.getpid()})


def rank(request: Frame, on_stage: OnStage) -> Frame:
    """What Linux schedules the process by."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    return Frame({"type": "result", "niceness": niceness, "session": os.getsid(0)})


def rank_of_read(request: Frame, on_stage: OnStage) -> Frame:
    return rank(request, on_stage)


def read(request: Frame, on_stage: OnStage) -> Frame:
    """In a fork: crashes, hangs, or leaves something behind."""
    on_stage("parse")
    match request.header["how"]:
        case "segfault":
            os.write(2, b"last words\n")
            ctypes.string_at(0)
        case "hang":
            while True:
                time.sleep(1000)
        case _:
            _left.append("read")
    return Frame({"type": "result", "count": len(_left), "pid": os.getpid()})


def corrupt(request: Frame, on_stage: OnStage) -> Frame:
    _left.append("corrupt")
    return Frame({"type": "result"})


def innocent(request: Frame, on_stage: OnStage) -> Frame:
    if _left:
        ctypes.string_at(0)
    return Frame({"type": "result"})


def guilty(request: Frame, on_stage: OnStage) -> Frame:
    ctypes.string_at(0)
    raise AssertionError("unreachable")


JOBS = {job.__name__: job for job in (who, rank, rank_of_read, read, corrupt, innocent, guilty)}
FORKED = frozenset({"read", "rank_of_read"})

"""Workers of servers that are asked for no compile: without a compiler they start in a tenth of the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kcache_grpc.worker import WorkerSettings
from kcache_grpc.worker.frames import Frame

JOBS: Mapping[str, Callable[[Frame, Callable[[str], None]], Frame]] = {}


def hello() -> dict[str, Any]:
    limits = {"program_bytes": 1 << 20, "operations": 1000, "region_depth": 10}
    return {"toolchain": [], "gpu_toolchain": [], "canonicalizer": 1, "limits": limits}


def warm() -> None:
    """There is nothing to warm."""


def settings() -> WorkerSettings:
    return WorkerSettings(jobs="idle_jobs", extra_path=(str(Path(__file__).parent),))

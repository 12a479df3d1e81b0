"""Jobs of which one precompiles libraries: it waits for ``open`` in the folder that its target names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcache_grpc.errors import CompileFailed
from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]


def hello() -> dict[str, Any]:
    return {"toolchain": [["compiler", "none"]], "gpu_toolchain": [], "canonicalizer": 7, "limits": {}}


def warm() -> None:
    """Nothing to load."""


def echo(request: Frame, on_stage: OnStage) -> Frame:
    return Frame({"type": "result"}, request.blobs)


def precompile(request: Frame, on_stage: OnStage) -> Frame:
    if request.header["target"] == "unknown":
        raise CompileFailed("unknown target", stage="target")
    folder = Path(request.header["target"])
    (folder / f"began-{os.getpid()}").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))
    while not (folder / "open").exists():
        time.sleep(0.002)
    return Frame({"type": "result", "compiled": 3})


def warm_up(request: Frame, on_stage: OnStage) -> Frame:
    (Path(request.header["target"]) / f"warm-{os.getpid()}").touch()
    return Frame({"type": "result"})


JOBS = {"echo": echo, "precompile": precompile, "warm_up": warm_up}

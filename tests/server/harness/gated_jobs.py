"""The compiler's own jobs, which a test can hold, and which misbehave for certain sizes.

The first dimension of the first argument says how: see ``_MISCHIEF``. Test modules make a job module of
``make(folder)``: every compile leaves a file ``started-*`` in the folder and waits for ``open`` there. Where
``slow`` is there, too, it waits for ``on`` after its first stage, ``render``. Where ``hold`` is there, every
parse leaves a file ``parsing-*`` and waits for ``parse``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kcache_grpc.worker import WorkerSettings, codec
from kcache_grpc.worker.child import jobs
from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]
Job = Callable[[Frame, OnStage], Frame]

#: First dimension -> what a compile of it does.
SEGFAULT, HANG, GLUTTON = 1013, 1017, 1019


def make(folder: str) -> Mapping[str, Job]:
    def compile_spec(request: Frame, on_stage: OnStage) -> Frame:
        rows = codec.decode_compile_job(request)[1].args[0].dims[0]
        on_stage("waiting")
        (Path(folder) / f"started-{rows}-{os.urandom(4).hex()}").touch()
        _wait(Path(folder, "open"))
        _misbehave(rows)

        def slowly(stage: str) -> None:
            on_stage(stage)
            if stage == "render":
                _wait(Path(folder, "on"))

        return jobs.compile_spec(request, slowly if Path(folder, "slow").exists() else on_stage)

    def canonicalize(request: Frame, on_stage: OnStage) -> Frame:
        if b"poison" in request.blobs[0]:
            os.abort()
        if Path(folder, "hold").exists():
            (Path(folder) / f"parsing-{os.urandom(4).hex()}").touch()
            _wait(Path(folder, "parse"))
        return jobs.canonicalize(request, on_stage)

    return {**jobs.JOBS, "compile": compile_spec, "canonicalize": canonicalize}


def _wait(path: Path) -> None:
    while not path.exists():
        time.sleep(0.002)


def _misbehave(rows: Any) -> None:
    if rows == SEGFAULT:
        os.kill(os.getpid(), 11)
    if rows == HANG:
        time.sleep(1000)
    if rows == GLUTTON:
        bytes(1 << 45)


def write_module(folder: Path) -> WorkerSettings:
    """Writes the job module for ``folder``; workers with these settings run it."""
    lines = (
        "import gated_jobs",
        "from kcache_grpc.worker.child.jobs import hello, warm",
        f"JOBS = gated_jobs.make({str(folder)!r})",
    )
    folder.mkdir(exist_ok=True)
    (folder / "held_jobs.py").write_text("\n".join(lines))
    path = (str(folder), str(Path(__file__).parent))
    return WorkerSettings(memory_bytes=4 << 30, jobs="held_jobs", extra_path=path, writable=(str(folder),))

"""The compiler's own jobs, which refuse to compile for more than one size."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from kcache_compiler.errors import UnsupportedOp
from kcache_grpc.worker import WorkerSettings, codec
from kcache_grpc.worker.child import jobs
from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]


def make(folder: str) -> Mapping[str, Callable[[Frame, OnStage], Frame]]:
    def compile_spec(request: Frame, on_stage: OnStage) -> Frame:
        args = codec.decode_compile_job(request)[1].args
        if any(isinstance(dim, str) for tensor in args for dim in tensor.dims):
            (Path(folder) / f"dynamic-{os.urandom(4).hex()}").touch()
            raise UnsupportedOp("stablehlo.sort", "sorts of dynamic sizes have no lowering")
        return jobs.compile_spec(request, on_stage)

    return {**jobs.JOBS, "compile": compile_spec}


def write_module(folder: Path) -> WorkerSettings:
    """Writes the job module; compiles for more than one size leave a file ``dynamic-*`` in ``folder``."""
    lines = (
        "import dynamic_jobs",
        "from kcache_grpc.worker.child.jobs import hello, warm",
        f"JOBS = dynamic_jobs.make({str(folder)!r})",
    )
    folder.mkdir(exist_ok=True)
    (folder / "static_jobs.py").write_text("\n".join(lines))
    path = (str(folder), str(Path(__file__).parent))
    return WorkerSettings(memory_bytes=4 << 30, jobs="static_jobs", extra_path=path, writable=(str(folder),))

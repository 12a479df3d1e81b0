"""The compiler's own jobs, but for kernels with one byte too many: other bytes than the toolchain makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kcache_grpc.worker import WorkerSettings, codec
from kcache_grpc.worker.child import jobs
from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]


def compile_spec(request: Frame, on_stage: OnStage) -> Frame:
    kernel = codec.decode_kernel(jobs.compile_spec(request, on_stage))
    kernel.artifacts["so"] += b"!"  # type: ignore[index]
    return codec.encode_kernel(kernel)


JOBS: Mapping[str, Callable[[Frame, OnStage], Frame]] = {**jobs.JOBS, "compile": compile_spec}
hello, warm = jobs.hello, jobs.warm


def settings() -> WorkerSettings:
    return WorkerSettings(jobs="lying_jobs", extra_path=(str(Path(__file__).parent),))

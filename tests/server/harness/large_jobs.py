"""The compiler's own jobs, whose kernels have large artifacts: zeros follow what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kcache_grpc.worker import WorkerSettings
from kcache_grpc.worker.child import jobs
from kcache_grpc.worker.child.jobs import hello, warm
from kcache_grpc.worker.frames import Frame

__all__ = ["JOBS", "hello", "settings", "warm"]

#: Bytes that follow each artifact: two of them are more than a message of gRPC's has by default.
MORE = 5 << 19


def _compile(request: Frame, on_stage: Callable[[str], None]) -> Frame:
    reply = jobs.compile_spec(request, on_stage)
    return Frame(reply.header, tuple(blob + bytes(MORE) for blob in reply.blobs))


JOBS: Mapping[str, Callable[[Frame, Callable[[str], None]], Frame]] = {**jobs.JOBS, "compile": _compile}


def settings() -> WorkerSettings:
    folder = str(Path(__file__).parent)
    return WorkerSettings(memory_bytes=4 << 30, jobs="large_jobs", extra_path=(folder,))

"""The compiler's own jobs, whose kernels have large artifacts: noise follows what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from kcache_grpc.worker import WorkerSettings
from kcache_grpc.worker.child import jobs
from kcache_grpc.worker.child.jobs import hello, warm
from kcache_grpc.worker.frames import Frame

__all__ = ["JOBS", "hello", "settings", "warm"]

#: Bytes that follow each artifact: two of them are more than a message of gRPC's has by default.
MORE = 5 << 19
_NOISE = hashlib.shake_128(b"noise").digest(MORE)


def _compile(request: Frame, on_stage: Callable[[str], None]) -> Frame:
    reply = jobs.compile_spec(request, on_stage)
    return Frame(reply.header, tuple(blob + _NOISE for blob in reply.blobs))


JOBS: Mapping[str, Callable[[Frame, Callable[[str], None]], Frame]] = {**jobs.JOBS, "compile": _compile}


def settings() -> WorkerSettings:
    folder = str(Path(__file__).parent)
    return WorkerSettings(memory_bytes=4 << 30, jobs="large_jobs", extra_path=(folder,))

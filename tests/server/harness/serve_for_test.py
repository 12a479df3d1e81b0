"""A server process of the tests: ``kcache serve`` without the command line.

TEST_HELD_JOBS names a folder: compiles then wait for the file ``open`` in it, see gated_jobs.py. With
TEST_IDLE_JOBS there is no compiler, see idle_jobs.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from kcache_grpc.server import ServerConfig, serve
from kcache_grpc.worker import WorkerSettings


def main() -> None:
    folder = os.environ.get("TEST_HELD_JOBS")
    settings = WorkerSettings(memory_bytes=4 << 30)
    if folder:
        path = (folder, str(Path(__file__).parent))
        settings = WorkerSettings(memory_bytes=4 << 30, jobs="held_jobs", extra_path=path, writable=(folder,))
    if os.environ.get("TEST_IDLE_JOBS"):
        settings = WorkerSettings(jobs="idle_jobs", extra_path=(str(Path(__file__).parent),))
    serve(ServerConfig.from_env(os.environ, worker=settings))


if __name__ == "__main__":
    main()

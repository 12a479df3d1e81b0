"""What a benchmark runs under: no crippling settings, and a record of the machine."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

#: Settings that make libraries slower than they are; a rival must not carry them.
CRIPPLING = ("OPENBLAS_", "MKL_", "OMP_", "NVPL_", "KCACHE_")


def clear_and_restart(module: str) -> None:
    """Starts this process again without the settings above: libraries read them when they load."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CRIPPLING)}
    if len(kept) != len(os.environ):
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], kept)


def description() -> dict[str, object]:
    """Date, machine and versions, for the report."""
    names = ("kcache-grpc", "grpcio", "protobuf", "numpy", "SQLAlchemy", "torch-mlir", "llvmlite")
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in names},
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

"""A process whose ``libcuda.so.1`` is the recording driver, and what kernels did there.

Cases are functions of ``cases.py``; what one returns is printed as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Recorded(NamedTuple):
    """What a case printed, and the driver's calls in order."""

    said: Any
    calls: list[str]


@cache
def driver_folder() -> Path:
    """A folder with the recording driver under the name of NVIDIA's."""
    folder = Path(mkdtemp(prefix="recording-driver-"))
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    source = HERE / "recording_driver.c"
    subprocess.run(["cc", *flags, source, "-o", folder / "libcuda.so.1"], check=True, timeout=240)
    return folder


def run(case: str, tmp_path: Path, module: str = "cases", /, **settings: int) -> Recorded:
    """Runs a case of a module in a process of its own; ``settings`` say what the GPU is."""
    log = tmp_path / "calls.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    environment |= {f"RECORDER_{name.upper()}": str(value) for name, value in settings.items()}
    environment |= {"LD_LIBRARY_PATH": str(driver_folder()), "RECORDER_LOG": str(log)}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "compiler", ROOT / "migrations")))
    command = [sys.executable, "-W", "error", "-m", f"tests.runtime.gpu.{module}", case]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return Recorded(json.loads(done.stdout), log.read_text().splitlines() if log.exists() else [])

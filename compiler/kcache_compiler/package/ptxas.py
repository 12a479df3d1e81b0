"""PTX to cubins through ``ptxas``, where it is installed: nothing else of CUDA is needed.

The extra ``cubin`` brings it, so does a CUDA toolkit.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kcache_compiler.errors import CompileFailed
from kcache_compiler.package.gpu import GpuTarget, gpu_target_named
from kcache_compiler.types import GpuResources

#: Folders of wheels, below site-packages; the newest first.
_WHEELS = ("nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas")
_RELEASE = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_LONGEST_DIAGNOSTIC = 2000
#: PTX version of a target -> the first CUDA release whose assembler takes it.
_FIRST_RELEASES = {
    (6, 3): (10, 0),
    (7, 0): (11, 0),
    (7, 1): (11, 1),
    (7, 4): (11, 4),
    (7, 8): (11, 8),
    (8, 0): (12, 0),
    (8, 6): (12, 7),
    (8, 7): (12, 8),
    (8, 8): (12, 9),
    (9, 0): (13, 0),
}
_SECONDS = 60.0


@dataclass(frozen=True)
class Ptxas:
    """An assembler that is installed here; ``version`` is its own text for it, such as ``13.0.88``."""

    path: Path
    version: str
    release: tuple[int, int]

    def takes(self, target: GpuTarget) -> bool:
        """Whether it is new enough for the PTX of ``target``."""
        return self.release >= _FIRST_RELEASES[target.ptx]


@functools.cache
def find_ptxas() -> Ptxas | None:
    """The assembler of the wheel, of ``CUDA_HOME``, of ``PATH`` or of /usr/local/cuda; None without one."""
    packages = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    candidates = [Path(folder) / wheel for wheel in _WHEELS for folder in sorted(packages)]
    home, on_path = os.environ.get("CUDA_HOME"), shutil.which("ptxas")
    candidates += [Path(home) / "bin" / "ptxas"] if home else []
    candidates += [Path(on_path)] if on_path else []
    candidates.append(Path("/usr/local/cuda/bin/ptxas"))
    return next((found for path in candidates if (found := _ptxas_at(path)) is not None), None)


def _ptxas_at(path: Path) -> Ptxas | None:
    if not path.is_file():
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _RELEASE.search(done.stdout)
    return Ptxas(path, found[3], (int(found[1]), int(found[2]))) if found else None


def assemble_ptx(ptx: str, arch: str, timeout: float = _SECONDS) -> tuple[bytes, dict[str, GpuResources]]:
    """The cubin of a PTX text for ``arch``, and what each entry takes of the GPU.

    Equal texts give equal bytes under one version. Raises ``CompileFailed`` with the assembler's words, also
    where none is installed (``find_ptxas`` tells before).
    """
    ptxas, target = find_ptxas(), gpu_target_named(arch)
    if ptxas is None:
        raise CompileFailed(
            "ptxas",
            "no ptxas is installed; pip install 'kcache-grpc[cubin]', or set CUDA_HOME to a CUDA toolkit",
        )
    with tempfile.TemporaryDirectory(prefix="kcache-ptxas-") as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [ptxas.path, f"-arch={target.name}", "-O3", "-v", source.name, "-o", cubin.name]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise CompileFailed("ptxas", f"ptxas for {arch} took longer than {timeout:g} s") from None
        if done.returncode != 0 or not cubin.is_file():
            said = (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"
            raise CompileFailed("ptxas", said[:_LONGEST_DIAGNOSTIC])
        return cubin.read_bytes(), _resources(done.stderr + done.stdout)


def _resources(report: str) -> dict[str, GpuResources]:
    """Of each entry, from what ``-v`` prints of it."""
    parts = _ENTRY.split(report)[1:]
    found: dict[str, GpuResources] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        spills, used, shared = _SPILLS.search(text), _USED.search(text), _SHARED.search(text)
        if used is None:
            raise CompileFailed("ptxas", f"its report does not say how many registers {name} takes")
        spilled = int(spills[1]) + int(spills[2]) if spills else 0
        found[name] = GpuResources(int(used[1]), spilled, int(shared[1]) if shared else 0)
    return found

"""Assembles PTX to cubins with ``ptxas``, if it is installed; nothing else of CUDA is required.

The extra ``cubin`` installs it, and a CUDA toolkit includes it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.gpu_targets import GpuTarget, gpu_target_named
from kcache_compiler.types import GpuResources

#: Paths of wheels in site-packages, newest first.
_WHEELS = ("nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas")
_RELEASE = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_LONGEST_DIAGNOSTIC = 2000
#: PTX version of a target -> the first CUDA release whose assembler supports it.
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
_CUBIN = "kernel.cubin"


@dataclass(frozen=True)
class Ptxas:
    """An installed assembler; ``version`` is its full version, such as ``13.0.88``."""

    path: Path
    version: str
    release: tuple[int, int]

    def takes(self, target: GpuTarget) -> bool:
        """Whether it supports the PTX version of ``target``."""
        return self.release >= _FIRST_RELEASES[target.ptx]


@functools.cache
def find_ptxas() -> Ptxas | None:
    """The assembler of the wheel, of ``CUDA_HOME``, of ``PATH`` or of /usr/local/cuda; None without one."""
    packages = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    candidates = [Path(directory) / wheel for wheel in _WHEELS for directory in sorted(packages)]
    home, on_path = os.environ.get("CUDA_HOME"), shutil.which("ptxas")
    candidates += [Path(home) / "bin" / "ptxas"] if home else []
    candidates += [Path(on_path)] if on_path else []
    candidates.append(Path("/usr/local/cuda/bin/ptxas"))
    return next((assembler for path in candidates if (assembler := _ptxas_at(path)) is not None), None)


def _ptxas_at(path: Path) -> Ptxas | None:
    if not path.is_file():
        return None
    try:
        process = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = _RELEASE.search(process.stdout)
    return Ptxas(path, release[3], (int(release[1]), int(release[2]))) if release else None


class Assembly:
    """An assembler process that is started before its input exists, which hides its startup time."""

    def __init__(self, arch: str) -> None:
        ptxas, target = find_ptxas(), gpu_target_named(arch)
        if ptxas is None:
            raise CompileFailed(
                "ptxas",
                "no ptxas is installed; pip install 'kcache-grpc[cubin]', or set CUDA_HOME to a CUDA toolkit",
            )
        self._arch = arch
        self._directory = Path(tempfile.mkdtemp(prefix="kcache-ptxas-"))
        command = [ptxas.path, f"-arch={target.name}", "-O3", "-v", "/dev/stdin", "-o", _CUBIN]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, cwd=self._directory, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
            )
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self._end = weakref.finalize(self, _end, self._process, self._directory)

    def finish(self, ptx: str, timeout: float = _SECONDS) -> tuple[bytes, dict[str, GpuResources]]:
        """The cubin of a PTX text, and the resources of each entry."""
        try:
            output, _ = self._process.communicate(ptx, timeout)
            cubin = self._directory / _CUBIN
            if self._process.returncode != 0 or not cubin.is_file():
                reason = output.strip() or f"exit status {self._process.returncode}"
                raise CompileFailed("ptxas", reason[:_LONGEST_DIAGNOSTIC])
            return cubin.read_bytes(), _resources(output)
        except subprocess.TimeoutExpired:
            raise CompileFailed("ptxas", f"ptxas for {self._arch} took longer than {timeout:g} s") from None
        finally:
            self.close()

    def close(self) -> None:
        """End the process and remove its files."""
        self._end()


def _end(process: subprocess.Popen[str], directory: Path) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unread input
                pipe.close()
    shutil.rmtree(directory, ignore_errors=True)


def assemble_ptx(ptx: str, arch: str, timeout: float = _SECONDS) -> tuple[bytes, dict[str, GpuResources]]:
    """The cubin of a PTX text for ``arch``, and the resources of each entry.

    Deterministic for a version of the assembler. Raises ``CompileFailed`` with the assembler's diagnostics,
    or if none is installed (see ``find_ptxas``).
    """
    return Assembly(arch).finish(ptx, timeout)


def _resources(report: str) -> dict[str, GpuResources]:
    """The resources of each entry, from the output of ``-v``."""
    parts = _ENTRY.split(report)[1:]
    resources: dict[str, GpuResources] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        spills, used, shared = _SPILLS.search(text), _USED.search(text), _SHARED.search(text)
        if used is None:
            raise CompileFailed("ptxas", f"its report does not say how many registers {name} takes")
        spilled = int(spills[1]) + int(spills[2]) if spills else 0
        resources[name] = GpuResources(int(used[1]), spilled, int(shared[1]) if shared else 0)
    return resources

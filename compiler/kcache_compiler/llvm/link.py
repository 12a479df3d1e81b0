"""Links objects into a shared object with an installed ELF linker.

``ld.lld`` from PATH supports every target, binutils ``ld`` those of its emulations, and ``python -m ziglang
ld.lld`` every target if the ``ziglang`` wheel is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.target import Target

#: Timeout of a linker in seconds.
LINK_TIMEOUT = 60.0
#: Deterministic, hardened, and independent of paths and time.
FLAGS = (
    "-shared",
    "--hash-style=gnu",
    "--build-id=none",
    "--gc-sections",
    "--no-undefined-version",
    "-z",
    "now",
    "-z",
    "relro",
    "-z",
    "noexecstack",
)


@dataclass(frozen=True)
class Linker:
    """A linker command with its version and emulations; None: all targets."""

    command: tuple[str, ...]
    version: str
    emulations: frozenset[str] | None

    def links(self, target: Target) -> bool:
        return self.emulations is None or target.linker_emulation in self.emulations


def _said(*command: str) -> str:
    process = subprocess.run(command, capture_output=True, text=True, timeout=LINK_TIMEOUT, check=False)
    return process.stdout if process.returncode == 0 else ""


@functools.cache
def linkers() -> tuple[Linker, ...]:
    """The installed linkers in order of preference; their versions are queried once."""
    available: list[Linker] = []
    lld = shutil.which("ld.lld")
    if lld and (version := _said(lld, "--version").strip()):
        available.append(Linker((lld,), version, None))
    ld = shutil.which("ld")
    if ld and (version := _said(ld, "--version")):
        listed = _said(ld, "-V").split()
        available.append(Linker((ld,), version.splitlines()[0], frozenset(listed)))
    if importlib.util.find_spec("ziglang") is not None:
        command = (sys.executable, "-m", "ziglang", "ld.lld")
        if version := _said(*command, "--version").strip():
            available.append(Linker(command, f"ziglang {version}", None))
    return tuple(available)


def linker_for(target: Target) -> Linker:
    """The linker used for ``target``; raises ``CompileFailed`` naming what to install."""
    for linker in linkers():
        if linker.links(target):
            return linker
    raise CompileFailed(
        "link", f"no linker for {target.name}: install lld (ld.lld), binutils (ld) or the ziglang wheel"
    )


def link(objects: Sequence[bytes], target: Target, exports: Iterable[str]) -> bytes:
    """The shared object of ELF objects; deterministic for the same objects and linker."""
    linker = linker_for(target)
    with tempfile.TemporaryDirectory(prefix="kcache-link-") as directory:
        work = Path(directory)
        names = [f"kernel{number or ''}.o" for number in range(len(objects))]
        for name, content in zip(names, objects, strict=True):
            (work / name).write_bytes(content)
        versions = "".join(f"{name}; " for name in sorted(exports))
        (work / "kernel.ver").write_text(f"{{ global: {versions}local: *; }};\n")
        command = [*linker.command, "-m", target.linker_emulation, *FLAGS]
        command += ["--version-script", "kernel.ver", "-o", "kernel.so", *names]
        try:
            process = subprocess.run(
                command, cwd=work, capture_output=True, text=True, timeout=LINK_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileFailed("link", str(error)) from None
        if process.returncode != 0:
            raise CompileFailed("link", process.stderr.strip())
        return (work / "kernel.so").read_bytes()

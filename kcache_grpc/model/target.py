"""Targets: which machine a kernel is for, and what this machine can run.

The x86-64 levels are those of the x86-64 psABI. A host is resolved without a compiler, from the
kernel's own list of CPU flags.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu_target import GPU_TARGETS, GpuTarget

#: psABI level -> flags of /proc/cpuinfo that it adds to the level before.
_X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64-v2", frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})),
    ("x86-64-v3", frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})),
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
)
#: LLVM feature name -> flag of /proc/cpuinfo, where they differ.
_FLAG_OF_FEATURE = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "sahf": "lahf_lm",
    "neon": "asimd",
    "fp-armv8": "fp",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
    "lse": "atomics",
    "rdm": "asimdrdm",
    "crc": "crc32",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
}
_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
#: Instruction sets by level; "host" is one of them.
CPU_TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "aarch64-sve")
_X86_CPUS = (
    "haswell",
    "skylake",
    "skylake-avx512",
    "cascadelake",
    "cooperlake",
    "icelake-server",
    "sapphirerapids",
    "emeraldrapids",
    "graniterapids",
    "znver2",
    "znver3",
    "znver4",
    "znver5",
)
_ARM_CPUS = ("neoverse-n1", "neoverse-v1", "neoverse-n2", "neoverse-v2")
#: CPUs by the compiler's name: targets, and tuning models for code that needs less.
CPU_NAMES = (*_X86_CPUS, *_ARM_CPUS)
_TRIPLES = {
    **{name: _ARM if name.startswith("aarch64") else _X86 for name in CPU_TARGETS},
    **dict.fromkeys(_X86_CPUS, _X86),
    **dict.fromkeys(_ARM_CPUS, _ARM),
}


@dataclass(frozen=True)
class CpuTarget:
    """A CPU by level of its instruction set, or by name; ``triple`` follows from it."""

    isa: str

    def __post_init__(self) -> None:
        if self.isa not in _TRIPLES:
            known = ", ".join((*_TRIPLES, *GPU_TARGETS))
            raise ArgumentError(f"unknown target {self.isa!r}; use 'host' or one of {known}")

    @property
    def triple(self) -> str:
        """LLVM triple."""
        return _TRIPLES[self.isa]

    def __str__(self) -> str:
        return self.isa


#: The machine that a kernel is for.
Target = CpuTarget | GpuTarget


def code_kind(target: Target) -> str:
    """The kind of the artifact that such a machine runs."""
    if not isinstance(target, GpuTarget):
        return "so"
    return "hsaco" if target.amd else "ptx"


def is_gpu(name: str) -> bool:
    """Whether a target's name is a GPU's."""
    return name.startswith(("sm_", "gfx"))


def parse_target(name: str) -> Target:
    """A target by name; ``"host"`` is the highest level of this machine. Raises ``ArgumentError``."""
    if name == "host":
        return host_target()
    return GpuTarget(name) if is_gpu(name) else CpuTarget(name)


def host_target() -> CpuTarget:
    """The highest target that this machine runs. Raises ``ArgumentError`` where there is none."""
    if not sys.platform.startswith("linux"):
        raise ArgumentError(
            f"kernels run on Linux only, this is {sys.platform}; name a target to cross-compile"
        )
    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        return CpuTarget("aarch64")
    if machine not in ("x86_64", "AMD64"):
        raise ArgumentError(f"no target runs on {machine}; name a target to cross-compile")
    best = ""
    for level, needed in _X86_LEVELS:
        if not needed <= host_flags():
            break
        best = level
    if not best:
        raise ArgumentError("this CPU is below x86-64-v2, the lowest level that kernels are compiled for")
    return CpuTarget(best)


def missing_features(triple: str, required_isa: tuple[str, ...]) -> tuple[str, ...]:
    """What this machine lacks to run code for ``triple`` with these LLVM features; empty when it can."""
    machine = platform.machine().replace("arm64", "aarch64").replace("AMD64", "x86_64")
    if not sys.platform.startswith("linux") or machine != triple.split("-", 1)[0]:
        return (triple,)
    flags = host_flags()
    names = (feature.lstrip("+") for feature in required_isa)
    return tuple(name for name in names if _FLAG_OF_FEATURE.get(name, name.replace(".", "_")) not in flags)


@lru_cache(maxsize=1)
def host_flags() -> frozenset[str]:
    """CPU flags as Linux lists them; empty where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()

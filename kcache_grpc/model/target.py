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
from kcache_grpc.model.gpu.target import GPU_TARGETS, GpuTarget

#: psABI level -> flags of /proc/cpuinfo that it adds to the level before.
_X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64-v2", frozenset({"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"})),
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
    "amx-bf16": "amx_bf16",
    "amx-tile": "amx_tile",
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
#: CPU -> the highest level whose instructions it has all of. Levels follow from ``_LEVELS``.
_LEVEL_OF_CPU = {
    **dict.fromkeys(("haswell", "skylake", "znver2", "znver3"), "x86-64-v3"),
    **dict.fromkeys(
        (
            "skylake-avx512",
            "cascadelake",
            "cooperlake",
            "icelake-server",
            "sapphirerapids",
            "emeraldrapids",
            "graniterapids",
            "znver4",
            "znver5",
        ),
        "x86-64-v4",
    ),
    "neoverse-n1": "aarch64",
    **dict.fromkeys(("neoverse-v1", "neoverse-n2", "neoverse-v2"), "aarch64-sve"),
}
#: Levels of each architecture with the CPU flags that they add to the level before, lowest first.
_LEVELS = (_X86_LEVELS, (("aarch64", frozenset[str]()), ("aarch64-sve", frozenset({"asimdhp", "sve"}))))
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
    return "ptx" if isinstance(target, GpuTarget) else "so"


def is_gpu(name: str) -> bool:
    """Whether a target's name is a GPU's."""
    return name.startswith("sm_")


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


def compatible_targets(target: Target) -> tuple[CpuTarget, ...]:
    """The lower targets whose kernels run wherever those for ``target`` do: levels, highest first.

    ``x86-64-v4`` includes ``x86-64-v3`` and ``x86-64-v2``, ``znver3`` the same two. None for a GPU.
    """
    if isinstance(target, GpuTarget):
        return ()
    top = _LEVEL_OF_CPU.get(target.isa, target.isa)
    names = next(names for names in _level_names() if top in names)
    upto = names[: names.index(top) + 1]
    return tuple(CpuTarget(name) for name in reversed(upto) if name != target.isa)


def may_serve(kernel: Target, required_isa: tuple[str, ...], asked: Target) -> bool:
    """Whether a kernel for another target runs on every machine that ``asked`` means.

    ``kernel`` must be one of ``compatible_targets(asked)``, and the features that the code needs
    (``required_isa``, LLVM's names) must all be of that level.
    """
    if kernel not in compatible_targets(asked):
        return False
    flags = _flags_of_level(str(kernel))
    return all(_flag(feature) in flags for feature in required_isa)


@lru_cache(maxsize=1)
def _level_names() -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(name for name, _ in levels) for levels in _LEVELS)


@lru_cache(maxsize=8)
def _flags_of_level(level: str) -> frozenset[str]:
    """The CPU flags of a level, with those of all levels below it."""
    flags = frozenset[str]()
    for levels in _LEVELS:
        for name, added in levels:
            flags |= added
            if name == level:
                return flags
        flags = frozenset[str]()
    raise ArgumentError(f"{level!r} is no level of an instruction set")


def _flag(feature: str) -> str:
    """The flag of /proc/cpuinfo for one of LLVM's features, with or without its sign."""
    name = feature.lstrip("+")
    return _FLAG_OF_FEATURE.get(name, name.replace(".", "_"))


def missing_features(triple: str, required_isa: tuple[str, ...]) -> tuple[str, ...]:
    """What this machine lacks to run code for ``triple`` with these LLVM features; empty when it can."""
    machine = platform.machine().replace("arm64", "aarch64").replace("AMD64", "x86_64")
    if not sys.platform.startswith("linux") or machine != triple.split("-", 1)[0]:
        return (triple,)
    flags = host_flags()
    return tuple(feature.lstrip("+") for feature in required_isa if _flag(feature) not in flags)


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

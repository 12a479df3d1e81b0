"""Named CPUs: their instruction sets, and tuning models for schedules.

Features are LLVM's names of features that generated code may use; each is present in every machine of the
name. Cache sizes are in bytes per core, ``l3`` is the core's share: rounded figures for models of that name,
accurate enough to choose blocks, and never those of the compiling machine.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB, _MIB = 1 << 10, 1 << 20

V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
V3 = (*V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
V4 = (*V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_ICELAKE = (
    *V4,
    "avx512bitalg",
    "avx512ifma",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512vnni",
    "avx512vpopcntdq",
    "gfni",
    "vaes",
    "vpclmulqdq",
)
_SAPPHIRE_RAPIDS = (*_ICELAKE, "amx-bf16", "amx-tile", "avx512bf16", "avx512fp16", "avxvnni")
_ZEN4 = (*_ICELAKE, "avx512bf16")
_N1 = ("crc", "dotprod", "fullfp16", "lse", "rdm")
_V1 = (*_N1, "bf16", "i8mm", "sve")
_V2_ARM = (*_V1, "sve2")


@dataclass(frozen=True)
class Tuning:
    """A tuning model of a CPU, which may change code but not the machines that run it.

    ``llvm`` names LLVM's scheduling model, empty for the generic one. ``vector_bits`` is the preferred vector
    width, if the instruction set has it.
    """

    name: str
    llvm: str
    l1d: int
    l2: int
    l3: int
    vector_bits: int = 512


@dataclass(frozen=True)
class Cpu:
    """A CPU by LLVM's name for it."""

    architecture: str
    features: tuple[str, ...]
    tuning: Tuning


GENERIC = Tuning("generic", "", 32 * _KIB, 512 * _KIB, 1 * _MIB)


def _cpu(
    name: str,
    architecture: str,
    features: tuple[str, ...],
    caches: tuple[int, int, int],
    vector_bits: int = 512,
) -> tuple[str, Cpu]:
    l1d, l2, l3 = caches
    tuning = Tuning(name, name, l1d * _KIB, l2 * _KIB, l3 * _KIB, vector_bits)
    return name, Cpu(architecture, features, tuning)


#: Name -> CPU; caches in KiB.
CPUS: dict[str, Cpu] = dict(
    (
        _cpu("haswell", "x86_64", V3, (32, 256, 2048), 256),
        _cpu("skylake", "x86_64", V3, (32, 256, 2048), 256),
        _cpu("skylake-avx512", "x86_64", V4, (32, 1024, 1408)),
        _cpu("cascadelake", "x86_64", (*V4, "avx512vnni"), (32, 1024, 1408)),
        _cpu("cooperlake", "x86_64", (*V4, "avx512bf16", "avx512vnni"), (32, 1024, 1408)),
        _cpu("icelake-server", "x86_64", _ICELAKE, (48, 1280, 1536)),
        _cpu("sapphirerapids", "x86_64", _SAPPHIRE_RAPIDS, (48, 2048, 1920)),
        _cpu("emeraldrapids", "x86_64", _SAPPHIRE_RAPIDS, (48, 2048, 5120)),
        _cpu("graniterapids", "x86_64", _SAPPHIRE_RAPIDS, (48, 2048, 4096)),
        _cpu("znver2", "x86_64", V3, (32, 512, 4096), 256),
        _cpu("znver3", "x86_64", V3, (32, 512, 4096), 256),
        _cpu("znver4", "x86_64", _ZEN4, (32, 1024, 4096)),
        _cpu("znver5", "x86_64", (*_ZEN4, "avxvnni"), (48, 1024, 4096)),
        _cpu("neoverse-n1", "aarch64", _N1, (64, 1024, 1024), 128),
        _cpu("neoverse-v1", "aarch64", _V1, (64, 1024, 512), 256),
        _cpu("neoverse-n2", "aarch64", _V2_ARM, (64, 1024, 1024), 128),
        _cpu("neoverse-v2", "aarch64", _V2_ARM, (64, 2048, 1024), 128),
    )
)


def tuning_for(target: str, option: str) -> Tuning:
    """The model that ``option`` names, else that of ``target`` if it is a named CPU, else the generic one."""
    cpu = CPUS.get(target if option == "generic" else option)
    return GENERIC if cpu is None else cpu.tuning

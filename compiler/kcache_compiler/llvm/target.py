"""Targets of CPU kernels: triple, instruction set and requirements of the loading machine.

An x86-64 level is the set of features of the x86-64 psABI, ``aarch64`` the baseline of its ABI, without
tuning flags. A named CPU is a set of features and a tuning model.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.cpus import CPUS, V2, V3, V4
from kcache_compiler.llvm.gpu_targets import GpuTarget, gpu_target_named, is_gpu

#: Architecture -> LLVM's name of its baseline CPU, ELF machine number, linker emulation.
_ARCHITECTURES = {"x86_64": ("x86-64", 62, "elf_x86_64"), "aarch64": ("generic", 183, "aarch64linux")}


@dataclass(frozen=True)
class Target:
    """A CPU to compile for; ``features`` beyond the baseline of ``triple`` may be used."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    elf_machine: int
    linker_emulation: str

    @property
    def vector_bytes(self) -> int:
        """The bytes of the widest vectors that the target supports."""
        return 64 if "avx512vl" in self.features else 32 if "avx2" in self.features else 16

    @property
    def feature_string(self) -> str:
        return ",".join(f"+{feature}" for feature in self.features)

    @property
    def architecture(self) -> str:
        return self.triple.split("-", 1)[0]

    @property
    def has_fma(self) -> bool:
        """Whether an instruction multiplies and adds in one rounding."""
        return "fma" in self.features or self.architecture == "aarch64"

    @property
    def converts_f16(self) -> bool:
        """Whether instructions convert between f16 and f32."""
        return "f16c" in self.features or self.architecture == "aarch64"


@dataclass(frozen=True)
class Device(Target):
    """A GPU as a target: ``features`` are those of all GPUs, in the names of CPU features.

    LLVM gets no features, so that it emits the lowest PTX version that has the architecture.
    """

    gpu: GpuTarget

    @property
    def feature_string(self) -> str:
        return ""


def _device(gpu: GpuTarget) -> Device:
    return Device(gpu.name, gpu.triple, gpu.name, ("fma", "f16c"), 0, "", gpu)


def _target(name: str, architecture: str, features: tuple[str, ...]) -> Target:
    cpu, machine, emulation = _ARCHITECTURES[architecture]
    return Target(name, f"{architecture}-unknown-linux-gnu", cpu, features, machine, emulation)


#: Instruction sets by level. Named CPUs are targets too (``cpus.py``).
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _target("x86-64-v2", "x86_64", V2),
        _target("x86-64-v3", "x86_64", V3),
        _target("x86-64-v4", "x86_64", V4),
        _target("aarch64", "aarch64", ()),
        _target("aarch64-sve", "aarch64", ("fullfp16", "sve")),
    )
}


def baseline(target: Target) -> Target:
    """The baseline of the same triple, whose code runs on every machine that runs code of ``target``."""
    return _target(target.architecture, target.architecture, ())


def target_named(name: str) -> Target:
    """The target ``name``; raises ``CompileFailed`` for an unknown name."""
    if name in TARGETS:
        return TARGETS[name]
    if is_gpu(name):
        return _device(gpu_target_named(name))
    if name not in CPUS:
        raise CompileFailed("target", f"unknown target {name!r}; known: {', '.join((*TARGETS, *CPUS))}")
    return _target(name, CPUS[name].architecture, CPUS[name].features)

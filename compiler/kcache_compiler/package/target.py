"""Targets of CPU kernels: triple, instruction set and what the loading machine must have.

An x86-64 level is the set of features that the x86-64 psABI gives it; no tuning flags.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.errors import CompileFailed

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")


@dataclass(frozen=True)
class Target:
    """A CPU to compile for; ``features`` beyond the baseline of ``triple`` are required to run."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    elf_machine: int
    linker_emulation: str

    @property
    def feature_string(self) -> str:
        return ",".join(f"+{feature}" for feature in self.features)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("x86-64-v2", "x86_64-unknown-linux-gnu", "x86-64", _V2, 62, "elf_x86_64"),
        Target("x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64", _V3, 62, "elf_x86_64"),
        Target("x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64", _V4, 62, "elf_x86_64"),
        Target("aarch64", "aarch64-unknown-linux-gnu", "generic", (), 183, "aarch64linux"),
    )
}


def baseline(target: Target) -> Target:
    """The least machine of the same triple: what runs on every machine that ``target``'s code could."""
    cpu = "generic" if target.triple.startswith("aarch64") else "x86-64"
    return Target(
        target.triple.split("-", 1)[0], target.triple, cpu, (), target.elf_machine, target.linker_emulation
    )


def target_named(name: str) -> Target:
    """The target ``name``; raises ``CompileFailed`` for a name that is none."""
    if name not in TARGETS:
        raise CompileFailed("target", f"unknown target {name!r}; known: {', '.join(TARGETS)}")
    return TARGETS[name]

"""The cubin beside the PTX, and what each launch takes of the GPU, where ``ptxas`` is installed."""

from __future__ import annotations

from dataclasses import replace

from kcache_compiler.llvm.gpu_targets import gpu_target_named
from kcache_compiler.llvm.ptxas import Assembly, find_ptxas
from kcache_compiler.lower.gpu.tile_sizes import rejected
from kcache_compiler.passes.stage import Unit


def begin_assembly(unit: Unit) -> None:
    """Starts the assembler, where one takes the PTX: it needs a while before it reads."""
    ptxas = find_ptxas()
    if ptxas is not None and unit.gpu_launches and ptxas.takes(gpu_target_named(unit.target.name)):
        unit.assembler = Assembly(unit.target.name)


def assemble(unit: Unit) -> None:
    """Sets the object code and the resources of the launches, where an assembler was started."""
    if unit.assembler is None:
        return
    unit.object_code, found = unit.assembler.finish(unit.assembly)
    unit.assembler = None
    unit.gpu_launches = [replace(launch, resources=found[launch.entry]) for launch in unit.gpu_launches]
    spilling = [f"{name} {one.spill_bytes}" for name, one in found.items() if one.spill_bytes]
    if spilling and "gpu_" in unit.options.schedule:
        said = f"{unit.target.name} has too few registers for it: bytes spilled by {', '.join(spilling)}"
        raise rejected(said)


def assembler() -> str:
    """The version of ``ptxas``, for the toolchain: it changes bytes."""
    ptxas = find_ptxas()
    return ptxas.version if ptxas else "none"

"""The cubin of the PTX, and the resources of each launch, if ``ptxas`` is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kcache_compiler.llvm.gpu_targets import gpu_target_named
from kcache_compiler.llvm.ptxas import Assembly, assemble_ptx, find_ptxas
from kcache_compiler.lower.gpu.tile_sizes import rejected
from kcache_compiler.passes.stage import Unit


def begin_assembly(unit: Unit) -> None:
    """Start the assembler, if one accepts the PTX, ahead of its input: its startup takes time."""
    ptxas = find_ptxas()
    if ptxas is not None and unit.gpu_launches and ptxas.takes(gpu_target_named(unit.target.name)):
        unit.assembler = Assembly(unit.target.name)


def assemble(unit: Unit) -> None:
    """Set the object code and the resources of the launches, if an assembler was started."""
    if unit.assembler is None:
        return
    unit.object_code, resources = unit.assembler.finish(unit.assembly)
    unit.assembler = None
    if spilling := [name for name, usage in resources.items() if usage.spill_bytes]:
        unlimited = with_all_registers(unit.assembly, spilling)
        if unlimited != unit.assembly:
            unit.assembly = unlimited
            unit.object_code, resources = assemble_ptx(unlimited, unit.target.name)
    unit.gpu_launches = [replace(launch, resources=resources[launch.entry]) for launch in unit.gpu_launches]
    spilling = [f"{name} {usage.spill_bytes}" for name, usage in resources.items() if usage.spill_bytes]
    if spilling and "gpu_" in unit.options.schedule:
        message = f"{unit.target.name} has too few registers for it: bytes spilled by {', '.join(spilling)}"
        raise rejected(message)


def with_all_registers(ptx: str, entries: Sequence[str]) -> str:
    """``ptx`` where ``entries`` may take all registers of a block.

    For more than one block on a multiprocessor, ``ptxas`` spills registers that a block alone would have.
    """
    for entry in entries:
        head = rf"(\.entry {re.escape(entry)}\([^)]*\)\n\.reqntid [^\n]*\n)(?!\.minnctapersm)"
        ptx = re.sub(head, r"\1.minnctapersm 1\n", ptx)
    return ptx


def assembler() -> str:
    """The version of ``ptxas``, for the toolchain: it changes bytes."""
    ptxas = find_ptxas()
    return ptxas.version if ptxas else "none"

"""Kernels of a program for several GPUs: what is lowered alike is lowered once, and emitted for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.gpu.kit.programs import Program
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.gpu_targets import GpuTarget, gpu_target_named
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gpu.tile_sizes import DEFAULTS, RESERVED
from kcache_compiler.passes.stage import Unit, run
from kcache_compiler.pipelines import nvidia
from kcache_compiler.types import CompiledKernel, CompileOptions

#: The first pass that what a target is decides, beyond the properties that ``_lowered_alike`` compares.
_EMISSION = "assembler"


def kernels_for(program: Program, targets: Sequence[str]) -> dict[str, CompiledKernel]:
    """Kernels by target; those whose registers or shared memory the schedule choices do not fit are left out.

    Raises what ``program.compiled`` raises.
    """
    compiled = dict[str, CompiledKernel]()
    for target in sorted(targets, key=lambda name: -gpu_target_named(name).shared_opt_in):
        lowered = [
            kernel
            for name, kernel in compiled.items()
            if _lowered_alike(kernel, gpu_target_named(name), gpu_target_named(target))
        ]
        try:
            if lowered:
                compiled[target] = emitted(lowered[0], target, program.options)
            else:
                compiled[target] = program.compiled(target)
        except CompileFailed as error:
            if error.stage != "schedule":
                raise
    return {target: compiled[target] for target in targets if target in compiled}


def emitted(kernel: CompiledKernel, target: str, options: CompileOptions) -> CompiledKernel:
    """``kernel``, which was compiled with ``options``, from its LLVM IR on for another target.

    Raises ``CompileFailed``.
    """
    unit = Unit("", len(kernel.interface.inputs), target_named(target), options)
    unit.llvm_ir = kernel.artifacts["llvm"].decode()
    unit.gpu_launches = [replace(launch, resources=None) for launch in kernel.interface.gpu_launches]
    pipeline = nvidia()
    first = [stage.name for stage in pipeline].index(_EMISSION)
    unit.verifies = False
    seconds = run(pipeline[first:], unit, lambda _: None)
    artifacts = {**kernel.artifacts, "ptx": unit.assembly.encode()}
    artifacts.pop("cubin", None)
    if unit.object_code:
        artifacts["cubin"] = unit.object_code
    interface = replace(kernel.interface, gpu_launches=tuple(unit.gpu_launches))
    return CompiledKernel(artifacts, interface, seconds)


def _lowered_alike(kernel: CompiledKernel, of: GpuTarget, target: GpuTarget) -> bool:
    """Whether ``kernel``, compiled for ``of``, has the LLVM IR of a compile for ``target``.

    Lowering reads features, the defaults of tiles, and the shared memory of a block. The first plan that
    fits into more shared memory is the first one that fits into less, if it fits there.
    """
    features = ("cp_async", "bf16", "ldmatrix", "wgmma", "mma_shapes")
    if any(getattr(of, name) != getattr(target, name) for name in features):
        return False
    if DEFAULTS[of.capability] != DEFAULTS[target.capability] or of.shared_opt_in < target.shared_opt_in:
        return False
    if of.shared_opt_in == target.shared_opt_in:
        return True
    room = target.shared_opt_in - RESERVED
    sizes = [launch.shared_bytes for launch in kernel.interface.gpu_launches]
    return all(size.isdecimal() and int(size) <= room for size in sizes)

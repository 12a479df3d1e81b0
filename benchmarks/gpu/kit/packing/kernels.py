"""Kernels of a program for several GPUs: what is lowered alike is lowered once, and emitted for each."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from benchmarks.gpu.kit.packing.programs import Program
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.gpu_targets import GPU_TARGETS, GpuTarget, gpu_target_named
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gpu.tile_sizes import DEFAULTS, RESERVED
from kcache_compiler.passes.stage import Stage, Unit, run
from kcache_compiler.pipelines import nvidia
from kcache_compiler.types import CompiledKernel, CompileOptions

#: The first pass of the pipeline after LLVM IR is made, and the one that optimizes it.
_EMISSION, _OPTIMIZATION = "assembler", "optimize"
#: Properties of a target that no pass before it reads.
_EMITTED = frozenset({"name", "triple", "ptx"})


class Emission:
    """``kernel``, which was compiled with ``options``, from its LLVM IR on for other targets.

    The IR is optimized once: LLVM's optimizer makes the same of it for every GPU.
    """

    def __init__(self, kernel: CompiledKernel, options: CompileOptions) -> None:
        self._kernel, self._options = kernel, options
        self._bitcode = b""

    def kernel(self, target: str) -> CompiledKernel:
        """Raises ``CompileFailed``."""
        kernel = self._kernel
        unit = Unit("", len(kernel.interface.inputs), target_named(target), self._options)
        unit.llvm_ir = kernel.artifacts["llvm"].decode()
        unit.gpu_launches = [replace(launch, resources=None) for launch in kernel.interface.gpu_launches]
        unit.verifies, unit.bitcode = False, self._bitcode
        seconds = run(self._stages(), unit, lambda _: None)
        self._bitcode = unit.bitcode
        artifacts = {**kernel.artifacts, "ptx": unit.assembly.encode()}
        artifacts.pop("cubin", None)
        if unit.object_code:
            artifacts["cubin"] = unit.object_code
        interface = replace(kernel.interface, gpu_launches=tuple(unit.gpu_launches))
        return CompiledKernel(artifacts, interface, seconds)

    def _stages(self) -> tuple[Stage, ...]:
        pipeline = nvidia()
        first = [stage.name for stage in pipeline].index(_EMISSION)
        left_out = _OPTIMIZATION if self._bitcode else ""
        return tuple(stage for stage in pipeline[first:] if stage.name != left_out)


@dataclass(frozen=True)
class _Lowered:
    """A kernel, the target that its program was lowered for, and the properties of it that were read."""

    kernel: CompiledKernel
    target: GpuTarget
    reads: frozenset[str]
    emission: Emission


def kernels_for(program: Program, targets: Sequence[str]) -> dict[str, CompiledKernel]:
    """Kernels by target; those whose registers or shared memory the schedule choices do not fit are left out.

    Raises what ``program.compiled`` raises.
    """
    lowered, kernels = list[_Lowered](), dict[str, CompiledKernel]()
    for name in sorted(targets, key=lambda name: -gpu_target_named(name).shared_opt_in):
        target = gpu_target_named(name)
        alike = next((candidate for candidate in lowered if _lowered_alike(candidate, target)), None)
        try:
            if alike is not None:
                kernels[name] = alike.emission.kernel(name)
                continue
            with _reads_of(name) as reads:
                kernels[name] = program.compiled(name)
            emission = Emission(kernels[name], program.options)
            lowered.append(_Lowered(kernels[name], target, frozenset(reads), emission))
        except CompileFailed as error:
            if error.stage != "schedule":
                raise
    return {name: kernels[name] for name in targets if name in kernels}


def _lowered_alike(lowered: _Lowered, target: GpuTarget) -> bool:
    """Whether the kernel has the LLVM IR of a compile for ``target``: all that was read is equal.

    The compute capability selects the defaults of tiles. The first plan that fits into more shared memory is
    the first one that fits into less, if it fits there.
    """
    of, reads = lowered.target, lowered.reads - _EMITTED
    if "capability" in reads and DEFAULTS[of.capability] != DEFAULTS[target.capability]:
        return False
    if "shared_opt_in" in reads and of.shared_opt_in != target.shared_opt_in:
        room = target.shared_opt_in - RESERVED
        sizes = [launch.shared_bytes for launch in lowered.kernel.interface.gpu_launches]
        if of.shared_opt_in < target.shared_opt_in:
            return False
        if not all(size.isdecimal() and int(size) <= room for size in sizes):
            return False
    others = reads - {"capability", "shared_opt_in"}
    return all(getattr(of, name) == getattr(target, name) for name in others)


class _Watched:
    """A target whose ``reads`` are the properties that were read. Equal to no other target, for caches."""

    def __init__(self, target: GpuTarget, reads: set[str]) -> None:
        self._target, self._reads = target, reads

    def __getattr__(self, name: str) -> Any:
        self._reads.add(name)
        return getattr(self._target, name)


@contextmanager
def _reads_of(name: str) -> Generator[set[str], None, None]:
    """The properties of a target that are read meanwhile, in this process."""
    target, reads = GPU_TARGETS[name], set[str]()
    GPU_TARGETS[name] = cast(GpuTarget, _Watched(target, reads))
    try:
        yield reads
    finally:
        GPU_TARGETS[name] = target

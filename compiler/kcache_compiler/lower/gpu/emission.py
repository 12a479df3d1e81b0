"""From the LLVM dialect to PTX and the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterable

from kcache_compiler.llvm.emission import SIMPLIFICATIONS, emit_assembly, optimize, simplified_assembly
from kcache_compiler.lower.cpu.linking import ERROR_CODES
from kcache_compiler.lower.gpu.shared_memory import tiled_symbol
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import text
from kcache_compiler.types import CompiledKernel, KernelInterface


def mark_kernels(unit: Unit) -> None:
    """Set the calling convention and the block size of kernels."""
    symbols = [(mlir.name_of(symbol), symbol) for symbol in mlir.operations(unit.module.body)]
    tiled = {mlir.symbol_of(symbol) for name, symbol in symbols if name == "llvm.mlir.global"}
    blocks = {launch.entry: launch.block for launch in unit.gpu_launches}
    for function in [symbol for name, symbol in symbols if name == "llvm.func"]:
        name = mlir.symbol_of(function)
        function.attributes["no_unwind"] = mlir.unit_attr()
        if name in blocks:
            x, y, z = blocks[name]
            function.attributes["CConv"] = mlir.attribute("#llvm.cconv<ptx_kernelcc>")
            words = f'["nvvm.reqntid", "{x},{y},{z}"]'
            if tiled_symbol(name) in tiled:  # prefer registers to occupancy
                words += ', ["nvvm.minctasm", "1"]'
            function.attributes["passthrough"] = mlir.attribute(f"[{words}]")


def optimize_ir(unit: Unit) -> None:
    if not _is_written_out(unit):
        unit.bitcode = optimize(unit.llvm_ir, unit.target, unit.options.opt_level, vectorize=False)


def emit_ptx(unit: Unit) -> None:
    level = unit.options.opt_level
    if unit.bitcode:
        unit.assembly = emit_assembly(unit.bitcode, unit.target, level)
    else:
        unit.assembly = simplified_assembly(unit.llvm_ir, unit.target, level, min(level, 2))


def _is_written_out(unit: Unit) -> bool:
    entries = [launch.entry for launch in unit.gpu_launches]
    return unit.options.opt_level >= 2 and is_written_out(unit.llvm_ir, entries)


def is_written_out(llvm_ir: str, entries: Iterable[str]) -> bool:
    """Whether all kernels are tiles of products or attention, which are generated in optimized form.

    LLVM's full pipeline improves them little and takes three times as long. They are simplified during
    emission instead.
    """
    return all(tiled_symbol(entry) in llvm_ir for entry in entries)


#: The text of the ``optimize`` stage.
OPTIMIZATION = f"new pass manager at the level of the options; of tiles {','.join(SIMPLIFICATIONS)}"


def gpu_kernel(unit: Unit, seconds: dict[str, float]) -> CompiledKernel:
    """The artifacts and the interface of a unit after the pipeline; ``llvm`` is not yet optimized."""
    interface = KernelInterface(
        inputs=unit.inputs,
        constants=unit.constants,
        outputs=unit.outputs,
        symbols=unit.symbols,
        workspace=text(unit.workspace),
        launches=(),
        triple=unit.target.triple,
        required_isa=(),
        error_codes=dict(ERROR_CODES),
        gpu_launches=tuple(unit.gpu_launches),
        checks=unit.checks,
    )
    artifacts = {
        "ptx": unit.assembly.encode(),
        "mlir": unit.source.encode(),
        "llvm": unit.llvm_ir.encode(),
    }
    if unit.object_code:
        artifacts["cubin"] = unit.object_code
    return CompiledKernel(artifacts, interface, seconds)

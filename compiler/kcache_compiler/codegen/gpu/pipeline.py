"""From a module text to PTX: the CPU's stages up to buffers, then kernels."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler import compile as cpu
from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.formula import text
from kcache_compiler.codegen.gpu.amdgpu import link_code_object, retarget
from kcache_compiler.codegen.gpu.control import MAX_OPERATIONS, flatten_control
from kcache_compiler.codegen.gpu.cubin import assemble, begin_assembly
from kcache_compiler.codegen.gpu.estimates import estimate_weights
from kcache_compiler.codegen.gpu.launches import build_kernels
from kcache_compiler.codegen.gpu.narrow import narrow_operands
from kcache_compiler.codegen.gpu.shared import tiled_symbol
from kcache_compiler.codegen.gpu.widen import widen_reductions
from kcache_compiler.codegen.llvmir import SIMPLIFICATIONS, emit_assembly, optimize, simplified_assembly
from kcache_compiler.codegen.pipeline import BUFFERIZE, TRANSLATE
from kcache_compiler.codegen.stage import Passes, Rewrite, Stage, Unit, run
from kcache_compiler.package.amd import AMD_TARGETS
from kcache_compiler.package.target import Target, target_named
from kcache_compiler.types import CompiledKernel, CompileOptions, KernelInterface


def _mark_kernels(unit: Unit) -> None:
    """Kernels have a calling convention of their own, and say how many threads a block has."""
    symbols = [(mlir.name_of(one), one) for one in mlir.operations(unit.module.body)]
    tiled = {mlir.symbol_of(one) for name, one in symbols if name == "llvm.mlir.global"}
    blocks = {launch.entry: launch.block for launch in unit.gpu_launches}
    for function in [one for name, one in symbols if name == "llvm.func"]:
        name = mlir.symbol_of(function)
        function.attributes["no_unwind"] = mlir.unit_attr()
        if name in blocks:
            x, y, z = blocks[name]
            function.attributes["CConv"] = mlir.attribute("#llvm.cconv<ptx_kernelcc>")
            words = f'["nvvm.reqntid", "{x},{y},{z}"]'
            if tiled_symbol(name) in tiled:  # registers rather than spills and more blocks at a time
                words += ', ["nvvm.minctasm", "1"]'
            function.attributes["passthrough"] = mlir.attribute(f"[{words}]")


def _optimize(unit: Unit) -> None:
    if not _is_written_out(unit):
        unit.bitcode = optimize(unit.llvm_ir, unit.target, unit.options.opt_level, vectorize=False)


def _emit(unit: Unit) -> None:
    level = unit.options.opt_level
    if unit.bitcode:
        unit.assembly = emit_assembly(unit.bitcode, unit.target, level)
    else:
        unit.assembly = simplified_assembly(unit.llvm_ir, unit.target, level, min(level, 2))


def _is_written_out(unit: Unit) -> bool:
    """All kernels are tiles of products or attention: long, and written as they should run. LLVM's long list
    of passes finds little in them, and takes three times as long. They are simplified as they are emitted.
    """
    if unit.options.opt_level < 2 or unit.target.name in AMD_TARGETS:
        return False
    return all(tiled_symbol(launch.entry) in unit.llvm_ir for launch in unit.gpu_launches)


_TENSORS = cpu.PIPELINE.index(BUFFERIZE[0])
_CONTROL, _FUSED = (
    [stage.name for stage in cpu.PIPELINE].index(one) for one in ("control-flow", "attention")
)

_LOWER = Passes(
    "llvm-dialect",
    "convert-scf-to-cf,canonicalize,cse,convert-complex-to-llvm,arith-expand{include-bf16=true},"
    "convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,"
    "convert-func-to-llvm,reconcile-unrealized-casts,cse",
    between=False,
)
_OPTIMIZE = f"new pass manager at the level of the options; of tiles {','.join(SIMPLIFICATIONS)}"

PIPELINE: tuple[Stage, ...] = (
    *cpu.PIPELINE[:_CONTROL],
    Rewrite("flat-control", flatten_control, f"to {MAX_OPERATIONS} operations"),
    *cpu.PIPELINE[_CONTROL + 1 : _FUSED],
    Rewrite("narrow-operands", narrow_operands),
    cpu.PIPELINE[_FUSED],
    Rewrite("estimates", estimate_weights, "of attention's weights in f16 and bf16"),
    *cpu.PIPELINE[_FUSED + 1 : _TENSORS],
    Rewrite("wide-reductions", widen_reductions),
    *BUFFERIZE,
    Rewrite("launches", build_kernels, verify=False),
    _LOWER,
    Rewrite("kernels", _mark_kernels, verify=False),
    *TRANSLATE,
    Rewrite("assembler", begin_assembly, verify=False),
    Rewrite("optimize", _optimize, _OPTIMIZE, verify=False),
    Rewrite("ptx", _emit, "the oldest PTX that has the architecture", verify=False),
    Rewrite("cubin", assemble, verify=False),
)

_TRANSLATED, _OPTIMIZED = ([stage.name for stage in PIPELINE].index(one) for one in ("assembler", "optimize"))
#: For AMD's GPUs.
AMD_PIPELINE: tuple[Stage, ...] = (
    *PIPELINE[:_TRANSLATED],
    Rewrite("amdgpu", retarget, verify=False),
    PIPELINE[_OPTIMIZED],
    Rewrite("hsaco", link_code_object, verify=False),
)


def pipeline_for(target: Target) -> tuple[Stage, ...]:
    """The stages of a GPU."""
    return AMD_PIPELINE if target.name in AMD_TARGETS else PIPELINE


def lower_gpu(
    module_text: str,
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
) -> CompiledKernel:
    """Compile a module whose ``main`` takes ``n_inputs`` inputs, then lifted constants, for a GPU."""
    unit = Unit(module_text, n_inputs, target_named(target), options)
    with mlir.new_context(), mlir.unknown_location():
        seconds = run(pipeline_for(unit.target), unit, on_stage)
    return kernel_of(unit, seconds)


def kernel_of(unit: Unit, seconds: dict[str, float]) -> CompiledKernel:
    """What a unit that went through the pipeline became; ``llvm`` is what LLVM's optimizer was given."""
    interface = KernelInterface(
        inputs=unit.inputs,
        constants=unit.constants,
        outputs=unit.outputs,
        symbols=unit.symbols,
        workspace=text(unit.workspace),
        launches=(),
        triple=unit.target.triple,
        required_isa=(),
        error_codes=dict(cpu.ERROR_CODES),
        gpu_launches=tuple(unit.gpu_launches),
        checks=unit.checks,
    )
    artifacts = {"mlir": unit.source.encode(), "llvm": unit.llvm_ir.encode()}
    if unit.target.name in AMD_TARGETS:
        artifacts = {"hsaco": unit.object_code, **artifacts}
    else:
        artifacts = {"ptx": unit.assembly.encode(), **artifacts}
        if unit.object_code:
            artifacts["cubin"] = unit.object_code
    return CompiledKernel(artifacts, interface, seconds)

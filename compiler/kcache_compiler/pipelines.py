"""The pass pipelines: ``cpu()`` and ``nvidia()``, every pass in order.

Both start from the rendered spec and share legalization, fusion and bufferization. ``cpu()`` then outlines
launches as functions of one shared object; ``nvidia()`` emits each launch as a kernel of a PTX module. The
text of a pipeline is part of the toolchain fingerprint.
"""

from __future__ import annotations

import functools

from kcache_compiler.llvm.emission import EMISSION
from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.lower.cpu import emission
from kcache_compiler.lower.cpu.entry import build_entry
from kcache_compiler.lower.cpu.linking import cpu_kernel, link_objects, linked_objects
from kcache_compiler.lower.cpu.split_loops import split_loops
from kcache_compiler.lower.gemm.narrow_operands import narrow_operands
from kcache_compiler.lower.gpu import emission as gpu
from kcache_compiler.lower.gpu.cubin import assemble, begin_assembly
from kcache_compiler.lower.gpu.launches import build_kernels
from kcache_compiler.lower.gpu.passes.fast_exponentials import estimate_weights
from kcache_compiler.lower.gpu.passes.flatten_control import MAX_OPERATIONS, flatten_control
from kcache_compiler.lower.gpu.passes.split_reductions import split_reductions
from kcache_compiler.lower.gpu.passes.split_rows import split_rows
from kcache_compiler.lower.loops.wide_reductions import widen_reductions
from kcache_compiler.lower.sort_scatter.legalize_scatter import carry_regions, replace_stand_ins_by_markers
from kcache_compiler.lower.subkernels.outline import (
    MIN_EQUAL,
    MIN_EQUAL_FUSED,
    cut_subkernels,
    lay_out_subkernels,
)
from kcache_compiler.passes.attention.mark import mark
from kcache_compiler.passes.bufferization.forward_outputs import forward_results
from kcache_compiler.passes.bufferization.signature import pass_destinations, read_signature
from kcache_compiler.passes.bufferization.split_long_chains import LINKS, split_update_chains
from kcache_compiler.passes.bufferization.write_into_parts import write_into_parts
from kcache_compiler.passes.cpu_tuning import interleave, tune
from kcache_compiler.passes.deduplicate_functions import deduplicate_functions
from kcache_compiler.passes.expand_math_calls import LATE_MATH, expand_late_math, expand_math_calls
from kcache_compiler.passes.fast_math import relax
from kcache_compiler.passes.fusion.elementwise import fuse, separate_destinations
from kcache_compiler.passes.generic import copies_to_generics, hoist_sizes
from kcache_compiler.passes.grouped_query_products import group_query_products
from kcache_compiler.passes.legalize.complex_functions import lower_complex_scalars, lower_complex_tensors
from kcache_compiler.passes.legalize.control_flow import drop_dynamic_branch_layouts, to_scf, yield_in_place
from kcache_compiler.passes.legalize.dynamic.operations import lower_dynamic
from kcache_compiler.passes.legalize.expansions.expand import expand_definitions
from kcache_compiler.passes.legalize.expansions.select_and_scatter import expand_select_and_scatter
from kcache_compiler.passes.legalize.float_functions import call_math_library
from kcache_compiler.passes.legalize.loop_invariants import hoist_invariants
from kcache_compiler.passes.legalize.reject_unlowered import reject_unlowered
from kcache_compiler.passes.legalize.scalar_operands import keep_insertion_strides
from kcache_compiler.passes.legalize.scans import raise_scans
from kcache_compiler.passes.legalize.semantics.preserve_semantics import preserve_semantics
from kcache_compiler.passes.legalize.signless_types import erase_signedness
from kcache_compiler.passes.legalize.tuples import fold_tuples_and_static_shapes
from kcache_compiler.passes.literals import inline_scalars
from kcache_compiler.passes.math import VERSION as MATH_VERSION
from kcache_compiler.passes.narrow_types.emulate_narrow_types import emulate_narrow_types
from kcache_compiler.passes.narrow_types.half_precision import (
    EMULATE,
    convert_half_in_software,
    keep_roundings,
    math_on_f32,
    round_once,
    select_as_integers,
)
from kcache_compiler.passes.narrow_types.order_sensitive import mark_order_sensitive
from kcache_compiler.passes.parse import parse
from kcache_compiler.passes.sink_transposes import sink_transposes
from kcache_compiler.passes.software_fma import emulate_fma
from kcache_compiler.passes.split_basic_blocks import BLOCK, split_basic_blocks
from kcache_compiler.passes.split_basic_blocks import MANY as MANY_LAUNCHES
from kcache_compiler.passes.stage import Pass, Stage, Unit, UpstreamPasses
from kcache_compiler.schedule.choices import FuseLimits
from kcache_compiler.types import CompiledKernel


def _cut_subkernels(unit: Unit) -> None:
    cut_subkernels(unit, cpu())


def _legalize(control_flow: Stage) -> tuple[Stage, ...]:
    """StableHLO to ``linalg.generic`` on tensors."""
    return (
        Pass("parse", parse, output="module"),
        Pass("transposes", sink_transposes),
        Pass("grouped-products", group_query_products),
        Pass("small-elements", emulate_narrow_types, output="narrow_buffers"),
        Pass(
            "subkernels", _cut_subkernels, f"of {MIN_EQUAL} that are equal, {MIN_EQUAL_FUSED} where they fuse"
        ),
        Pass("definitions", expand_definitions),
        UpstreamPasses("inline", "inline,symbol-dce"),
        Pass("static-shapes", fold_tuples_and_static_shapes),
        Pass("select-and-scatter", expand_select_and_scatter),
        Pass("signature", read_signature, output="signature"),
        Pass("dynamic-shapes", lower_dynamic, output="size_checks"),
        Pass("complex-functions", lower_complex_tensors),
        Pass("math-library", call_math_library),
        Pass("preserve-semantics", preserve_semantics),
        UpstreamPasses("chlo", "func.func(chlo-legalize-to-stablehlo)", rejects=True),
        Pass("invariants", hoist_invariants),
        control_flow,
        Pass("regions", carry_regions),
        UpstreamPasses("linalg", "stablehlo-legalize-to-linalg", rejects=True),
        Pass("shuffles", replace_stand_ins_by_markers),
        Pass("reject", reject_unlowered),
        Pass("signless", erase_signedness),
        Pass("insertion-strides", keep_insertion_strides),
        UpstreamPasses("canonicalize", "canonicalize"),
        Pass("scans", raise_scans),
        Pass("loops", yield_in_place),
        Pass("separate-destinations", separate_destinations),
        UpstreamPasses("generalize", "func.func(linalg-generalize-named-ops)"),
        Pass("ordered", mark_order_sensitive),
        Pass("fuse", fuse, f"to {FuseLimits()}"),
    )


def _scalar_math(*narrow: Stage) -> tuple[Stage, ...]:
    """Bodies in arithmetic that targets have: math functions are expanded, narrow floats computed in f32.

    ``narrow``: passes that read conversions of f16, which not all targets have.
    """
    return (
        Pass("complex-numbers", lower_complex_scalars),
        UpstreamPasses("complex", "func.func(convert-complex-to-standard)"),
        Pass("math-on-f32", math_on_f32),
        Pass("math", expand_math_calls, f"library {MATH_VERSION}"),
        Pass("fma", emulate_fma),
        Pass("round-once", round_once),
        UpstreamPasses("narrow-floats", EMULATE),
        Pass("narrow-roundings", keep_roundings),
        Pass("narrow-selects", select_as_integers),
        *narrow,
        Pass("half-conversions", convert_half_in_software),
    )


def _bufferize(*last: Stage) -> tuple[Stage, ...]:
    """Tensors to buffers; results are written to buffers of the caller.

    ``last``: passes before numerics are relaxed.
    """
    return (
        Pass("destinations", pass_destinations),
        UpstreamPasses("simplify", "canonicalize,cse"),
        Pass("separate-destinations-late", separate_destinations),
        Pass("update-chains", split_update_chains, f"chains of {LINKS}"),
        UpstreamPasses("bufferize", "one-shot-bufferize{buffer-alignment=64},canonicalize,cse"),
        Pass("forward-results", forward_results),
        Pass("branch-layouts", drop_dynamic_branch_layouts),
        Pass("subkernel-layouts", lay_out_subkernels),
        Pass("copies", copies_to_generics),
        UpstreamPasses("generalize-buffers", "func.func(linalg-generalize-named-ops)"),
        Pass("hoist-sizes", hoist_sizes),
        *last,
        Pass("numerics", relax),
    )


def _translate() -> tuple[Stage, ...]:
    """The LLVM dialect to LLVM IR of the version that llvmlite reads."""
    return (
        Pass("translate", emission.translate, verify=False),
        Pass("downgrade", emission.downgrade_ir, verify=False),
    )


@functools.cache
def cpu() -> tuple[Stage, ...]:
    """Return the pipeline from StableHLO to a shared object."""
    return (
        *_legalize(Pass("control-flow", to_scf)),
        Pass("narrow-operands", narrow_operands),
        Pass("attention", mark),
        *_scalar_math(Pass("wide-reductions", widen_reductions)),
        *_bufferize(Pass("subkernels-in-place", write_into_parts), Pass("literals", inline_scalars)),
        Pass("launches", build_entry),
        Pass("share", deduplicate_functions),
        Pass("late-math", expand_late_math, f"of programs that call more than {LATE_MATH} operations"),
        Pass("split-loops", split_loops),
        Pass("interleave", interleave),
        UpstreamPasses(
            "llvm-dialect",
            "expand-strided-metadata,lower-affine,convert-scf-to-cf,canonicalize,cse,convert-complex-to-llvm,"
            "arith-expand{include-bf16=true},convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,"
            "convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts,"
            "canonicalize,cse",
            between=False,
        ),
        Pass("tuning", tune),
        Pass("attributes", emission.set_function_attributes),
        Pass("blocks", split_basic_blocks, f"{BLOCK} launches a block of {MANY_LAUNCHES} and more"),
        *_translate(),
        Pass("merge", emission.merge_ir, verify=False),
        Pass("optimize", emission.optimize_ir, emission.OPTIMIZATION, verify=False),
        Pass("assembly", emission.emit_text, verify=False),
        Pass("object", emission.emit_code, f"position independent {EMISSION}", verify=False),
        Pass("link", link_objects, linked_objects(), verify=False),
    )


@functools.cache
def nvidia() -> tuple[Stage, ...]:
    """Return the pipeline from StableHLO to PTX, and to a cubin if ``ptxas`` is installed."""
    return (
        *_legalize(Pass("flat-control", flatten_control, f"to {MAX_OPERATIONS} operations")),
        Pass("narrow-operands", narrow_operands),
        Pass("attention", mark),
        Pass("estimates", estimate_weights, "of attention's weights in f16 and bf16"),
        Pass("split-rows", split_rows),
        *_scalar_math(),
        Pass("wide-reductions", widen_reductions),
        Pass("split-reductions", split_reductions),
        *_bufferize(),
        Pass("launches", build_kernels, verify=False),
        UpstreamPasses(
            "llvm-dialect",
            "convert-scf-to-cf,canonicalize,cse,convert-complex-to-llvm,arith-expand{include-bf16=true},"
            "convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,"
            "convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts,cse",
            between=False,
        ),
        Pass("kernels", gpu.mark_kernels, verify=False),
        *_translate(),
        Pass("assembler", begin_assembly, verify=False),
        Pass("optimize", gpu.optimize_ir, gpu.OPTIMIZATION, verify=False),
        Pass("ptx", gpu.emit_ptx, "the oldest PTX that has the architecture", verify=False),
        Pass("cubin", assemble, verify=False),
    )


def pipeline_for(target: Target) -> tuple[Stage, ...]:
    """Return the pipeline of a target."""
    return nvidia() if isinstance(target, Device) else cpu()


def kernel_of(unit: Unit, seconds: dict[str, float]) -> CompiledKernel:
    """Return the kernel of a unit that its target's pipeline lowered in ``seconds`` by stage."""
    return (gpu.gpu_kernel if isinstance(unit.target, Device) else cpu_kernel)(unit, seconds)

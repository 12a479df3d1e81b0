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
from kcache_compiler.lower.gpu import emission as gpu
from kcache_compiler.lower.gpu.cubin import assemble, begin_assembly
from kcache_compiler.lower.gpu.launches import build_kernels
from kcache_compiler.lower.gpu.passes.fast_exponentials import estimate_weights
from kcache_compiler.lower.gpu.passes.flatten_control import MAX_OPERATIONS, flatten_control
from kcache_compiler.lower.gpu.passes.narrow_operands import narrow_operands
from kcache_compiler.lower.gpu.passes.wide_reductions import widen_reductions
from kcache_compiler.lower.sort_scatter.legalize_scatter import carry_regions, mark_shuffles
from kcache_compiler.lower.subkernels.outline import MANY, MORE, cut_parts, lay_out_parts
from kcache_compiler.passes.attention.mark import mark
from kcache_compiler.passes.cpu_tuning import TUNE
from kcache_compiler.passes.deduplicate_functions import share_functions
from kcache_compiler.passes.expand_math_calls import LATE_MATH, expand_late_math, expand_math_calls
from kcache_compiler.passes.fast_math import relax
from kcache_compiler.passes.forward_outputs import forward_results
from kcache_compiler.passes.fusion.elementwise import fuse, unshare
from kcache_compiler.passes.generic import copies_to_generics, hoist_sizes
from kcache_compiler.passes.legalize.complex_functions import call_complex_functions, call_for_numbers
from kcache_compiler.passes.legalize.control_flow import carry_in_place, plain_branch_layouts, to_scf
from kcache_compiler.passes.legalize.dynamic.operations import lower_dynamic
from kcache_compiler.passes.legalize.expansions.expand import expand_definitions
from kcache_compiler.passes.legalize.expansions.select_and_scatter import expand_picks
from kcache_compiler.passes.legalize.float_functions import call_math_library
from kcache_compiler.passes.legalize.scalar_operands import keep_places
from kcache_compiler.passes.legalize.scans import raise_scans
from kcache_compiler.passes.legalize.semantics.rewrite import keep_meaning
from kcache_compiler.passes.legalize.signless_types import erase_signs
from kcache_compiler.passes.legalize.tuples import take_apart
from kcache_compiler.passes.math import VERSION as MATH_VERSION
from kcache_compiler.passes.narrow_types.half_precision import (
    EMULATE,
    convert_half_in_software,
    keep_roundings,
    math_on_f32,
    round_once,
    select_as_integers,
)
from kcache_compiler.passes.narrow_types.order_sensitive import mark_ordered
from kcache_compiler.passes.narrow_types.rewrite import hold_small_elements
from kcache_compiler.passes.parse import parse, reject_unlowered
from kcache_compiler.passes.signature import pass_destinations, read_signature
from kcache_compiler.passes.software_fma import emulate_fma
from kcache_compiler.passes.split_basic_blocks import BLOCK, cut_blocks
from kcache_compiler.passes.split_basic_blocks import MANY as MANY_LAUNCHES
from kcache_compiler.passes.split_long_chains import LINKS, cut_links, tell_reads
from kcache_compiler.passes.stage import Passes, Rewrite, Stage, Unit
from kcache_compiler.schedule.choices import FuseLimits
from kcache_compiler.types import CompiledKernel


def _cut_parts(unit: Unit) -> None:
    cut_parts(unit, cpu())


def _pass_destinations(unit: Unit) -> None:
    pass_destinations(unit)
    tell_reads(unit)


def _legalize(control_flow: Stage) -> tuple[Stage, ...]:
    """StableHLO to ``linalg.generic`` on tensors."""
    return (
        Rewrite("parse", parse),
        Rewrite("small-elements", hold_small_elements),
        Rewrite("parts", _cut_parts, f"of {MANY} that are equal, {MORE} where they fuse"),
        Rewrite("definitions", expand_definitions),
        Passes("inline", "inline,symbol-dce"),
        Rewrite("static-shapes", take_apart),
        Rewrite("picks", expand_picks),
        Rewrite("signature", read_signature),
        Rewrite("dynamic-shapes", lower_dynamic),
        Rewrite("complex-functions", call_complex_functions),
        Rewrite("math-library", call_math_library),
        Rewrite("meaning", keep_meaning),
        Passes("chlo", "func.func(chlo-legalize-to-stablehlo)", refuses=True),
        control_flow,
        Rewrite("regions", carry_regions),
        Passes("linalg", "stablehlo-legalize-to-linalg", refuses=True),
        Rewrite("shuffles", mark_shuffles),
        Rewrite("refuse", reject_unlowered),
        Rewrite("signless", erase_signs),
        Rewrite("spread", keep_places),
        Passes("canonicalize", "canonicalize"),
        Rewrite("scans", raise_scans),
        Rewrite("loops", carry_in_place),
        Rewrite("unshare", unshare),
        Passes("generalize", "func.func(linalg-generalize-named-ops)"),
        Rewrite("ordered", mark_ordered),
        Rewrite("fuse", fuse, f"to {FuseLimits()}"),
    )


def _scalar_math() -> tuple[Stage, ...]:
    """Bodies in arithmetic that targets have: math functions are expanded, narrow floats computed in f32."""
    return (
        Rewrite("complex-numbers", call_for_numbers),
        Passes("complex", "func.func(convert-complex-to-standard)"),
        Rewrite("math-on-f32", math_on_f32),
        Rewrite("math", expand_math_calls, f"library {MATH_VERSION}"),
        Rewrite("fma", emulate_fma),
        Rewrite("round-once", round_once),
        Passes("narrow-floats", EMULATE),
        Rewrite("narrow-roundings", keep_roundings),
        Rewrite("narrow-selects", select_as_integers),
        Rewrite("half-conversions", convert_half_in_software),
    )


def _bufferize() -> tuple[Stage, ...]:
    """Tensors to buffers; results are written to buffers of the caller."""
    return (
        Rewrite("destinations", _pass_destinations),
        Passes("simplify", "canonicalize,cse"),
        Rewrite("own-destinations", unshare),
        Rewrite("links", cut_links, f"chains of {LINKS}"),
        Passes("bufferize", "one-shot-bufferize{buffer-alignment=64},canonicalize,cse"),
        Rewrite("forward-results", forward_results),
        Rewrite("branch-layouts", plain_branch_layouts),
        Rewrite("part-layouts", lay_out_parts),
        Rewrite("copies", copies_to_generics),
        Passes("generalize-buffers", "func.func(linalg-generalize-named-ops)"),
        Rewrite("hoist-sizes", hoist_sizes),
        Rewrite("numerics", relax),
    )


def _translate() -> tuple[Stage, ...]:
    """The LLVM dialect to LLVM IR of the version that llvmlite reads."""
    return (
        Rewrite("translate", emission.translate, verify=False),
        Rewrite("seam", emission.downgrade_ir, verify=False),
    )


@functools.cache
def cpu() -> tuple[Stage, ...]:
    """Return the pipeline from StableHLO to a shared object."""
    return (
        *_legalize(Rewrite("control-flow", to_scf)),
        Rewrite("attention", mark),
        *_scalar_math(),
        *_bufferize(),
        Rewrite("launches", build_entry),
        Rewrite("share", share_functions),
        Rewrite("late-math", expand_late_math, f"of programs that call more than {LATE_MATH} operations"),
        Passes(
            "llvm-dialect",
            "expand-strided-metadata,lower-affine,convert-scf-to-cf,canonicalize,cse,convert-complex-to-llvm,"
            "arith-expand{include-bf16=true},convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,"
            "convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts,"
            "canonicalize,cse",
            between=False,
        ),
        TUNE,
        Rewrite("attributes", emission.set_function_attributes),
        Rewrite("blocks", cut_blocks, f"{BLOCK} launches a block of {MANY_LAUNCHES} and more"),
        *_translate(),
        Rewrite(
            "optimize", emission.optimize_ir, "new pass manager at the level of the options", verify=False
        ),
        Rewrite("assembly", emission.emit_text, verify=False),
        Rewrite("object", emission.emit_code, f"position independent {EMISSION}", verify=False),
        Rewrite("link", link_objects, linked_objects(), verify=False),
    )


@functools.cache
def nvidia() -> tuple[Stage, ...]:
    """Return the pipeline from StableHLO to PTX, and to a cubin if ``ptxas`` is installed."""
    return (
        *_legalize(Rewrite("flat-control", flatten_control, f"to {MAX_OPERATIONS} operations")),
        Rewrite("narrow-operands", narrow_operands),
        Rewrite("attention", mark),
        Rewrite("estimates", estimate_weights, "of attention's weights in f16 and bf16"),
        *_scalar_math(),
        Rewrite("wide-reductions", widen_reductions),
        *_bufferize(),
        Rewrite("launches", build_kernels, verify=False),
        Passes(
            "llvm-dialect",
            "convert-scf-to-cf,canonicalize,cse,convert-complex-to-llvm,arith-expand{include-bf16=true},"
            "convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,"
            "convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts,cse",
            between=False,
        ),
        Rewrite("kernels", gpu.mark_kernels, verify=False),
        *_translate(),
        Rewrite("assembler", begin_assembly, verify=False),
        Rewrite("optimize", gpu.optimize_ir, gpu.OPTIMIZATION, verify=False),
        Rewrite("ptx", gpu.emit_ptx, "the oldest PTX that has the architecture", verify=False),
        Rewrite("cubin", assemble, verify=False),
    )


def pipeline_for(target: Target) -> tuple[Stage, ...]:
    """Return the pipeline of a target."""
    return nvidia() if isinstance(target, Device) else cpu()


def kernel_of(unit: Unit, seconds: dict[str, float]) -> CompiledKernel:
    """Return the kernel of a unit that its target's pipeline lowered in ``seconds`` by stage."""
    return (gpu.gpu_kernel if isinstance(unit.target, Device) else cpu_kernel)(unit, seconds)

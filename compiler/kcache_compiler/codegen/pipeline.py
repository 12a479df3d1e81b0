"""From linalg on tensors to object code: the stages below the schedule, on one page."""

from __future__ import annotations

from kcache_compiler.codegen import entry, mlir, signature
from kcache_compiler.codegen.bits import as_integers
from kcache_compiler.codegen.blocks import BLOCK, MANY, cut_blocks
from kcache_compiler.codegen.forward import forward_results
from kcache_compiler.codegen.generic import copies_to_generics, hoist_sizes
from kcache_compiler.codegen.legalize.control import plain_branch_layouts
from kcache_compiler.codegen.links import LINKS, cut_links, tell_reads
from kcache_compiler.codegen.llvmir import EMISSION, assemble, assembles, emit_assembly, emit_object, optimize
from kcache_compiler.codegen.numerics import relax
from kcache_compiler.codegen.parts import lay_out_parts
from kcache_compiler.codegen.seam import downgrade
from kcache_compiler.codegen.shared import share_functions
from kcache_compiler.codegen.stage import Passes, Rewrite, Stage, Unit
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.package.cpus import tuning_for
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.fuse import unshare


def _pass_destinations(unit: Unit) -> None:
    signature.pass_destinations(unit)
    tell_reads(unit)


BUFFERIZE: tuple[Stage, ...] = (
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

LOWER: tuple[Stage, ...] = (
    Passes(
        "llvm-dialect",
        "expand-strided-metadata,lower-affine,convert-scf-to-cf,canonicalize,cse,convert-complex-to-llvm,"
        "arith-expand{include-bf16=true},convert-math-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,"
        "convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts,canonicalize,cse",
        between=False,
    ),
)


def _keep_launches_apart(unit: Unit) -> None:
    """Launches are not inlined: each is optimized alone, with its ``noalias`` arguments."""
    bits = parse_choices(unit.options.schedule).vector_bits
    for function in mlir.named(unit.module, "llvm.func"):
        function.attributes["no_unwind"] = mlir.unit_attr()
        if mlir.symbol_of(function).removeprefix("launch_").replace("_", "").isdigit():
            function.attributes["no_inline"] = mlir.unit_attr()
            if bits:
                words = f'[["prefer-vector-width", "{bits}"]]'
                function.attributes["passthrough"] = mlir.attribute(words)


LAUNCHES: tuple[Stage, ...] = (
    Rewrite("launches", entry.build_entry),
    Rewrite("share", share_functions),
)


def _translate(unit: Unit) -> None:
    """LLVM 24 text; anything that is not the LLVM dialect by now is refused, as translation would crash."""
    names = mlir.names(unit.module) - {"builtin.module"}
    left = {name for name in names if not name.startswith("llvm.")}
    for operation in mlir.walk(unit.module) if left else ():
        if mlir.name_of(operation) in left:
            where = mlir.location_of(operation)
            raise UnsupportedOp(mlir.name_of(operation), "no code is generated for it", where)
    unit.llvm_ir = mlir.to_llvm_text(unit.module)


def _downgrade(unit: Unit) -> None:
    unit.llvm_ir = downgrade(unit.llvm_ir)


def _optimize(unit: Unit) -> None:
    unroll = parse_choices(unit.options.schedule).unrolls
    level = unit.options.opt_level
    text = unit.llvm_ir if level else as_integers(unit.llvm_ir)
    unit.bitcode = optimize(text, unit.target, level, unroll)


def _assembly(unit: Unit) -> None:
    unit.assembly = emit_assembly(unit.bitcode, unit.target, unit.options.opt_level)


def _emit(unit: Unit) -> None:
    """Code is generated once where its text can be assembled; the bytes are the same."""
    if assembles(unit.target):
        model = tuning_for(unit.target.name, unit.options.tuning).llvm
        unit.object_code = assemble(unit.assembly, unit.target, model)
    else:
        unit.object_code = emit_object(unit.bitcode, unit.target, unit.options.opt_level)


TRANSLATE: tuple[Stage, ...] = (
    Rewrite("translate", _translate, verify=False),
    Rewrite("seam", _downgrade, verify=False),
)

EMIT: tuple[Stage, ...] = (
    Rewrite("attributes", _keep_launches_apart),
    Rewrite("blocks", cut_blocks, f"{BLOCK} launches a block of {MANY} and more"),
    *TRANSLATE,
    Rewrite("optimize", _optimize, "new pass manager at the level of the options", verify=False),
    Rewrite("assembly", _assembly, verify=False),
    Rewrite("object", _emit, f"position independent {EMISSION}", verify=False),
)

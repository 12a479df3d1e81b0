"""Subkernels: repeated operations that take long to compile are compiled once, as a kernel that is called.

Transforms and factorizations have long definitions, loops and branches are separate launches, functions with
loops are long code. If a program has many that differ only in their inputs, one becomes a subkernel
(``Subkernel``): a module that passes through the whole pipeline. In the program, each operation becomes a
marker, whose launch calls the entry of the subkernel. A chain of them has the same bits as separate calls.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

from kcache_compiler.errors import CompilerError
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.cpu.workspace import aligned
from kcache_compiler.lower.loops.launch import Outlined
from kcache_compiler.lower.sort_scatter.marker import (
    MarkerLaunch,
    build_marker,
    compare_with_zero,
    marked,
    zero_constant,
)
from kcache_compiler.lower.subkernels.candidates import Candidate, candidate_of
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, memref
from kcache_compiler.passes.legalize.elementwise import signless_tensor
from kcache_compiler.passes.legalize.stand_ins import replace, signless, stand_in
from kcache_compiler.passes.stage import Stage, Unit, run
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.subkernel import Subkernel
from kcache_compiler.shapes.formula import evaluate_text, substitute
from kcache_compiler.types import Launch

#: Minimum number of equal operations for a subkernel, and for one of operations that would otherwise fuse.
MIN_EQUAL, MIN_EQUAL_FUSED = 32, 256
SUBKERNEL = "part"
_NAMES = (
    *("chlo.polygamma", "chlo.zeta"),
    *("stablehlo.case", "stablehlo.if", "stablehlo.while"),
    *("stablehlo.cholesky", "stablehlo.custom_call", "stablehlo.fft", "stablehlo.rng"),
    *("stablehlo.rng_bit_generator", "stablehlo.triangular_solve"),
)
_FUSED = (
    *("stablehlo.batch_norm_grad", "stablehlo.batch_norm_training"),
    "stablehlo.select_and_scatter",
)
#: The value of all symbols when the launches of a subkernel are compared by their number of slices.
_TYPICAL = 1024


def cut_subkernels(unit: Unit, pipeline: tuple[Stage, ...]) -> None:
    """Replace each operation that becomes a subkernel by a stand-in; ``pipeline`` compiles the subkernels.

    ``cut_dynamic_subkernels`` handles programs with dynamic sizes, at all samples.
    """
    if isinstance(unit.target, Device) or unit.given or reports_launches(unit):
        return
    roots: list[mlir.Op] = (
        [mlir.main_function(unit.module)]
        if len(mlir.named(unit.module, *_NAMES, *_FUSED)) >= MIN_EQUAL
        else []
    )
    while roots:
        by_key: dict[Hashable, list[Candidate]] = {}
        for op in [op for root in roots for op in outermost(root, *_NAMES, *_FUSED)]:
            piece = candidate_of(op)
            by_key.setdefault(piece.key, []).append(piece)
        roots = []
        for pieces in by_key.values():
            first = pieces[0]
            subkernel = None
            threshold = MIN_EQUAL_FUSED if mlir.name_of(first.op) in _FUSED else MIN_EQUAL
            if len(pieces) >= threshold and first.may_be_subkernel():
                subkernel = _compiled(unit, first.text(), len(first.given()), pipeline)
            if subkernel is None:
                roots += [piece.op for piece in pieces if mlir.has_regions(piece.op)]
                continue
            for piece in pieces:
                replace_by_stand_in(piece, subkernel)


def reports_launches(unit: Unit) -> bool:
    """Whether the kernel reports its launches: those of a subkernel would have no numbers of their own."""
    return parse_choices(unit.options.schedule).reports_launches


def outermost(root: mlir.Op, *names: str) -> Iterator[mlir.Op]:
    """The operations of these names below ``root`` that are not nested in another one."""
    nested: set[mlir.Op] = set()
    for op in mlir.named(root, *names):
        if op == root or op in nested:
            continue
        nested.update(mlir.walk(op)[1:])
        yield op


def replace_by_stand_in(piece: Candidate, subkernel: Subkernel) -> None:
    """Replace the operation by a stand-in that names the subkernel."""
    op = piece.op
    with mlir.before(op):
        zero_constant = mlir.empty_tensor(
            mlir.type_of("tensor<1xi1>")
        )  # otherwise the note could be taken for a cast
        kinds = [result.type for result in op.results]
        stand_in_op = stand_in(
            [*piece.given(), zero_constant], kinds, {"kind": SUBKERNEL, "name": subkernel.name}
        )
    replace(op, list(stand_in_op.results))


def subkernel_name(*texts: str) -> str:
    """The name of the subkernel of a module, or of the modules at samples of dynamic sizes."""
    joined = "\n".join(texts)
    return f"kcache_part_{hashlib.sha256(joined.encode()).hexdigest()[:16]}"


def _compiled(unit: Unit, text: str, count: int, pipeline: tuple[Stage, ...]) -> Subkernel | None:
    """The subkernel of a module with ``count`` inputs; None if it cannot be compiled separately."""
    name = subkernel_name(text)
    if name in unit.subkernels:
        return unit.subkernels[name]
    inner = Unit(text, count, unit.target, unit.options, unit.libraries)
    translated = [stage.name for stage in pipeline].index("downgrade")
    try:
        run(pipeline[:translated], inner, lambda _: None)
        subkernel = finished(inner, name, pipeline)
    except CompilerError:
        return None  # compiling the operation in place reports the error
    if subkernel is None:
        return None
    unit.subkernels.update(inner.subkernels)
    unit.subkernels[name] = subkernel
    return subkernel


def finished(inner: Unit, name: str, pipeline: tuple[Stage, ...]) -> Subkernel | None:
    """The subkernel of a unit of LLVM IR; None if it has no launches. Raises the errors of the stages."""
    stages = [stage.name for stage in pipeline]
    translated, end = stages.index("downgrade"), stages.index("optimize")
    run(pipeline[translated:end], inner, lambda _: None)
    for entry in ("kcache_run", "kcache_abi"):
        inner.llvm_ir = inner.llvm_ir.replace(f"@{entry}(", f"@{name}{entry[6:].removeprefix('_run')}(")
    run(pipeline[end : stages.index("link")], inner, lambda _: None)
    if not inner.launches:
        return None
    fixed = aligned(substitute(inner.workspace, {"workers": 0}))
    widest = max(inner.launches, key=_slices)
    ops = tuple(dict.fromkeys(op for launch in inner.launches for op in launch.ops))
    code = (inner.object_code, inner.assembly)
    return Subkernel(
        name, *code, fixed, inner.scratch, ops, widest.extent, widest.grain, tuple(inner.gemm_forms)
    )


def _slices(launch: Launch) -> tuple[bool, float]:
    """Whether the number of slices depends on sizes, and the number at typical sizes."""
    typical = defaultdict[str, int](lambda: _TYPICAL)
    is_static = launch.extent.isdigit() and launch.grain.isdigit()
    try:
        extent, grain = (evaluate_text(text, typical) for text in (launch.extent, launch.grain))
    except ZeroDivisionError:
        return not is_static, 0
    return not is_static, extent / max(1, grain)


def mark_subkernel(stand_in_op: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """Lower a stand-in to a marker; returns its results. An additional boolean result uses every input."""
    inputs = [signless(value) for value in list(stand_in_op.operands)[:-1]]
    kinds = [*(signless_tensor(result.type) for result in stand_in_op.results), mlir.type_of("tensor<1xi1>")]
    empty = [mlir.empty_tensor(kind) for kind in kinds]

    def read(scalars: list[mlir.Value]) -> list[mlir.Value]:
        conditions = [compare_with_zero(scalar) for scalar in scalars[: len(inputs)]]
        while len(conditions) > 1:
            conditions.append(arith.xori(conditions.pop(0), conditions.pop(0)))
        return [*(zero_constant(mlir.element_type(kind)) for kind in kinds[:-1]), conditions[0]]

    return list(build_marker(SUBKERNEL, note, inputs, empty, read).results)[:-1]


def lay_out_subkernels(unit: Unit) -> None:
    """Copy the operands of markers to and from row-major buffers, as the ABI requires."""
    for generic in mlir.named(mlir.main_function(unit.module), "linalg.generic"):
        marker = marked(generic)
        if marker is None or marker[0] != SUBKERNEL:
            continue
        inputs = mlir.input_count(generic)
        for number, operand in enumerate(list(generic.operands)):
            sizes, element = mlir.sizes_of(operand.type), mlir.element_type(operand.type)
            kind = mlir.type_of(f"memref<{''.join(f'{size}x' for size in sizes)}{element}>")
            if operand.type == kind:
                continue
            with mlir.before(generic):
                fresh = memref.alloc(kind, [], [])
                if number < inputs:
                    memref.copy(operand, fresh)
            if number >= inputs:
                with mlir.after(generic):
                    memref.copy(fresh, operand)
            generic.operands[number] = fresh


def outline_subkernel(unit: Unit, generic: mlir.Op, name: str) -> Outlined | None:
    """The launch of a subkernel; None for other operations."""
    marker = marked(generic)
    if marker is None or marker[0] != SUBKERNEL:
        return None
    subkernel = unit.subkernels[marker[1]["name"]]
    buffers = list(generic.operands)[:-1]
    launch = Outlined(name, MarkerLaunch(1, 1, ()), subkernel.ops, buffers, [], ["!llvm.ptr"] * len(buffers))
    launch.scratch, launch.shared, launch.subkernel = subkernel.scratch, subkernel.fixed, subkernel
    return launch

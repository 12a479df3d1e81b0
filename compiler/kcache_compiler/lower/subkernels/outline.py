"""Operations that take long to compile and repeat: each is compiled once, as a kernel inside of the kernel.

Definitions of transforms and factors are long, loops and branches are launches of their own, functions with
loops inside are long code. Where a program has many that say the same, up to what they are given, one becomes
a *part*: a module of its own that goes through the whole pipeline. In the program a marker stands for each,
and its launch calls the entry of the part. So a chain of them has the bits of one behind the other.
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
from kcache_compiler.lower.subkernels.candidates import Candidate, piece_of
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, memref
from kcache_compiler.passes.legalize.elementwise import signless_tensor
from kcache_compiler.passes.legalize.passthrough import noted, plain, replace
from kcache_compiler.passes.stage import Stage, Unit, run
from kcache_compiler.schedule.subkernel import Part
from kcache_compiler.shapes.formula import evaluate_text, substitute
from kcache_compiler.types import Launch

#: Equal operations from which on they are a part, and those that are made one with what is around them.
MANY, MORE = 32, 256
PART = "part"
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
#: Which launch of a part is the widest is asked at this size of all open symbols.
_TYPICAL = 1024


def cut_parts(unit: Unit, pipeline: tuple[Stage, ...]) -> None:
    """Put a note in place of each operation that is a part, and compile the parts by ``pipeline``.

    Programs with dynamic sizes are cut at all samples at once: ``open_parts``.
    """
    if isinstance(unit.target, Device) or unit.given:
        return
    roots: list[mlir.Op] = (
        [mlir.main_function(unit.module)] if len(mlir.named(unit.module, *_NAMES, *_FUSED)) >= MANY else []
    )
    while roots:
        alike: dict[Hashable, list[Candidate]] = {}
        for op in [op for root in roots for op in outermost(root, *_NAMES, *_FUSED)]:
            piece = piece_of(op)
            alike.setdefault(piece.key, []).append(piece)
        roots = []
        for pieces in alike.values():
            first = pieces[0]
            part = None
            enough = MORE if mlir.name_of(first.op) in _FUSED else MANY
            if len(pieces) >= enough and first.may_be_a_part():
                part = _compiled(unit, first.text(), len(first.given()), pipeline)
            if part is None:
                roots += [piece.op for piece in pieces if mlir.has_regions(piece.op)]
                continue
            for piece in pieces:
                put_note(piece, part)


def outermost(root: mlir.Op, *names: str) -> Iterator[mlir.Op]:
    """Those of these names below ``root`` that no other below it holds."""
    inside: set[mlir.Op] = set()
    for op in mlir.named(root, *names):
        if op == root or op in inside:
            continue
        inside.update(mlir.walk(op)[1:])
        yield op


def put_note(piece: Candidate, part: Part) -> None:
    """Note in the program that the part stands here."""
    op = piece.op
    with mlir.before(op):
        zero_constant = mlir.empty_tensor(mlir.type_of("tensor<1xi1>"))  # else it may seem no cast
        kinds = [result.type for result in op.results]
        made = noted(op, [*piece.given(), zero_constant], kinds, {"kind": PART, "name": part.name})
    replace(op, list(made.results))


def name_of_part(*texts: str) -> str:
    """The name of the part of a module, or of the modules at samples of dynamic sizes."""
    said = "\n".join(texts)
    return f"kcache_part_{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def _compiled(unit: Unit, text: str, count: int, pipeline: tuple[Stage, ...]) -> Part | None:
    """The part of a module that takes ``count`` inputs; None where it is no kernel by itself."""
    name = name_of_part(text)
    if name in unit.parts:
        return unit.parts[name]
    inner = Unit(text, count, unit.target, unit.options, unit.libraries)
    translated = [stage.name for stage in pipeline].index("seam")
    try:
        run(pipeline[:translated], inner, lambda _: None)
        part = finished(inner, name, pipeline)
    except CompilerError:
        return None  # what cannot be compiled is rejected where it stands
    if part is None:
        return None
    unit.parts.update(inner.parts)
    unit.parts[name] = part
    return part


def finished(inner: Unit, name: str, pipeline: tuple[Stage, ...]) -> Part | None:
    """The part of a unit that is LLVM IR; None where nothing is launched. Raises what the stages do."""
    stages = [stage.name for stage in pipeline]
    translated, end = stages.index("seam"), stages.index("optimize")
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
    return Part(name, *code, fixed, inner.scratch, ops, widest.extent, widest.grain, tuple(inner.gemm_forms))


def _slices(launch: Launch) -> tuple[bool, float]:
    """Whether it depends on sizes how many there are, and how many."""
    typical = defaultdict[str, int](lambda: _TYPICAL)
    known = launch.extent.isdigit() and launch.grain.isdigit()
    try:
        extent, grain = (evaluate_text(one, typical) for one in (launch.extent, launch.grain))
    except ZeroDivisionError:
        return not known, 0
    return not known, extent / max(1, grain)


def mark_part(made: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """What it is given; its results, and a truth that asks for all it is given, so that all is read."""
    inputs = [plain(value) for value in list(made.operands)[:-1]]
    kinds = [*(signless_tensor(result.type) for result in made.results), mlir.type_of("tensor<1xi1>")]
    empty = [mlir.empty_tensor(kind) for kind in kinds]

    def read(scalars: list[mlir.Value]) -> list[mlir.Value]:
        asked = [compare_with_zero(scalar) for scalar in scalars[: len(inputs)]]
        while len(asked) > 1:
            asked.append(arith.xori(asked.pop(0), asked.pop(0)))
        return [*(zero_constant(mlir.element_type(kind)) for kind in kinds[:-1]), asked[0]]

    return list(build_marker(PART, note, inputs, empty, read).results)[:-1]


def lay_out_parts(unit: Unit) -> None:
    """What parts are given and what they make lies row by row in buffers of its own, as the ABI says."""
    for generic in mlir.named(mlir.main_function(unit.module), "linalg.generic"):
        found = marked(generic)
        if found is None or found[0] != PART:
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


def outline_part(unit: Unit, generic: mlir.Op, name: str) -> Outlined | None:
    """The launch of a part; None for other operations."""
    found = marked(generic)
    if found is None or found[0] != PART:
        return None
    part = unit.parts[found[1]["name"]]
    buffers = list(generic.operands)[:-1]
    launch = Outlined(name, MarkerLaunch(1, 1, ()), part.ops, buffers, [], ["!llvm.ptr"] * len(buffers))
    launch.scratch, launch.shared, launch.part = part.scratch, part.fixed, part
    return launch

"""Scatters and sorts among the structured operations, until they become launches of their own.

A *marker* is a ``linalg.generic`` that says what an operation reads and writes, and holds its region as
scalar code, so that the passes over bodies (math, narrow floats, complex numbers) and bufferization treat it
like any other. Its loops mean nothing: each operand has loops of its own, so that none is dropped or joined
with another, and all of them are reductions, so that nothing is fused into it. ``library_call`` says what it
is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, linalg
from kcache_compiler.mlir.dialects import complex as complex_dialect
from kcache_compiler.passes.generic import build_generic
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Check
from kcache_compiler.shapes.formula import Formula, apply, mul

_PREFIX = "kcache_"
_CALL = "library_call"
#: What the region of a marker gives: scalars by operand, inputs then outputs.
Region = Callable[[list[mlir.Value]], Sequence[mlir.Value]]


@dataclass(frozen=True)
class Walk:
    """An operand of a marker: sizes and strides of its axes, and the offset of its first element."""

    sizes: tuple[Formula, ...]
    strides: tuple[Formula, ...]
    offset: Formula


@dataclass(frozen=True)
class MarkerLaunch:
    """The launch of a marker: ``extent`` independent steps that cost ``work`` each; bytes for a worker."""

    extent: Formula
    work: Formula
    checks: tuple[Check, ...]
    alone: bool = False
    scratch: Formula = 0
    #: Bytes that workers share.
    shared: Formula = 0

    @property
    def grain(self) -> Formula:
        if self.alone:
            return apply("max", 1, self.extent)
        return apply("ceildiv", SLICE_WORK, apply("max", 1, self.work))


def build_marker(
    kind: str, details: dict[str, Any], inputs: list[mlir.Value], outputs: list[mlir.Value], region: Region
) -> mlir.Op:
    """A marker at the current point."""
    operands = [*inputs, *outputs]
    ranks = [mlir.rank_of(operand.type) for operand in operands]
    dims = [f"d{axis}" for axis in range(sum(ranks))]
    maps = [
        f"({', '.join(dims)}) -> ({', '.join(dims[sum(ranks[:number]) : sum(ranks[: number + 1])])})"
        for number in range(len(operands))
    ]
    marker = build_generic(inputs, outputs, maps, ["reduction"] * len(dims), region)
    text = _PREFIX + kind + " " + json.dumps(details, separators=(",", ":"))
    marker.attributes[_CALL] = mlir.string_attr(text)
    return marker


def marked(generic: mlir.Op) -> tuple[str, dict[str, Any]] | None:
    """Kind and details of a marker; None for other operations."""
    text = mlir.string_of(generic.attributes[_CALL]) if _CALL in generic.attributes else ""
    if not text.startswith(_PREFIX):
        return None
    kind, _, details = text.removeprefix(_PREFIX).partition(" ")
    return kind, json.loads(details)


def is_marker(generic: mlir.Op) -> bool:
    return marked(generic) is not None


def opaque_true(dim: int) -> mlir.Value:
    """True, in the region of a marker; no pass before LLVM folds it, as loop ``dim`` has several steps."""
    index = linalg.index(dim)
    other = mlir.constant(-1, "index")
    return arith.cmpi(arith.CmpIPredicate.ne, index, other)


def compare_with_zero(scalar: mlir.Value) -> mlir.Value:
    """Whether it is 0, in the region of a marker, for bufferization: what no region asks for is not read."""
    if str(scalar.type).startswith("complex"):
        scalar = complex_dialect.re(scalar)
    zero = zero_constant(scalar.type)
    if str(scalar.type).startswith("i"):
        return arith.cmpi(arith.CmpIPredicate.eq, scalar, zero)
    return arith.cmpf(arith.CmpFPredicate.OEQ, scalar, zero)


def zero_constant(kind: mlir.Type) -> mlir.Value:
    """Zero of an element type."""
    if str(kind).startswith("complex"):
        return complex_dialect.create_(kind, *[zero_constant(mlir.element_type(kind))] * 2)
    return mlir.constant(0, str(kind)) if str(kind).startswith("i") else mlir.float_constant(0, kind)


def walks(generic: mlir.Op, shapes: Shapes) -> tuple[list[Walk], tuple[Check, ...]]:
    """How each operand lies in memory, and what must hold of the sizes."""
    nest, _ = read_nest(generic, shapes)
    found: list[Walk] = []
    first = 0
    for access in nest.accesses:
        own = range(first, first + len(access.dims))
        first += len(access.dims)
        sizes = tuple(nest.axes[axis].size for axis in own)
        found.append(Walk(sizes, tuple(access.strides[axis] for axis in own), access.offset))
    return found, nest.checks


def total(sizes: Sequence[Formula]) -> Formula:
    """The product of sizes."""
    result: Formula = 1
    for size in sizes:
        result = mul(result, size)
    return result

"""Markers: scatters and sorts as structured operations, until they become separate launches.

A *marker* is a ``linalg.generic`` that declares what an operation reads and writes, and holds its region as
scalar code, so that passes over bodies (math, narrow types, complex numbers) and bufferization handle it like
any other. Its loops have no meaning: each operand has separate loops, so that none is dropped or merged, and
all are reductions, so that nothing is fused into it. ``library_call`` names the operation.
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
from kcache_compiler.shapes.formula import Formula, apply

_PREFIX = "kcache_"
_CALL = "library_call"
#: Emits the region of a marker for scalars by operand, inputs before outputs.
Region = Callable[[list[mlir.Value]], Sequence[mlir.Value]]


@dataclass(frozen=True)
class Walk:
    """An operand of a marker: sizes and strides of its axes, and the offset of its first element."""

    sizes: tuple[Formula, ...]
    strides: tuple[Formula, ...]
    offset: Formula


@dataclass(frozen=True)
class MarkerLaunch:
    """The launch of a marker: ``extent`` independent steps of cost ``work``; scratch bytes per worker."""

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
    """Build a marker at the insertion point."""
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
    """True in the region of a marker; no pass before LLVM folds it, since loop ``dim`` has several steps."""
    index = linalg.index(dim)
    minus_one = mlir.constant(-1, "index")
    return arith.cmpi(arith.CmpIPredicate.ne, index, minus_one)


def compare_with_zero(scalar: mlir.Value) -> mlir.Value:
    """Whether a scalar is 0, in the region of a marker: bufferization elides operands without uses."""
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
    """The layout of each operand, and the runtime checks of sizes."""
    nest, _ = read_nest(generic, shapes)
    accesses: list[Walk] = []
    first = 0
    for access in nest.accesses:
        axes = range(first, first + len(access.dims))
        first += len(access.dims)
        sizes = tuple(nest.axes[axis].size for axis in axes)
        accesses.append(Walk(sizes, tuple(access.strides[axis] for axis in axes), access.offset))
    return accesses, nest.checks

"""Convolutions and products with a bound factor, and where its axes are in the result."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.build import static_sizes

#: For some axes of a tensor the axes of another one that they correspond to.
Axes = dict[int, int]
MOVES = frozenset({"stablehlo.reshape", "stablehlo.transpose"})


@dataclass(frozen=True)
class Weighted:
    """A linear operation ``op`` whose operand ``index`` is bound, and its other one is not.

    ``outputs`` are the axes of the result that are axes of the weights, ``inputs`` those of the other
    operand; a factor that varies only along these axes may be moved to the weights.
    """

    op: mlir.Op
    index: int
    outputs: Axes
    inputs: Axes

    @property
    def weights(self) -> mlir.Value:
        return self.op.operands[self.index]

    @property
    def other(self) -> mlir.Value:
        return self.op.operands[1 - self.index]


def weighted(op: mlir.Op, bound: Collection[mlir.Value]) -> Weighted | None:
    """``op`` as an operation with bound weights, of f32 or f64 and not empty; None for others."""
    name = mlir.name_of(op)
    if name not in ("stablehlo.convolution", "stablehlo.dot_general"):
        return None
    if not build.is_static(op):
        return None
    kinds = {str(mlir.element_type(value.type)) for value in (*op.operands, *op.results)}
    if len(kinds) > 1 or not kinds <= {"f32", "f64"}:
        return None
    if 0 in [size for value in (*op.operands, *op.results) for size in mlir.sizes_of(value.type)]:
        return None
    left, right = (operand in bound for operand in op.operands)
    if left == right:
        return None
    if name == "stablehlo.dot_general":
        return _product(op, int(right))
    return _convolution(op) if right else None


def _convolution(op: mlir.Op) -> Weighted | None:
    numbers = mlir.convolution_dimensions(op)
    if "batch_group_count" in op.attributes and mlir.int_of(op.attributes["batch_group_count"]) != 1:
        return None
    groups = mlir.int_of(op.attributes["feature_group_count"])
    inputs = {numbers["input_feature"]: numbers["kernel_input_feature"]} if groups == 1 else {}
    return Weighted(op, 1, {numbers["output_feature"]: numbers["kernel_output_feature"]}, inputs)


def _product(op: mlir.Op, index: int) -> Weighted:
    sides = mlir.product_dimensions(op)
    weights, other = sides[index], sides[1 - index]
    ranks = [mlir.rank_of(operand.type) for operand in op.operands]
    free = [
        [axis for axis in range(rank) if axis not in side[0] + side[1]]
        for rank, side in zip(ranks, sides, strict=True)
    ]
    outputs = dict(enumerate(weights[0]))
    start = len(weights[0]) + (len(free[0]) if index else 0)
    outputs |= {start + position: axis for position, axis in enumerate(free[index])}
    inputs = dict(zip((*other[0], *other[1]), (*weights[0], *weights[1]), strict=True))
    return Weighted(op, index, outputs, inputs)


def follow(axes: Axes, source: list[int], result: list[int]) -> Axes:
    """``axes`` of a tensor of sizes ``source`` after a reshape to ``result``: those that stay one axis."""
    starts = _starts(result)
    where = {
        (start, size): axis for axis, (start, size) in enumerate(zip(starts, result, strict=True)) if size > 1
    }
    keys = list(zip(_starts(source), source, strict=True))
    return {where[keys[axis]]: target for axis, target in axes.items() if keys[axis] in where}


def _starts(sizes: list[int]) -> list[int]:
    """The elements of the axes before each axis."""
    starts = [1]
    for size in sizes:
        starts.append(starts[-1] * size)
    return starts[:-1]


def moved(op: mlir.Op, axes: Axes) -> Axes | None:
    """``axes`` of the operand of a reshape or transpose as axes of its result; None for other operations."""
    if mlir.name_of(op) == "stablehlo.reshape":
        return follow(axes, static_sizes(op.operands[0]), static_sizes(op.results[0]))
    if mlir.name_of(op) == "stablehlo.transpose":
        permutation = mlir.integers(op.attributes["permutation"])
        return {new: axes[old] for new, old in enumerate(permutation) if old in axes}
    return None


def moved_back(op: mlir.Op, axes: Axes) -> Axes | None:
    """``axes`` of the result of a reshape or transpose as axes of its operand; None for other operations."""
    if mlir.name_of(op) == "stablehlo.reshape":
        return follow(axes, static_sizes(op.results[0]), static_sizes(op.operands[0]))
    if mlir.name_of(op) == "stablehlo.transpose":
        permutation = mlir.integers(op.attributes["permutation"])
        return {permutation[new]: target for new, target in axes.items()}
    return None

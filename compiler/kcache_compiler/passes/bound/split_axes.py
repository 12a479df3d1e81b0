"""Computes on values before a reshape splits their axes, as a group normalization splits channels.

``f(reshape(x))`` becomes ``reshape(f(x))`` for elementwise ``f``, whose other operands are broadcasts or
constants; a reduction of a split value reduces the axes that are whole first, then those that are parts.
So all operations on a large value have the same axes, and only small values are split.

A product whose operands both depend on the input, as in attention, has axes that are side by side in both
operands, or free, as one; its result is a reshape of that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.dependence import erase_unused
from kcache_compiler.spec.graph.operations import ELEMENTWISE

#: How often each element of a broadcast is repeated, at least, once its axes are merged.
REPEATED = 8


def merge_split_axes(body: mlir.Block, bound: Collection[mlir.Value]) -> None:
    """Rewrite ``body``, operation by operation; ``bound`` are its values that depend on bound arguments and
    constants alone.
    """
    splits = _Splits(bound)
    for op in mlir.operations(body):
        if len(op.results) != 1 or not build.is_static(op):
            continue
        with mlir.before(op), mlir.at_location(op):
            splits.rewrite(op)
    erase_unused(body)


@dataclass(frozen=True)
class _Split:
    """What a value is a reshape of, and the axes of both that belong together."""

    source: mlir.Value
    blocks: list[tuple[list[int], list[int]]]


class _Splits:
    """The values that are reshapes which split axes."""

    def __init__(self, bound: Collection[mlir.Value]) -> None:
        self._bound = bound
        self._known: dict[mlir.Value, _Split] = {}

    def rewrite(self, op: mlir.Op) -> None:
        name = mlir.name_of(op)
        if name == "stablehlo.reshape":
            self._reshape(op)
        elif name in ELEMENTWISE:
            self._elementwise(op)
        elif name == "stablehlo.reduce":
            self._reduce(op)
        elif name == "stablehlo.dot_general" and not any(operand in self._bound for operand in op.operands):
            self._product(op)

    def _reshape(self, op: mlir.Op) -> None:
        split = self._known.get(op.operands[0])
        source = op.operands[0] if split is None else split.source
        sizes, result = build.static_sizes(source), build.static_sizes(op.results[0])
        if split is not None and sizes == result:
            op.results[0].replace_all_uses_with(source)
        elif split is None and 0 not in sizes:
            blocks = build.blocks_of(sizes, result)
            if all(len(axes) == 1 for axes, _ in blocks) and any(len(parts) > 1 for _, parts in blocks):
                self._known[op.results[0]] = _Split(source, blocks)

    def _elementwise(self, op: mlir.Op) -> None:
        rank = mlir.rank_of(op.results[0].type)
        split = next((self._known[operand] for operand in op.operands if operand in self._known), None)
        if split is None:
            return
        operands: list[mlir.Value] = []
        for operand in op.operands:
            full = mlir.rank_of(operand.type) == rank
            merged = self._merged(operand, split) if full else operand
            if merged is None:
                return
            operands.append(merged)
        sizes = build.static_sizes(split.source)
        kind = build.tensor_type(sizes, mlir.element_type(op.results[0].type))
        merged = mlir.value(mlir.name_of(op), operands, kind, **mlir.attributes_of(op))
        self._replace(op, merged, split)

    def _replace(self, op: mlir.Op, merged: mlir.Value, split: _Split) -> None:
        result = build.reshape(merged, build.static_sizes(op.results[0]))
        op.results[0].replace_all_uses_with(result)
        if result != merged:
            self._known[result] = _Split(merged, split.blocks)

    def _merged(self, operand: mlir.Value, split: _Split) -> mlir.Value | None:
        """An operand with the axes of the source of ``split``; None if it is neither split nor repeated."""
        known = self._known.get(operand)
        sizes = build.static_sizes(split.source)
        if known is not None:
            return known.source if build.static_sizes(known.source) == sizes else None
        owner = mlir.defining(operand)
        if owner is None:
            return None
        if mlir.name_of(owner) == "stablehlo.constant" and mlir.constant_extent(owner)[0]:
            return build.broadcast(mlir.splat_scalar(owner), sizes, [])
        if mlir.name_of(owner) != "stablehlo.broadcast_in_dim":
            return None
        return _merged_broadcast(owner, split, sizes)

    def _reduce(self, op: mlir.Op) -> None:
        split = self._known.get(op.operands[0])
        if split is None or len(op.operands) != 2 or not build.has_free_order(op):
            return
        reduced = set(mlir.integers(op.attributes["dimensions"]))
        whole = [axes[0] for axes, parts in split.blocks if reduced.issuperset(parts)]
        kept = [axis for axes, parts in split.blocks if axes[0] not in whole for axis in parts]
        rest = [position for position, axis in enumerate(kept) if axis in reduced]
        start = _neutral(op) if rest else op.operands[1]
        if not whole or start is None:
            return
        partial = _reduced(op, split.source, start, whole)
        sizes = build.static_sizes(op.operands[0])
        partial = build.reshape(partial, [sizes[axis] for axis in kept])
        result = _reduced(op, partial, op.operands[1], rest)
        op.results[0].replace_all_uses_with(build.reshape(result, build.static_sizes(op.results[0])))

    def _product(self, op: mlir.Op) -> None:
        roles = [_runs(pairs) for pairs in _pairs_by_role(op)]
        if all(len(run) == 1 for runs in roles for run in runs):
            return
        operands: list[mlir.Value] = []
        places: list[list[list[int]]] = []
        for side, operand in enumerate(op.operands):
            blocks = sorted(
                [pair[side] for pair in run] for runs in roles for run in runs if run[0][side] >= 0
            )
            sizes = build.static_sizes(operand)
            operands.append(
                build.reshape(operand, [math.prod(sizes[axis] for axis in axes) for axes in blocks])
            )
            order = [axes[0] for axes in blocks]
            places.append(
                [[order.index(run[0][side]) for run in runs if run[0][side] >= 0] for runs in roles]
            )
        self._merged_product(op, operands, places, roles)

    def _merged_product(
        self,
        op: mlir.Op,
        operands: Sequence[mlir.Value],
        places: Sequence[list[list[int]]],
        roles: Sequence[list[_Run]],
    ) -> None:
        """The product of merged ``operands``, each with the axes of its roles at ``places``."""
        text = ", ".join(
            f"{side}_{role}_dimensions = {axes}"
            for side, numbers in zip(("lhs", "rhs"), places, strict=True)
            for role, axes in zip(("batching", "contracting"), numbers, strict=False)
        )
        attributes = mlir.attributes_of(op)
        attributes["dot_dimension_numbers"] = mlir.attribute(f"#stablehlo.dot<{text}>")
        lengths = [len(run) for role in (0, 2, 3) for run in roles[role]]
        starts = [sum(lengths[:number]) for number in range(len(lengths))]
        parts = [list(range(start, start + length)) for start, length in zip(starts, lengths, strict=True)]
        result = build.static_sizes(op.results[0])
        sizes = [math.prod(result[axis] for axis in axes) for axes in parts]
        kind = build.tensor_type(sizes, mlir.element_type(op.results[0].type))
        product = mlir.create("stablehlo.dot_general", operands, [kind], attributes).results[0]
        self._replace(op, product, _Split(product, [([axis], axes) for axis, axes in enumerate(parts)]))


#: Adjacent axes of both operands of a product; -1 for a free axis of the other one.
_Run = list[tuple[int, int]]


def _pairs_by_role(op: mlir.Op) -> list[_Run]:
    """The batch, summed and free axes of the operands of a product, as axes of the left and the right one."""
    left, right = mlir.product_dimensions(op)
    free = [
        [axis for axis in range(mlir.rank_of(operand.type)) if axis not in (*batch, *summed)]
        for operand, (batch, summed) in zip(op.operands, (left, right), strict=True)
    ]
    shared = [list(zip(left[role], right[role], strict=True)) for role in (0, 1)]
    return [*shared, [(axis, -1) for axis in free[0]], [(-1, axis) for axis in free[1]]]


def _runs(pairs: _Run) -> list[_Run]:
    """The pairs in groups of axes that follow one another in each operand that has them."""
    runs: list[_Run] = []
    for pair in pairs:
        following = runs and all(
            axis == before + 1 or axis < 0 for axis, before in zip(pair, runs[-1][-1], strict=True)
        )
        if following:
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _merged_broadcast(op: mlir.Op, split: _Split, sizes: Sequence[int]) -> mlir.Value | None:
    """The broadcast ``op`` with the axes of the source of ``split``: of blocks that it varies along all parts
    are made, and merged. None if that is not small compared with the result.
    """
    source, dims = op.operands[0], mlir.integers(op.attributes["broadcast_dimensions"])
    if dims != sorted(dims):
        return None
    result = build.static_sizes(op.results[0])
    wide = [dim for dim, size in zip(dims, build.static_sizes(source), strict=True) if size > 1]
    varied = [(axes[0], parts) for axes, parts in split.blocks if not set(parts).isdisjoint(wide)]
    axes = [axis for _, parts in varied for axis in parts]
    if REPEATED * math.prod(result[axis] for axis in axes) > math.prod(sizes):
        return None
    compact = build.reshape(source, [result[dim] for dim in wide])
    spread = build.broadcast(compact, [result[axis] for axis in axes], [axes.index(dim) for dim in wide])
    merged = build.reshape(spread, [sizes[axis] for axis, _ in varied])
    return build.broadcast(merged, sizes, [axis for axis, _ in varied])


def _neutral(op: mlir.Op) -> mlir.Value | None:
    """What a reduction of part of the axes begins with: 0 of floats that are added; of maxima and others that
    may begin more than once with the same value, that one.
    """
    combiner = mlir.name_of(mlir.operations(mlir.block_of(op))[0]).removeprefix("stablehlo.")
    start = op.operands[1]
    if combiner == "add" and str(mlir.element_type(start.type)) in ("f32", "f64"):
        return build.splat(0, start.type)
    return start if combiner in ("maximum", "minimum", "and", "or") else None


def _reduced(op: mlir.Op, value: mlir.Value, start: mlir.Value, axes: Sequence[int]) -> mlir.Value:
    """``value`` reduced along ``axes`` by the combiner of ``op``; itself without axes."""
    if not axes:
        return value
    sizes = [size for axis, size in enumerate(build.static_sizes(value)) if axis not in axes]
    kind = build.tensor_type(sizes, mlir.element_type(value.type))
    attributes = {**mlir.attributes_of(op), "dimensions": build.int_array(axes)}
    reduced = mlir.create("stablehlo.reduce", [value, start], [kind], attributes, 1)
    copy = mlir.clone(op)
    mlir.move_block(copy, reduced, 0)
    copy.erase()
    return reduced.results[0]

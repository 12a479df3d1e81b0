"""Moves scales of a convolution or product with bound weights into the weights.

``conv(x, w) * s + t`` becomes ``conv(x, w * s) + t``, and ``dot(x * s, w)`` becomes ``dot(x, s * w)``, where
``s`` and ``t`` depend only on bound arguments and constants: the batch norm after a convolution, the gain of
a normalization before a product. Rounding differs: not for numerics ``strict``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.weights import MOVES, Axes, Weighted, moved, moved_back, weighted

_AFFINE = frozenset(f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide"))


def fold_scales(body: mlir.Block, bound: set[mlir.Value]) -> None:
    """Rewrite ``body``; ``bound`` are its values that depend only on bound arguments and constants.

    A scale stays where it is if something else reads what is scaled. Scaled weights are added to ``bound``.
    """
    scales = [weighted(op, bound) for op in mlir.operations(body)]
    for linear in scales:
        if linear is not None:
            _fold_outputs(_fold_inputs(linear, bound), bound)


@dataclass(frozen=True)
class _Step:
    """An operation after a linear one. ``factor`` is the position of its bound operand, -1 if it has none;
    ``axes`` are those of its other operand that are axes of the weights.
    """

    op: mlir.Op
    factor: int
    axes: Axes

    @property
    def name(self) -> str:
        return mlir.name_of(self.op).removeprefix("stablehlo.")


def _fold_outputs(linear: Weighted, bound: set[mlir.Value]) -> None:
    """Fold the scales and shifts of the result."""
    steps = _chain(linear, bound)
    if not any(step.name in ("multiply", "divide", "negate") for step in steps):
        return
    last = steps[-1].op
    shape = build.static_sizes(linear.weights)
    order = sorted(axis for axis in set(linear.outputs.values()) if shape[axis] > 1)
    with mlir.before(last), mlir.at_location(last):
        scale, shift = _scale_and_shift(steps, order, [shape[axis] for axis in order])
        result = _scaled(linear, linear.other, scale, order, bound).results[0]
        for step in steps:
            if mlir.name_of(step.op) in MOVES:
                result = _repeated(step.op, result)
        if shift is not None:
            positions = {target: axis for axis, target in steps[-1].axes.items()}
            dims = [positions[axis] for axis in order]
            result = build.binary("add", result, _spread(shift, build.static_sizes(result), dims))
    last.results[0].replace_all_uses_with(result)
    for step in reversed(steps):
        step.op.erase()
    linear.op.erase()


def _chain(linear: Weighted, bound: set[mlir.Value]) -> list[_Step]:
    """The scales, shifts and reshapes of the result, each the only reader of the one before."""
    steps: list[_Step] = []
    folded = 0
    op, axes = linear.op, linear.outputs
    while (reader := _only_reader(op.results[0])) is not None:
        after = moved(reader, axes)
        if after is not None:
            steps.append(_Step(reader, -1, axes))
            if len(after) < sum(build.static_sizes(op.results[0])[axis] > 1 for axis in axes):
                break
            axes = after
        else:
            factor = _factor(reader, op.results[0], axes, bound)
            if factor is None:
                break
            steps.append(_Step(reader, factor, axes))
            folded = len(steps)
        op = reader
    return steps[:folded]


def _only_reader(value: mlir.Value) -> mlir.Op | None:
    readers = [reader for reader, _ in mlir.uses(value)]
    return readers[0] if len(readers) == 1 else None


def _factor(op: mlir.Op, value: mlir.Value, axes: Axes, bound: set[mlir.Value]) -> int | None:
    """The position of the factor or summand of ``op`` that varies only along ``axes`` of ``value``; -1 if it
    needs none; None for operations that are no scale or shift.
    """
    name = mlir.name_of(op)
    if name == "stablehlo.negate":
        return -1
    if name not in _AFFINE:
        return None
    position = int(op.operands[0] == value)
    operand = op.operands[position]
    if (name == "stablehlo.divide" and position == 0) or operand not in bound:
        return None
    return position if _compact(operand, axes) is not None else None


def _compact(operand: mlir.Value, axes: Axes) -> tuple[mlir.Value, list[int]] | None:
    """A value that is broadcast to ``operand``, and the axes of ``operand`` that its axes of several elements
    are; None if these are not all among ``axes``.
    """
    owner = mlir.defining(operand)
    source, dims = operand, list(range(mlir.rank_of(operand.type)))
    if owner is not None and mlir.name_of(owner) == "stablehlo.constant" and mlir.constant_extent(owner)[0]:
        return operand, []
    if owner is not None and mlir.name_of(owner) == "stablehlo.broadcast_in_dim":
        source, dims = owner.operands[0], mlir.integers(owner.attributes["broadcast_dimensions"])
    kept = [dim for dim, size in zip(dims, build.static_sizes(source), strict=True) if size > 1]
    return (source, kept) if all(dim in axes for dim in kept) else None


def _scale_and_shift(
    steps: Sequence[_Step], order: Sequence[int], sizes: Sequence[int]
) -> tuple[mlir.Value, mlir.Value | None]:
    """What the steps compute as a product and a sum with tensors over the axes ``order`` of the weights."""
    element = mlir.element_type(steps[0].op.results[0].type)
    scale = build.splat(1, build.tensor_type(sizes, element))
    shift: mlir.Value | None = None
    for step in steps:
        if step.name == "negate" or (step.name == "subtract" and step.factor == 0):
            scale, shift = build.negate(scale), shift and build.negate(shift)
        if step.factor < 0:
            continue
        factor = _vector(step.op.operands[step.factor], step.axes, order, sizes)
        if step.name in ("multiply", "divide"):
            scale, shift = (
                build.binary(step.name, scale, factor),
                shift and build.binary(step.name, shift, factor),
            )
            continue
        negative = step.name == "subtract" and step.factor == 1
        if shift is None:
            shift = build.negate(factor) if negative else factor
        else:
            shift = build.binary("subtract" if negative else "add", shift, factor)
    return scale, shift


def _vector(operand: mlir.Value, axes: Axes, order: Sequence[int], sizes: Sequence[int]) -> mlir.Value:
    """A factor as a tensor of ``sizes`` over the axes ``order`` of the weights."""
    compact = _compact(operand, axes)
    assert compact is not None
    source, dims = compact
    owner = mlir.defining(source)
    if not dims and owner is not None and mlir.name_of(owner) == "stablehlo.constant":
        return _spread(mlir.splat_scalar(owner), sizes, [])
    source = build.reshape(source, [size for size in build.static_sizes(source) if size > 1])
    return _spread(source, sizes, [order.index(axes[dim]) for dim in dims])


def _spread(value: mlir.Value, sizes: Sequence[int], dims: Sequence[int]) -> mlir.Value:
    """``value`` broadcast to ``sizes``; its axis ``i`` becomes axis ``dims[i]``."""
    by_position = sorted(range(len(dims)), key=lambda axis: dims[axis])
    return build.broadcast(build.transpose(value, by_position), sizes, sorted(dims))


def _scaled(
    linear: Weighted, other: mlir.Value, scale: mlir.Value, dims: Sequence[int], bound: set[mlir.Value]
) -> mlir.Op:
    """``linear.op`` of ``other``, with weights times ``scale``, which varies along their axes ``dims``."""
    factors = _spread(scale, build.static_sizes(linear.weights), dims)
    weights = build.binary("multiply", linear.weights, factors)
    bound.add(weights)
    operands = [other, weights] if linear.index else [weights, other]
    types = [result.type for result in linear.op.results]
    return mlir.create(mlir.name_of(linear.op), operands, types, mlir.attributes_of(linear.op))


def _repeated(move: mlir.Op, value: mlir.Value) -> mlir.Value:
    """The reshape or transpose ``move`` of ``value``."""
    return mlir.value(mlir.name_of(move), [value], move.results[0].type, **mlir.attributes_of(move))


def _fold_inputs(linear: Weighted, bound: set[mlir.Value]) -> Weighted:
    """``linear`` with the scale of its other operand moved to the weights, or itself."""
    moves: list[mlir.Op] = []
    value, axes = linear.other, linear.inputs
    while (owner := mlir.defining(value)) is not None and (before := moved_back(owner, axes)) is not None:
        moves.append(owner)
        value, axes = owner.operands[0], before
    if owner is None or mlir.name_of(owner) not in ("stablehlo.multiply", "stablehlo.divide"):
        return linear
    position = next((index for index in (1, 0) if owner.operands[index] in bound), None)
    if position is None or _factor(owner, owner.operands[1 - position], axes, bound) is None:
        return linear
    if not _reach_weights_only(value, bound):
        return linear
    shape = build.static_sizes(linear.weights)
    order = sorted(axis for axis in set(axes.values()) if shape[axis] > 1)
    with mlir.before(linear.op), mlir.at_location(linear.op):
        step = _Step(owner, position, axes)
        scale, _ = _scale_and_shift([step], order, [shape[axis] for axis in order])
        other = owner.operands[1 - position]
        for move in reversed(moves):
            other = _repeated(move, other)
        op = _scaled(linear, other, scale, order, bound)
    linear.op.results[0].replace_all_uses_with(op.results[0])
    for unused in (linear.op, *moves, owner):
        if not list(unused.results[0].uses):
            unused.erase()
    return replace(linear, op=op)


def _reach_weights_only(value: mlir.Value, bound: set[mlir.Value]) -> bool:
    """Whether nothing but products and convolutions with bound weights reads ``value``, reshaped or not."""
    for reader, _ in mlir.uses(value):
        if mlir.name_of(reader) in MOVES:
            if not _reach_weights_only(reader.results[0], bound):
                return False
            continue
        linear = weighted(reader, bound)
        if linear is None or not linear.inputs:
            return False
    return True

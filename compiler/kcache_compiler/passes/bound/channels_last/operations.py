"""Operations that are computed with channels last where their operands are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.forms import Form, channels_last, converted, plain
from kcache_compiler.passes.bound.channels_last.state import FLOATS, Laid, Layouts
from kcache_compiler.passes.bound.weights import follow
from kcache_compiler.spec.graph.operations import COMBINERS, ELEMENTWISE

#: Rewrites an operation one of whose operands is ``Laid``; says whether it did.
Rewrite = Callable[[mlir.Op, Layouts, Laid], bool]

#: Elements that are summed one after another, at most, where a sum of several axes can be split by axis.
MOST_SUMMED = 256


def _elementwise(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    rank = mlir.rank_of(op.results[0].type)
    full = [operand for operand in op.operands if mlir.rank_of(operand.type) == rank]
    return _in_form(op, layouts, first, full, {})


def _in_form(
    op: mlir.Op,
    layouts: Layouts,
    first: Laid,
    full: Sequence[mlir.Value],
    changed: Mapping[str, mlir.Attribute],
) -> bool:
    """Compute ``op``, whose operands ``full`` and results have the same axes, in the form of ``first``.

    Does nothing if that converts more bytes than the program's layout would.
    """
    if not _pays(op, layouts, first, full):
        return False
    operands = [
        layouts.tensor(operand, first.form, first.region) if operand in full else operand
        for operand in op.operands
    ]
    _again(op, operands, first.form, changed, layouts, first)
    return True


def _pays(op: mlir.Op, layouts: Layouts, first: Laid, full: Sequence[mlir.Value]) -> bool:
    """Whether it converts no more bytes to compute ``op`` in the form of ``first`` than as written."""
    as_written = plain(mlir.rank_of(op.results[0].type))
    converting = sum(layouts.cost(operand, first.form) for operand in full)
    return converting <= sum(layouts.cost(operand, as_written) for operand in full)


def _again(
    op: mlir.Op,
    operands: Sequence[mlir.Value],
    form: Form,
    changed: Mapping[str, mlir.Attribute],
    layouts: Layouts,
    first: Laid,
    axis: int | None = None,
) -> None:
    """``op`` again with other operands and attributes; its results have ``form`` and channels as ``axis``."""
    attributes = {**mlir.attributes_of(op), **changed}
    kinds = [form.type(result.type) for result in op.results]
    again = mlir.create(mlir.name_of(op), operands, kinds, attributes, len(op.regions))
    if len(op.regions):
        copy = mlir.clone(op)
        mlir.move_block(copy, again, 0)
        copy.erase()
    for old, new in zip(op.results, again.results, strict=True):
        layouts.set(old, new, form, first.axis if axis is None else axis, first.region)


def _broadcast(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """The broadcast of a large value; of others, ``Layouts`` makes broadcasts in the form that is read."""
    source = op.operands[0]
    dims = mlir.integers(op.attributes["broadcast_dimensions"])
    if dims != sorted(dims):
        return False
    axis = dims[first.axis]
    before = channels_last(len(dims), first.axis)
    after = channels_last(mlir.rank_of(op.results[0].type), axis)
    tensor = layouts.tensor(source, before, first.region)
    places = sorted(after.places[dim] for dim in dims)
    _again(op, [tensor], after, {"broadcast_dimensions": build.int_array(places)}, layouts, first, axis)
    return True


def _reshape(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """A reshape that leaves the axis of channels as it is; without changes of axes of several elements, the
    result is the same tensor.
    """
    source, result = build.static_sizes(op.operands[0]), build.static_sizes(op.results[0])
    axis = next(iter(follow({first.axis: 0}, source, result)), None)
    if axis is None:
        return False
    form = _renamed(first.form, source, result)
    if form is not None:
        layouts.set(op.results[0], first.tensor, form, axis, first.region)
        return True
    form = channels_last(len(result), axis)
    compact = layouts.tensor(op.operands[0], channels_last(len(source), first.axis), first.region)
    layouts.set(op.results[0], build.reshape(compact, form.sizes(result)), form, axis, first.region)
    return True


def _renamed(form: Form, source: Sequence[int], result: Sequence[int]) -> Form | None:
    """The form of a reshaped value in the same tensor, if only axes of one element come and go."""
    wide = [axis for axis, size in enumerate(source) if size != 1]
    if [source[axis] for axis in wide] != [size for size in result if size != 1]:
        return None
    taken = [form.places[axis] for axis in wide]
    free = [place for place in range(form.rank) if place not in taken]
    if len(free) < len(result) - len(wide):
        return None
    places, spare = iter(taken), iter(free)
    return Form(tuple(next(spare if size == 1 else places) for size in result), form.rank)


def _transpose(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """A transpose of the tensor instead; none if it puts channels last."""
    sizes = build.static_sizes(op.operands[0])
    permutation = mlir.integers(op.attributes["permutation"])
    target = Form(tuple(permutation.index(axis) for axis in range(len(sizes))), len(sizes))
    if first.form.order(sizes) != target.order(sizes):
        first.region.root().converted += build.bytes_of(op.operands[0])
    op.results[0].replace_all_uses_with(converted(first.tensor, sizes, first.form, target))
    return True


def _reduce(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """A reduction of several axes if the order of its combiner is free, or of one axis."""
    dimensions = mlir.integers(op.attributes["dimensions"])
    count = len(op.operands) // 2
    if len(dimensions) > 1 and not (count == 1 and _has_free_order(op)):
        return False
    full, rest = list(op.operands)[:count], list(op.operands)[count:]
    if sum(layouts.cost(operand, first.form) for operand in full) > 0:
        return False
    operands = [layouts.tensor(operand, first.form, first.region) for operand in full]
    reduced = sorted(first.form.places[axis] for axis in dimensions)
    places = [place - sum(each < place for each in reduced) for place in first.form.places]
    kept = [axis for axis in range(len(places)) if axis not in dimensions]
    form = Form(tuple(places[axis] for axis in kept), first.form.rank - len(reduced))
    axis = kept.index(first.axis) if first.axis in kept else -1
    if _is_long_sum(op, operands, reduced):
        operands = [_partial_sums(op, operands[0], rest[0], reduced.pop())]
    changed = {"dimensions": build.int_array(reduced)}
    _again(op, [*operands, *rest], form, changed, layouts, first, axis)
    return True


def _is_long_sum(op: mlir.Op, operands: Sequence[mlir.Value], reduced: Sequence[int]) -> bool:
    """Whether ``op`` sums many floats along several axes: the rounding error of one pass grows with them."""
    if len(reduced) < 2 or str(mlir.element_type(operands[0].type)) not in FLOATS:
        return False
    if not _has_free_order(op) or mlir.name_of(mlir.operations(mlir.block_of(op))[0]) != "stablehlo.add":
        return False
    sizes = build.static_sizes(operands[0])
    return math.prod(sizes[axis] for axis in reduced) > MOST_SUMMED


def _partial_sums(op: mlir.Op, tensor: mlir.Value, start: mlir.Value, axis: int) -> mlir.Value:
    """The sums of ``tensor`` along ``axis``, by the combiner of ``op``, from the neutral element on."""
    sizes = build.static_sizes(tensor)
    element = mlir.element_type(tensor.type)
    kind = build.tensor_type([*sizes[:axis], *sizes[axis + 1 :]], element)
    neutral = build.splat(0, start.type)
    attributes = {**mlir.attributes_of(op), "dimensions": build.int_array([axis])}
    partial = mlir.create("stablehlo.reduce", [tensor, neutral], [kind], attributes, 1)
    copy = mlir.clone(op)
    mlir.move_block(copy, partial, 0)
    copy.erase()
    return partial.results[0]


def _has_free_order(op: mlir.Op) -> bool:
    body = mlir.operations(mlir.block_of(op))
    return len(body) == 2 and mlir.name_of(body[0]).removeprefix("stablehlo.") in COMBINERS


def _window(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    changed = _arrays(op, dict.fromkeys(names, 1), first.form)
    if "padding" in op.attributes:
        low, high = zip(*mlir.integer_pairs(op, "padding"), strict=True)
        pairs = zip(first.form.spread(low, 0), first.form.spread(high, 0), strict=True)
        rows = ", ".join(f"[{before}, {after}]" for before, after in pairs)
        changed["padding"] = mlir.attribute(f"dense<[{rows}]> : tensor<{first.form.rank}x2xi64>")
    return _in_form(op, layouts, first, list(op.operands)[: len(op.operands) // 2], changed)


def _pad(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    changed = _arrays(op, dict.fromkeys(names, 0), first.form)
    return _in_form(op, layouts, first, [op.operands[0]], changed)


def _slice(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    others = {"start_indices": 0, "limit_indices": 1, "strides": 1}
    return _in_form(op, layouts, first, [op.operands[0]], _arrays(op, others, first.form))


def _arrays(op: mlir.Op, others: Mapping[str, int], form: Form) -> dict[str, mlir.Attribute]:
    """The attributes ``others``, one number an axis, for the axes of ``form``; theirs for additional axes."""
    return {
        name: build.int_array(form.spread(mlir.integers(op.attributes[name]), other))
        for name, other in others.items()
        if name in op.attributes
    }


def _reverse(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    dimensions = [first.form.places[axis] for axis in mlir.integers(op.attributes["dimensions"])]
    changed = {"dimensions": build.int_array(dimensions)}
    return _in_form(op, layouts, first, list(op.operands), changed)


def _concatenate(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """Along channels operands are inserted: a choice between operands for each element is not vectorized."""
    place = first.form.places[mlir.int_of(op.attributes["dimension"])]
    if place < first.form.rank - 1 or str(mlir.element_type(op.results[0].type)) not in FLOATS:
        return _in_form(op, layouts, first, list(op.operands), {"dimension": mlir.int_attr(place)})
    if not _pays(op, layouts, first, op.operands):
        return False
    kind = first.form.type(op.results[0].type)
    result = mlir.empty_tensor(kind)
    start = 0
    for operand in op.operands:
        part = layouts.tensor(operand, first.form, first.region)
        sizes = build.static_sizes(part)
        offsets = [0] * (first.form.rank - 1) + [start]
        result = mlir.insert_slice(part, result, offsets)
        start += sizes[-1]
    layouts.set(op.results[0], result, first.form, first.axis, first.region)
    return True


REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _window,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}

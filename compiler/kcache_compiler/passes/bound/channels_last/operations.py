"""Operations that are computed with channels last where their operands are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.concatenation import insert_operands
from kcache_compiler.passes.bound.channels_last.forms import Form, ordered, plain
from kcache_compiler.passes.bound.channels_last.products import rewrite_product
from kcache_compiler.passes.bound.channels_last.reshapes import rewrite_reshape
from kcache_compiler.passes.bound.channels_last.state import FLOATS, WIDE, Laid, Layouts
from kcache_compiler.spec.graph.operations import ELEMENTWISE

#: Rewrites an operation one of whose operands is ``Laid``; says whether it did.
Rewrite = Callable[[mlir.Op, Layouts, Laid], bool]

#: Elements that are summed one after another, at most, where a sum of several axes can be split by axis.
MOST_SUMMED = 32


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
) -> None:
    """``op`` again with other operands and attributes; its results have ``form``."""
    attributes = {**mlir.attributes_of(op), **changed}
    kinds = [form.type(result.type) for result in op.results]
    again = mlir.create(mlir.name_of(op), operands, kinds, attributes, len(op.regions))
    if len(op.regions):
        copy = mlir.clone(op)
        mlir.move_block(copy, again, 0)
        copy.erase()
    for old, new in zip(op.results, again.results, strict=True):
        layouts.set(old, new, form, first.region)


def _broadcast(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """The broadcast of a large value; of others, ``Layouts`` makes broadcasts in the form that is read."""
    dims = mlir.integers(op.attributes["broadcast_dimensions"])
    if dims != sorted(dims):
        return False
    source = first.form.compact
    order = sorted(dims, key=lambda dim: source.places[dims.index(dim)])
    for axis in range(mlir.rank_of(op.results[0].type)):
        if axis not in dims:
            order.insert(_position(order, axis), axis)
    form = ordered(order)
    tensor = layouts.tensor(op.operands[0], source, first.region)
    places = sorted(form.places[dim] for dim in dims)
    _again(op, [tensor], form, {"broadcast_dimensions": build.int_array(places)}, layouts, first)
    return True


def _position(order: Sequence[int], axis: int) -> int:
    """Where a new axis of a broadcast goes: behind the one before it, but not behind the last one."""
    if axis == 0:
        return 0
    position = order.index(axis - 1) + 1
    if position < len(order):
        return position
    return order.index(axis + 1) if axis + 1 in order else position - 1


def _transpose(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """The same tensor in another form."""
    permutation = mlir.integers(op.attributes["permutation"])
    form = Form(tuple(first.form.places[axis] for axis in permutation), first.form.rank)
    layouts.set(op.results[0], first.tensor, form, first.region)
    return True


def _reduce(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """A reduction of several axes if the order of its combiner is free, or of one axis."""
    dimensions = mlir.integers(op.attributes["dimensions"])
    count = len(op.operands) // 2
    if len(dimensions) > 1 and not (count == 1 and build.has_free_order(op)):
        return False
    full, rest = list(op.operands)[:count], list(op.operands)[count:]
    if sum(layouts.cost(operand, first.form) for operand in full) > 0:
        return False
    operands = [layouts.tensor(operand, first.form, first.region) for operand in full]
    reduced = sorted(first.form.places[axis] for axis in dimensions)
    places = [place - sum(each < place for each in reduced) for place in first.form.places]
    kept = [axis for axis in range(len(places)) if axis not in dimensions]
    form = Form(tuple(places[axis] for axis in kept), first.form.rank - len(reduced))
    while _is_long_sum(op, operands, reduced):
        operands, reduced = _with_partial_sums(op, operands[0], rest[0], reduced)
    changed = {"dimensions": build.int_array(reduced)}
    _again(op, [*operands, *rest], form, changed, layouts, first)
    return True


def _is_long_sum(op: mlir.Op, operands: Sequence[mlir.Value], reduced: Sequence[int]) -> bool:
    """Whether ``op`` sums many floats along several axes: the rounding error of one pass grows with them.
    Sums of bf16 are rounded once, and partial ones would be too.

    Sums along the innermost axis, as those of a group of channels, are not made together with others, for
    which loops along contiguous elements are vectorized.
    """
    if len(reduced) < 2 or str(mlir.element_type(operands[0].type)) not in WIDE:
        return False
    if not build.has_free_order(op) or mlir.name_of(mlir.operations(mlir.block_of(op))[0]) != "stablehlo.add":
        return False
    sizes = build.static_sizes(operands[0])
    count = math.prod(sizes[axis] for axis in reduced)
    return count > MOST_SUMMED or len(sizes) - 1 in reduced


def _with_partial_sums(
    op: mlir.Op, tensor: mlir.Value, start: mlir.Value, reduced: Sequence[int]
) -> tuple[list[mlir.Value], list[int]]:
    """The sums of ``tensor`` along the last axis but the innermost one, and the axes still to be reduced."""
    innermost = mlir.rank_of(tensor.type) - 1
    axis = [each for each in reduced if each != innermost][-1]
    others = [each - (each > axis) for each in reduced if each != axis]
    return [_partial_sums(op, tensor, start, axis)], others


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
    insert_operands(op, layouts, first)
    return True


def _gather(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """Whole slices along one axis that stays where it is, as nearest-neighbor resizing takes them."""
    axis = _sliced_axis(op)
    if axis is None or op.operands[0] not in layouts.laid:
        return False
    form, place = first.form, first.form.places[axis]
    numbers = (
        f"offset_dims = {[each for each in range(form.rank) if each != place]}, "
        f"collapsed_slice_dims = [{place}], start_index_map = [{place}], index_vector_dim = 1"
    )
    sizes = form.spread(mlir.integers(op.attributes["slice_sizes"]), 1)
    changed = {
        "dimension_numbers": mlir.attribute(f"#stablehlo.gather<{numbers}>"),
        "slice_sizes": build.int_array(sizes),
    }
    _again(op, [first.tensor, layouts.plain(op.operands[1])], form, changed, layouts, first)
    return True


def _sliced_axis(op: mlir.Op) -> int | None:
    """The axis along which a list of indices selects whole slices, if the result has it in the same place."""
    numbers = mlir.gather_dimensions(op)
    sizes = build.static_sizes(op.operands[0])
    if len(numbers["start_index_map"]) != 1 or numbers["operand_batching_dims"]:
        return None
    axis = numbers["start_index_map"][0]
    others = [each for each in range(len(sizes)) if each != axis]
    if numbers["collapsed_slice_dims"] != [axis] or numbers["offset_dims"] != others:
        return None
    if mlir.rank_of(op.operands[1].type) != 1 or numbers["index_vector_dim"] != 1:
        return None
    whole = [1 if each == axis else size for each, size in enumerate(sizes)]
    return axis if mlir.integers(op.attributes["slice_sizes"]) == whole else None


REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dot_general": rewrite_product,
    "stablehlo.gather": _gather,
    "stablehlo.pad": _pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _window,
    "stablehlo.reshape": rewrite_reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}

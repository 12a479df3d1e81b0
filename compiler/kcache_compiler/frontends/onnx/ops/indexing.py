"""Gather, Scatter, TopK and their variants."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.emitter import Array, Dims, Value, constant_value, i64_array
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize


def _is_non_negative(indices: Value) -> bool:
    elements = indices.constant
    return indices.non_negative or (
        elements is not None and bool(elements.size) and bool(elements.min() >= 0)
    )


def _wrap_negative(n: OnnxNode, indices: Value, size: int) -> Value:
    """Return indices counted from 0: in ONNX negative ones count from the end."""
    if _is_non_negative(indices):
        return indices
    is_negative = n.b.compare_to("LT", indices, 0)
    return n.b.select(is_negative, n.b.scalar("add", indices, size), indices)


@legalize(Gather=13)
def gather(n: OnnxNode) -> Value:
    """Lower ``Gather``: entries of an axis by index.

    Negative indices count from the end. The result has the shape of the input with that axis replaced by the
    shape of the indices. One constant index becomes a slice.
    """
    x, indices, b = n[0], n[1], n.b
    axis = n.axis(n.int("axis", 0), x.rank)
    elements = indices.constant
    if elements is not None and elements.size == 1:
        index = int(elements.reshape(-1)[0])
        if not -x.dims[axis] <= index < x.dims[axis]:
            n.invalid(f"index {index} is outside axis {axis} of shape {list(x.dims)}")
        entry = b.slice_axis(x, axis, index % x.dims[axis], index % x.dims[axis] + 1)
        return b.reshape(entry, (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]))
    dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])
    offsets = [i for i in range(len(dims)) if not axis <= i < axis + indices.rank]
    sizes = [1 if i == axis else d for i, d in enumerate(x.dims)]
    dimension_numbers = (
        f"offset_dims = {offsets}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {indices.rank}"
    )
    return _emit_gather(n, x, _wrap_negative(n, indices, x.dims[axis]), dimension_numbers, sizes, dims)


def _emit_gather(
    n: OnnxNode, x: Value, indices: Value, dimension_numbers: str, sizes: list[int], dims: Dims
) -> Value:
    if 0 in dims:
        return n.b.full(0, x.element, dims)
    if any(size > dim for size, dim in zip(sizes, x.dims, strict=True)):
        n.invalid(f"it reads elements of the empty shape {list(x.dims)}")
    properties = (
        f"dimension_numbers = #stablehlo.gather<{dimension_numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64_array(sizes)}"
    )
    return n.b.emit("stablehlo.gather", [x, indices], x.element, dims, properties)


def take_constant(n: OnnxNode, x: Value, axis: int, source: Array) -> Value:
    """Take elements along an axis by constant indices."""
    if 0 in (*x.dims, source.size):
        return n.b.full(0, x.element, (*x.dims[:axis], source.size, *x.dims[axis + 1 :]))
    return take(n, x, axis, constant_value(source.astype(np.int64)))


def take(n: OnnxNode, x: Value, axis: int, source: Value) -> Value:
    """Take elements along an axis by a vector of non-negative indices."""
    dimension_numbers = (
        f"offset_dims = {[i for i in range(x.rank) if i != axis]}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1"
    )
    sizes = [1 if i == axis else d for i, d in enumerate(x.dims)]
    dims = (*x.dims[:axis], source.dims[0], *x.dims[axis + 1 :])
    return _emit_gather(n, x, source, dimension_numbers, sizes, dims)


@legalize(GatherElements=13)
def gather_elements(n: OnnxNode) -> Value:
    x, indices = n[0], n[1]
    axis = n.axis(n.int("axis", 0), x.rank)
    element_indices = _element_indices(n, _wrap_negative(n, indices, x.dims[axis]), axis)
    all_axes = list(range(x.rank))
    dimension_numbers = (
        f"collapsed_slice_dims = {all_axes}, start_index_map = {all_axes}, index_vector_dim = {x.rank}"
    )
    return _emit_gather(n, x, element_indices, dimension_numbers, [1] * x.rank, indices.dims)


def _element_indices(n: OnnxNode, indices: Value, axis: int) -> Value:
    """Return the coordinates of each element, with ``indices`` along one axis."""
    b = n.b
    unit_dims = (*indices.dims, 1)
    columns = [
        b.reshape(indices if i == axis else b.iota(indices.element, indices.dims, i), unit_dims)
        for i in range(indices.rank)
    ]
    return b.concatenate(columns, indices.rank)


def _wrap_coordinates(n: OnnxNode, indices: Value, dims: Dims) -> Value:
    """Return coordinates counted from 0 along each of ``dims``."""
    b = n.b
    if _is_non_negative(indices):
        return indices
    count = indices.dims[-1]
    columns = [
        _wrap_negative(n, b.slice_axis(indices, indices.rank - 1, i, i + 1), dims[i]) for i in range(count)
    ]
    return b.concatenate(columns, indices.rank - 1) if columns else indices


@legalize(GatherND=13)
def gather_nd(n: OnnxNode) -> Value:
    """Lower ``GatherND``: slices of the input at the coordinates in the last axis of the indices.

    The result has the shape of the indices without their last axis, and the axes of the slices.
    """
    x, indices, batch = n[0], n[1], n.int("batch_dims", 0)
    if indices.rank < 1 or batch + indices.dims[-1] > x.rank or batch >= indices.rank:
        n.invalid(f"indices of shape {list(indices.dims)} do not fit shape {list(x.dims)}")
    indexed_axes = list(range(batch, batch + indices.dims[-1]))
    slice_dims = x.dims[batch + len(indexed_axes) :]
    dims = (*indices.dims[:-1], *slice_dims)
    batch_axes = list(range(batch))
    dimension_numbers = (
        f"offset_dims = {list(range(indices.rank - 1, len(dims)))}, collapsed_slice_dims = {indexed_axes}, "
        f"operand_batching_dims = {batch_axes}, start_indices_batching_dims = {batch_axes}, "
        f"start_index_map = {indexed_axes}, index_vector_dim = {indices.rank - 1}"
    )
    coordinates = _wrap_coordinates(n, indices, tuple(x.dims[batch:]))
    return _emit_gather(
        n, x, coordinates, dimension_numbers, [1] * (batch + len(indexed_axes)) + list(slice_dims), dims
    )


_REDUCTIONS = {"none": None, "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@legalize(Scatter=11, ScatterElements=18, ScatterND=18)
def scatter(n: OnnxNode) -> Value:
    """Lower ``ScatterElements`` and ``ScatterND``: the input with updates written or combined at indices.

    The result has the shape of the input. ``reduction`` combines an update with the element there; without
    it, which of several updates of one element is stored is not defined.
    """
    x, indices, updates, b = n[0], n[1], n[2], n.b
    if n.op == "ScatterND":
        count = indices.dims[-1]
        coordinates = _wrap_coordinates(n, indices, x.dims)
        window = list(range(indices.rank - 1, updates.rank))
        inserted, index_vector_dim = list(range(count)), indices.rank - 1
    else:
        axis = n.axis(n.int("axis", 0), x.rank)
        coordinates = _element_indices(n, _wrap_negative(n, indices, x.dims[axis]), axis)
        window, inserted, index_vector_dim = [], list(range(x.rank)), x.rank
    name = n.text("reduction", "none")
    if name not in _REDUCTIONS:
        n.invalid(f"reduction {name!r} does not exist")
    if math.prod(updates.dims) == 0:
        return x
    op = _REDUCTIONS[name]
    element, update = b.parameter(x.element, ()), b.parameter(x.element, ())
    body = b.region([element, update], lambda: [update if op is None else b.binary(op, element, update)])
    properties = (
        f"indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = {window}, inserted_window_dims = {inserted}, "
        f"scatter_dims_to_operand_dims = {inserted}, index_vector_dim = {index_vector_dim}>, "
        f"unique_indices = false"
    )
    return b.emit_many(
        "stablehlo.scatter", [x, coordinates, updates], [(x.element, x.dims)], properties, [body]
    )[0]


@legalize(TopK=24)
def top_k(n: OnnxNode) -> LegalizationResult:
    """Lower ``TopK``: the ``k`` largest or smallest elements along an axis, and their indices (i64).

    Both are slices of a stable sort of the axis with its positions. ``k`` must be constant.
    """
    x, b = n[0], n.b
    count = n.int("k") if n.has("k") else int(n.constant(1, "k").reshape(-1)[0])
    axis = n.axis(n.int("axis", -1), x.rank)
    if not 0 <= count <= x.dims[axis]:
        n.invalid(f"k = {count} is out of range for axis {axis} of shape {list(x.dims)}")
    operands = [x, b.iota("i64", x.dims, axis)]
    parameters = [b.parameter(o.element, ()) for o in operands for _ in range(2)]
    direction = "GT" if n.int("largest", 1) else "LT"
    body = b.region(parameters, lambda: [b.compare(direction, parameters[0], parameters[1])])
    properties = f"dimension = {axis} : i64, is_stable = true"
    types = [(o.element, o.dims) for o in operands]
    return [
        b.slice_axis(y, axis, 0, count)
        for y in b.emit_many("stablehlo.sort", operands, types, properties, [body])
    ]


@legalize(ReverseSequence=28)
def reverse_sequence(n: OnnxNode) -> Value:
    x, b = n[0], n.b
    batch, time = n.int("batch_axis", 1), n.int("time_axis", 0)
    lengths = b.broadcast_in_dim(b.convert(n[1], "i64"), [batch], x.dims)
    step = b.iota("i64", x.dims, time)
    reversed_step = b.scalar("subtract", b.binary("subtract", lengths, step), 1)
    source = b.select(b.compare("LT", step, lengths), reversed_step, step)
    all_axes = list(range(x.rank))
    dimension_numbers = (
        f"collapsed_slice_dims = {all_axes}, start_index_map = {all_axes}, index_vector_dim = {x.rank}"
    )
    return _emit_gather(n, x, _element_indices(n, source, time), dimension_numbers, [1] * x.rank, x.dims)


@legalize(TensorScatter=24)
def tensor_scatter(n: OnnxNode) -> Value:
    """Write a run of updates along an axis from each batch's index on; updates out of range are dropped."""
    b, x, update, starts = n.b, n[0], n[1], n.get(2)
    axis, mode = n.axis(n.int("axis", -2), x.rank), n.text("mode", "linear")
    update_rest = [d for i, d in enumerate(update.dims) if i != axis]
    if not axis or mode not in ("linear", "circular") or update.rank != x.rank:
        n.invalid(f"axis {axis} and mode {mode!r} of an update of shape {list(update.dims)}")
    if update_rest != [d for i, d in enumerate(x.dims) if i != axis] or update.dims[axis] > x.dims[axis]:
        n.invalid(f"an update of shape {list(update.dims)} does not fit shape {list(x.dims)}")
    if 0 in update.dims:
        return x
    row_dims = (x.dims[0], x.dims[axis])
    source = b.iota("i64", row_dims, 1)
    if starts is not None:
        if starts.dims != x.dims[:1]:
            n.invalid(f"indices of shape {list(starts.dims)} do not match {x.dims[0]} batches")
        source = b.binary("subtract", source, b.broadcast_in_dim(b.convert(starts, "i64"), [0], row_dims))
    if mode == "circular":
        source = b.scalar("remainder", source, x.dims[axis])
        source = b.select(b.compare_to("LT", source, 0), b.scalar("add", source, x.dims[axis]), source)
    last = update.dims[axis] - 1
    is_written = b.binary("and", b.compare_to("GE", source, 0), b.compare_to("LE", source, last))
    source = b.scalar("minimum", b.scalar("maximum", source, 0), last)
    dimension_numbers = (
        f"offset_dims = {[i for i in range(x.rank) if i not in (0, axis)]}, "
        f"collapsed_slice_dims = [{axis}], operand_batching_dims = [0], start_indices_batching_dims = [0], "
        f"start_index_map = [{axis}], index_vector_dim = 2"
    )
    sizes = [1 if i in (0, axis) else d for i, d in enumerate(x.dims)]
    values = _emit_gather(n, update, b.reshape(source, (*row_dims, 1)), dimension_numbers, sizes, x.dims)
    return b.select(b.broadcast_in_dim(is_written, [0, axis], x.dims), values, x)

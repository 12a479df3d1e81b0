"""Compress, NonZero and Unique: operators with results of data-dependent sizes (``data_dependent.py``).

The sizes are static if constants determine them.
"""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Builder, Window
from kcache_compiler.frontends.onnx.data_dependent import (
    element_coordinates,
    partition_by_mask,
    sort_by_key,
    with_data_dependent_dim,
)
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, constant_value, i64_array
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.indexing import take, take_constant

#: Largest number of comparisons of elements with which ``Unique`` along an axis sorts subtensors.
_MAX_COMPARISONS = 1 << 22


@legalize(Compress=28)
def compress(n: OnnxNode) -> Value:
    """Lower ``Compress``: entries of an axis, or of the flattened input, where the condition holds.

    The result has a static size if the condition is constant. Otherwise its size is computed at run time, up
    to that of the axis.
    """
    b, x, condition = n.b, n[0], n[1]
    axis = 0
    if n.has("axis"):
        axis = n.axis(n.int("axis"), x.rank)
    else:
        x = b.reshape(x, (math.prod(x.dims),))
    fits = condition.rank == 1 and condition.dims[0] <= x.dims[axis]
    if condition.constant is not None:
        mask = condition.constant
        if mask.ndim == 1 and not mask[x.dims[axis] :].any():
            return take_constant(n, x, axis, np.flatnonzero(mask))
        fits = False
    if not fits:
        n.invalid(
            f"a condition of shape {list(condition.dims)} does not match axis {axis} of shape {list(x.dims)}"
        )
    if not math.prod(x.dims):
        n.unsupported("an empty input with a condition that depends on the inputs")
    (order,), count = partition_by_mask(b, condition)
    return with_data_dependent_dim(take(n, x, axis, order), axis, count)


@legalize(NonZero=28)
def non_zero(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    if not x.rank:
        n.unsupported("its input is a scalar")
    if x.constant is not None:
        return constant_value(np.asarray(np.nonzero(x.constant), np.int64))
    size = math.prod(x.dims)
    if not size:
        return constant_value(np.zeros((x.rank, 0), np.int64))
    mask = x if x.element == "i1" else b.compare("NE", x, b.full(0, x.element, x.dims))
    rows, count = partition_by_mask(b, b.reshape(mask, (size,)), *element_coordinates(b, x.dims))
    indices = b.concatenate([b.reshape(row, (1, size)) for row in rows], 0)
    return with_data_dependent_dim(indices, 1, count)._replace(non_negative=True)


@legalize(Unique=28)
def unique(n: OnnxNode) -> LegalizationResult:
    """Lower ``Unique``: the distinct entries of an axis, or elements of the flattened input.

    Also returns the index of the first occurrence of each, the group of each input entry, and the counts
    (i64). The number of distinct entries is computed at run time, up to the size of the axis.
    """
    b, x = n.b, n[0]
    axis = 0
    if n.has("axis"):
        axis = n.axis(n.int("axis"), x.rank)
    else:
        x = b.reshape(x, (math.prod(x.dims),))
    size = x.dims[axis]
    if size <= 1:  # a single element is always unique
        indices = constant_value(np.arange(size, dtype=np.int64))
        return [x, indices, indices, constant_value(np.ones(size, np.int64))]
    if not math.prod(x.dims):
        n.unsupported("empty subtensors")
    order, starts_group = _sort_vector(b, x) if x.rank == 1 else _sort_subtensors(n, x, axis)
    # In sorted order: the start of each group, and the group of each element.
    (starts,), count = partition_by_mask(b, starts_group)
    groups = b.scalar("subtract", _cumulative_sum(b, b.convert(starts_group, "i64")), 1)
    (inverse,) = sort_by_key(b, [groups], order)
    indices = take(n, order, 0, starts)
    ends = b.concatenate([b.slice_axis(starts, 0, 1, size), b.full(size, "i64", (1,))], 0)
    position = b.iota("i64", (size,), 0)
    is_last = b.compare("GE", b.scalar("add", position, 1), count)
    counts = b.binary("subtract", b.select(is_last, b.full(size, "i64", (size,)), ends), starts)
    if not n.int("sorted", 1):
        # Sort groups by their first elements; positions that are not groups stay last.
        key = b.select(b.compare("LT", position, count), indices, b.full(size, "i64", (size,)))
        group_order, counts, indices = sort_by_key(b, [position, counts, indices], key)
        (new_groups,) = sort_by_key(b, [position], group_order)
        inverse = take(n, new_groups, 0, inverse)
    y = take(n, x, axis, indices)
    return [
        with_data_dependent_dim(y, axis, count),
        with_data_dependent_dim(indices, 0, count),
        inverse,
        with_data_dependent_dim(counts, 0, count),
    ]


def _sort_vector(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return the indices that sort a vector, NaN last, and where a new value starts in this order."""
    key = x
    if x.element == "i1":
        key = b.convert(x, "i32")
    elif x.element in FLOATS:
        nan = b.compare("NE", x, x)
        key = b.binary("add", x, b.full(0, x.element, x.dims))  # maps -0 to 0
        key = b.select(nan, b.full(math.inf, x.element, x.dims), key)
        # NaN sorts after infinity: first by value, then by whether it is NaN.
        (order,) = sort_by_key(b, [b.iota("i64", x.dims, 0)], key)
        (order,) = _sort_order_by(b, b.convert(nan, "i32"), order)
        key = _gather_vector(b, key, order)
        same_nan = _gather_vector(b, b.convert(nan, "i32"), order)
        changed = b.binary("or", _group_starts(b, key), _group_starts(b, same_nan))
        return order, changed
    (order,) = sort_by_key(b, [b.iota("i64", x.dims, 0)], key)
    return order, _group_starts(b, _gather_vector(b, key, order))


def _sort_order_by(b: Builder, key: Value, order: Value) -> list[Value]:
    """Stably sort an order by another key."""
    return sort_by_key(b, [order], _gather_vector(b, key, order))


def _gather_vector(b: Builder, x: Value, order: Value) -> Value:
    numbers = "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
    properties = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64_array([1])}"
    )
    return b.emit("stablehlo.gather", [x, order], x.element, order.dims, properties)


def _group_starts(b: Builder, x: Value) -> Value:
    """Return where a vector's element differs from the previous one; true at 0."""
    differs = b.compare("NE", b.slice_axis(x, 0, 1, x.dims[0]), b.slice_axis(x, 0, 0, x.dims[0] - 1))
    return b.concatenate([b.full(True, "i1", (1,)), differs], 0)


def _cumulative_sum(b: Builder, x: Value) -> Value:
    size = x.dims[0]
    return b.window("add", x, Window([size], [1], [1], [(size - 1, 0)]))


def _sort_subtensors(n: OnnxNode, x: Value, axis: int) -> tuple[Value, Value]:
    """Return ``_sort_vector`` of subtensors along an axis, by pairwise lexicographic comparison."""
    b, size = n.b, x.dims[axis]
    rows = b.transpose(x, [axis, *(i for i in range(x.rank) if i != axis)])
    width = math.prod(x.dims) // size
    if size * size * width > _MAX_COMPARISONS:
        n.unsupported(
            f"{size} subtensors of {width} elements along an axis: too many for pairwise comparison"
        )
    rows = b.reshape(b.convert(rows, "i32") if x.element == "i1" else rows, (size, width))
    dims = (size, size, width)
    left, right = b.broadcast_in_dim(rows, [0, 2], dims), b.broadcast_in_dim(rows, [1, 2], dims)
    column = b.iota("i64", dims, 2)
    differs = b.compare("NE", left, right)
    first_difference = b.reduce("minimum", b.select(differs, column, b.full(width, "i64", dims)), [2])
    at_difference = b.compare("EQ", column, b.broadcast_in_dim(first_difference, [0, 1], dims))
    is_greater = b.binary("and", b.compare("GT", left, right), at_difference)
    pair_dims = (size, size)
    is_equal_and_earlier = b.binary(
        "and",
        b.compare_to("EQ", first_difference, width),
        b.compare("GT", b.iota("i64", pair_dims, 0), b.iota("i64", pair_dims, 1)),
    )
    rank = b.reduce(
        "add", b.convert(b.binary("or", b.reduce("or", is_greater, [2]), is_equal_and_earlier), "i64"), [1]
    )
    (order,) = sort_by_key(b, [b.iota("i64", (size,), 0)], rank)
    sorted_rows = take(n, rows, 0, order)
    changed = b.reduce(
        "or",
        b.compare("NE", b.slice_axis(sorted_rows, 0, 1, size), b.slice_axis(sorted_rows, 0, 0, size - 1)),
        [1],
    )
    return order, b.concatenate([b.full(True, "i1", (1,)), changed], 0)

"""Operators whose results are as large as data says: the largest size, and a count (``counted.py``).

Where constants decide, sizes are known and there is no count.
"""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Build, Window
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, i64s, known
from kcache_compiler.frontends.onnx.ops.counted import chosen, coordinates, ordered, with_count
from kcache_compiler.frontends.onnx.ops.indexing import taken, taken_at
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes

#: Comparisons of elements of subtensors by which ``Unique`` along an axis orders them.
_MOST_COMPARISONS = 1 << 22


@legalizes(Compress=28)
def compress(n: Site) -> Value:
    b, x, condition = n.b, n[0], n[1]
    axis = 0
    if n.has("axis"):
        axis = n.axis(n.int("axis"), x.rank)
    else:
        x = b.reshape(x, (math.prod(x.dims),))
    fits = condition.rank == 1 and condition.dims[0] <= x.dims[axis]
    if condition.known is not None:
        mask = condition.known
        if mask.ndim == 1 and not mask[x.dims[axis] :].any():
            return taken(n, x, axis, np.flatnonzero(mask))
        fits = False
    if not fits:
        n.invalid(f"a condition of shape {list(condition.dims)} for axis {axis} of shape {list(x.dims)}")
    if not math.prod(x.dims):
        n.unsupported("no elements, and a condition that depends on the inputs")
    (order,), count = chosen(b, condition)
    return with_count(taken_at(n, x, axis, order), axis, count)


@legalizes(NonZero=28)
def non_zero(n: Site) -> Value:
    b, x = n.b, n[0]
    if not x.rank:
        n.unsupported("its input is a scalar")
    if x.known is not None:
        return known(np.asarray(np.nonzero(x.known), np.int64))
    size = math.prod(x.dims)
    if not size:
        return known(np.zeros((x.rank, 0), np.int64))
    mask = x if x.element == "i1" else b.compare("NE", x, b.full(0, x.element, x.dims))
    rows, count = chosen(b, b.reshape(mask, (size,)), *coordinates(b, x.dims))
    whole = b.concatenate([b.reshape(row, (1, size)) for row in rows], 0)
    return with_count(whole, 1, count)._replace(from_front=True)


@legalizes(Unique=28)
def unique(n: Site) -> Results:
    b, x = n.b, n[0]
    axis = 0
    if n.has("axis"):
        axis = n.axis(n.int("axis"), x.rank)
    else:
        x = b.reshape(x, (math.prod(x.dims),))
    size = x.dims[axis]
    if size <= 1:  # one element is unique whatever it is
        indices = known(np.arange(size, dtype=np.int64))
        return [x, indices, indices, known(np.ones(size, np.int64))]
    if not math.prod(x.dims):
        n.unsupported("subtensors without elements")
    order, first = _order(b, x) if x.rank == 1 else _order_of_parts(n, x, axis)
    # In sorted order: where a group starts, and which one an element belongs to.
    (starts,), count = chosen(b, first)
    groups = b.scalar("subtract", _running_sum(b, b.convert(first, "i64")), 1)
    (inverse,) = ordered(b, [groups], order)
    indices = taken_at(n, order, 0, starts)
    ends = b.concatenate([b.along(starts, 0, 1, size), b.full(size, "i64", (1,))], 0)
    place = b.iota("i64", (size,), 0)
    last = b.compare("GE", b.scalar("add", place, 1), count)
    counts = b.binary("subtract", b.select(last, b.full(size, "i64", (size,)), ends), starts)
    if not n.int("sorted", 1):
        # Groups by their first elements instead; what is no group stays behind them.
        key = b.select(b.compare("LT", place, count), indices, b.full(size, "i64", (size,)))
        old, counts, indices = ordered(b, [place, counts, indices], key)
        (new,) = ordered(b, [place], old)
        inverse = taken_at(n, new, 0, inverse)
    y = taken_at(n, x, axis, indices)
    return [with_count(y, axis, count), with_count(indices, 0, count), inverse, with_count(counts, 0, count)]


def _order(b: Build, x: Value) -> tuple[Value, Value]:
    """Return the indices that sort a vector, NaN last, and where another value begins in this order."""
    key = x
    if x.element == "i1":
        key = b.convert(x, "i32")
    elif x.element in FLOATS:
        nan = b.compare("NE", x, x)
        key = b.binary("add", x, b.full(0, x.element, x.dims))  # -0 is 0
        key = b.select(nan, b.full(math.inf, x.element, x.dims), key)
        # NaN goes behind infinity: sorted first by the number, then by whether it is one.
        (order,) = ordered(b, [b.iota("i64", x.dims, 0)], key)
        (order,) = _then_by(b, b.convert(nan, "i32"), order)
        key = _gathered(b, key, order)
        same_nan = _gathered(b, b.convert(nan, "i32"), order)
        changed = b.binary("or", _changes(b, key), _changes(b, same_nan))
        return order, changed
    (order,) = ordered(b, [b.iota("i64", x.dims, 0)], key)
    return order, _changes(b, _gathered(b, key, order))


def _then_by(b: Build, key: Value, order: Value) -> list[Value]:
    """Sort an order by another key, stable."""
    return ordered(b, [order], _gathered(b, key, order))


def _gathered(b: Build, x: Value, order: Value) -> Value:
    numbers = "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
    properties = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64s([1])}"
    )
    return b.emit("stablehlo.gather", [x, order], x.element, order.dims, properties)


def _changes(b: Build, x: Value) -> Value:
    """Where a vector's element differs from the one before; true at 0."""
    differs = b.compare("NE", b.along(x, 0, 1, x.dims[0]), b.along(x, 0, 0, x.dims[0] - 1))
    return b.concatenate([b.full(True, "i1", (1,)), differs], 0)


def _running_sum(b: Build, x: Value) -> Value:
    size = x.dims[0]
    return b.window("add", x, Window([size], [1], [1], [(size - 1, 0)]))


def _order_of_parts(n: Site, x: Value, axis: int) -> tuple[Value, Value]:
    """``_order`` of the subtensors along an axis, in lexicographic order: each is compared with each."""
    b, size = n.b, x.dims[axis]
    rows = b.transpose(x, [axis, *(i for i in range(x.rank) if i != axis)])
    width = math.prod(x.dims) // size
    if size * size * width > _MOST_COMPARISONS:
        n.unsupported(
            f"{size} subtensors of {width} elements along an axis: too many to compare each with each"
        )
    rows = b.reshape(b.convert(rows, "i32") if x.element == "i1" else rows, (size, width))
    whole = (size, size, width)
    one, other = b.broadcast_in_dim(rows, [0, 2], whole), b.broadcast_in_dim(rows, [1, 2], whole)
    column = b.iota("i64", whole, 2)
    differs = b.compare("NE", one, other)
    first = b.reduce("minimum", b.select(differs, column, b.full(width, "i64", whole)), [2])
    here = b.compare("EQ", column, b.broadcast_in_dim(first, [0, 1], whole))
    above = b.binary("and", b.compare("GT", one, other), here)
    pair = (size, size)
    before = b.binary(
        "and",
        b.compare_to("EQ", first, width),
        b.compare("GT", b.iota("i64", pair, 0), b.iota("i64", pair, 1)),
    )
    rank = b.reduce("add", b.convert(b.binary("or", b.reduce("or", above, [2]), before), "i64"), [1])
    (order,) = ordered(b, [b.iota("i64", (size,), 0)], rank)
    placed = taken_at(n, rows, 0, order)
    changed = b.reduce(
        "or", b.compare("NE", b.along(placed, 0, 1, size), b.along(placed, 0, 0, size - 1)), [1]
    )
    return order, b.concatenate([b.full(True, "i1", (1,)), changed], 0)

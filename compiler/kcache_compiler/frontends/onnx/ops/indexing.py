"""Gathers, scatters, and orders."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.emitter import Array, Dims, Value, i64s, known
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes


def _is_from_front(indices: Value) -> bool:
    known = indices.known
    return indices.from_front or (known is not None and bool(known.size) and bool(known.min() >= 0))


def _from_front(n: Site, indices: Value, size: int) -> Value:
    """Return indices counted from the front: ONNX lets them count from the end."""
    if _is_from_front(indices):
        return indices
    below = n.b.compare_to("LT", indices, 0)
    return n.b.select(below, n.b.scalar("add", indices, size), indices)


@legalizes(Gather=13)
def gather(n: Site) -> Value:
    x, indices, b = n[0], n[1], n.b
    axis = n.axis(n.int("axis", 0), x.rank)
    one = indices.known
    if one is not None and one.size == 1:
        at = int(one.reshape(-1)[0])
        if not -x.dims[axis] <= at < x.dims[axis]:
            n.invalid(f"index {at} is outside axis {axis} of shape {list(x.dims)}")
        part = b.along(x, axis, at % x.dims[axis], at % x.dims[axis] + 1)
        return b.reshape(part, (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]))
    dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])
    offsets = [i for i in range(len(dims)) if not axis <= i < axis + indices.rank]
    sizes = [1 if i == axis else d for i, d in enumerate(x.dims)]
    numbers = (
        f"offset_dims = {offsets}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {indices.rank}"
    )
    return _gathered(n, x, _from_front(n, indices, x.dims[axis]), numbers, sizes, dims)


def _gathered(n: Site, x: Value, indices: Value, numbers: str, sizes: list[int], dims: Dims) -> Value:
    if 0 in dims:
        return n.b.full(0, x.element, dims)
    if any(size > have for size, have in zip(sizes, x.dims, strict=True)):
        n.invalid(f"it reads elements of shape {list(x.dims)}, which has none")
    properties = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64s(sizes)}"
    )
    return n.b.emit("stablehlo.gather", [x, indices], x.element, dims, properties)


def taken(n: Site, x: Value, axis: int, source: Array) -> Value:
    """Take elements along an axis by known indices."""
    if 0 in (*x.dims, source.size):
        return n.b.full(0, x.element, (*x.dims[:axis], source.size, *x.dims[axis + 1 :]))
    return taken_at(n, x, axis, known(source.astype(np.int64)))


def taken_at(n: Site, x: Value, axis: int, source: Value) -> Value:
    """Take elements along an axis by a vector of indices from the front."""
    numbers = (
        f"offset_dims = {[i for i in range(x.rank) if i != axis]}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1"
    )
    sizes = [1 if i == axis else d for i, d in enumerate(x.dims)]
    dims = (*x.dims[:axis], source.dims[0], *x.dims[axis + 1 :])
    return _gathered(n, x, source, numbers, sizes, dims)


@legalizes(GatherElements=13)
def gather_elements(n: Site) -> Value:
    x, indices = n[0], n[1]
    axis = n.axis(n.int("axis", 0), x.rank)
    places = _places(n, _from_front(n, indices, x.dims[axis]), axis)
    everything = list(range(x.rank))
    numbers = (
        f"collapsed_slice_dims = {everything}, start_index_map = {everything}, index_vector_dim = {x.rank}"
    )
    return _gathered(n, x, places, numbers, [1] * x.rank, indices.dims)


def _places(n: Site, indices: Value, axis: int) -> Value:
    """Return for each place its coordinates, with ``indices`` along one axis."""
    b = n.b
    column = (*indices.dims, 1)
    parts = [
        b.reshape(indices if i == axis else b.iota(indices.element, indices.dims, i), column)
        for i in range(indices.rank)
    ]
    return b.concatenate(parts, indices.rank)


def _coordinates(n: Site, indices: Value, dims: Dims) -> Value:
    """Return coordinates counted from the front, each in its own axis."""
    b = n.b
    if _is_from_front(indices):
        return indices
    count = indices.dims[-1]
    parts = [_from_front(n, b.along(indices, indices.rank - 1, i, i + 1), dims[i]) for i in range(count)]
    return b.concatenate(parts, indices.rank - 1) if parts else indices


@legalizes(GatherND=13)
def gather_nd(n: Site) -> Value:
    x, indices, batch = n[0], n[1], n.int("batch_dims", 0)
    if indices.rank < 1 or batch + indices.dims[-1] > x.rank or batch >= indices.rank:
        n.invalid(f"indices of shape {list(indices.dims)} do not fit shape {list(x.dims)}")
    taken = list(range(batch, batch + indices.dims[-1]))
    rest = x.dims[batch + len(taken) :]
    dims = (*indices.dims[:-1], *rest)
    head = list(range(batch))
    numbers = (
        f"offset_dims = {list(range(indices.rank - 1, len(dims)))}, collapsed_slice_dims = {taken}, "
        f"operand_batching_dims = {head}, start_indices_batching_dims = {head}, "
        f"start_index_map = {taken}, index_vector_dim = {indices.rank - 1}"
    )
    places = _coordinates(n, indices, tuple(x.dims[batch:]))
    return _gathered(n, x, places, numbers, [1] * (batch + len(taken)) + list(rest), dims)


_REDUCTIONS = {"none": None, "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@legalizes(Scatter=11, ScatterElements=18, ScatterND=18)
def scatter(n: Site) -> Value:
    x, indices, updates, b = n[0], n[1], n[2], n.b
    if n.op == "ScatterND":
        count = indices.dims[-1]
        places = _coordinates(n, indices, x.dims)
        window = list(range(indices.rank - 1, updates.rank))
        inserted, depth = list(range(count)), indices.rank - 1
    else:
        axis = n.axis(n.int("axis", 0), x.rank)
        places = _places(n, _from_front(n, indices, x.dims[axis]), axis)
        window, inserted, depth = [], list(range(x.rank)), x.rank
    name = n.text("reduction", "none")
    if name not in _REDUCTIONS:
        n.invalid(f"reduction {name!r} is none")
    if math.prod(updates.dims) == 0:
        return x
    op = _REDUCTIONS[name]
    old, new = b.parameter(x.element, ()), b.parameter(x.element, ())
    body = b.region([old, new], lambda: [new if op is None else b.binary(op, old, new)])
    properties = (
        f"indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = {window}, inserted_window_dims = {inserted}, "
        f"scatter_dims_to_operand_dims = {inserted}, index_vector_dim = {depth}>, unique_indices = false"
    )
    return b.emit_many("stablehlo.scatter", [x, places, updates], [(x.element, x.dims)], properties, [body])[
        0
    ]


@legalizes(TopK=24)
def top_k(n: Site) -> Results:
    x, b = n[0], n.b
    count = n.int("k") if n.has("k") else int(n.known(1, "k").reshape(-1)[0])
    axis = n.axis(n.int("axis", -1), x.rank)
    if not 0 <= count <= x.dims[axis]:
        n.invalid(f"k = {count} of axis {axis} of shape {list(x.dims)}")
    operands = [x, b.iota("i64", x.dims, axis)]
    names = [b.parameter(o.element, ()) for o in operands for _ in range(2)]
    order = "GT" if n.int("largest", 1) else "LT"
    body = b.region(names, lambda: [b.compare(order, names[0], names[1])])
    properties = f"dimension = {axis} : i64, is_stable = true"
    kinds = [(o.element, o.dims) for o in operands]
    return [
        b.along(y, axis, 0, count) for y in b.emit_many("stablehlo.sort", operands, kinds, properties, [body])
    ]


@legalizes(ReverseSequence=28)
def reverse_sequence(n: Site) -> Value:
    x, b = n[0], n.b
    batch, time = n.int("batch_axis", 1), n.int("time_axis", 0)
    lengths = b.broadcast_in_dim(b.convert(n[1], "i64"), [batch], x.dims)
    step = b.iota("i64", x.dims, time)
    turned = b.scalar("subtract", b.binary("subtract", lengths, step), 1)
    source = b.select(b.compare("LT", step, lengths), turned, step)
    everything = list(range(x.rank))
    numbers = (
        f"collapsed_slice_dims = {everything}, start_index_map = {everything}, index_vector_dim = {x.rank}"
    )
    return _gathered(n, x, _places(n, source, time), numbers, [1] * x.rank, x.dims)


@legalizes(TensorScatter=24)
def tensor_scatter(n: Site) -> Value:
    """Write a run of updates along an axis from each batch's index on; what would lie beyond is left out."""
    b, x, update, starts = n.b, n[0], n[1], n.get(2)
    axis, mode = n.axis(n.int("axis", -2), x.rank), n.text("mode", "linear")
    others = [d for i, d in enumerate(update.dims) if i != axis]
    if not axis or mode not in ("linear", "circular") or update.rank != x.rank:
        n.invalid(f"axis {axis} and mode {mode!r} of an update of shape {list(update.dims)}")
    if others != [d for i, d in enumerate(x.dims) if i != axis] or update.dims[axis] > x.dims[axis]:
        n.invalid(f"an update of shape {list(update.dims)} does not fit shape {list(x.dims)}")
    if 0 in update.dims:
        return x
    lines = (x.dims[0], x.dims[axis])
    source = b.iota("i64", lines, 1)
    if starts is not None:
        if starts.dims != x.dims[:1]:
            n.invalid(f"{list(starts.dims)} indices for {x.dims[0]} batches")
        source = b.binary("subtract", source, b.broadcast_in_dim(b.convert(starts, "i64"), [0], lines))
    if mode == "circular":
        source = b.scalar("remainder", source, x.dims[axis])
        source = b.select(b.compare_to("LT", source, 0), b.scalar("add", source, x.dims[axis]), source)
    last = update.dims[axis] - 1
    written = b.binary("and", b.compare_to("GE", source, 0), b.compare_to("LE", source, last))
    source = b.scalar("minimum", b.scalar("maximum", source, 0), last)
    numbers = (
        f"offset_dims = {[i for i in range(x.rank) if i not in (0, axis)]}, "
        f"collapsed_slice_dims = [{axis}], operand_batching_dims = [0], start_indices_batching_dims = [0], "
        f"start_index_map = [{axis}], index_vector_dim = 2"
    )
    sizes = [1 if i in (0, axis) else d for i, d in enumerate(x.dims)]
    new = _gathered(n, update, b.reshape(source, (*lines, 1)), numbers, sizes, x.dims)
    return b.select(b.broadcast_in_dim(written, [0, axis], x.dims), new, x)

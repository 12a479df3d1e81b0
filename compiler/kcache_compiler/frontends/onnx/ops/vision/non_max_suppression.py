"""NonMaxSuppression: boxes by falling score, but those that overlap one that was selected before."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.emitter import Value, known
from kcache_compiler.frontends.onnx.ops.counted import chosen, coordinates, ordered, with_count
from kcache_compiler.frontends.onnx.ops.sequence.loops import slice_at, turns
from kcache_compiler.frontends.onnx.site import Site, legalizes


@legalizes(NonMaxSuppression=11)
def non_max_suppression(n: Site) -> Value:
    """Return ``i64[most, 3]`` of (batch, class, box), counted along axis 0."""
    b, boxes, scores = n.b, n[0], n[1]
    fits = boxes.rank == 3 == scores.rank and boxes.dims[2] == 4
    if not fits or boxes.dims[:2] != (scores.dims[0], scores.dims[2]):
        n.invalid(f"boxes of shape {list(boxes.dims)} and scores of shape {list(scores.dims)}")
    batches, classes, count = scores.dims
    limit = n.get(2)
    none = limit is None or (limit.known is not None and limit.known.reshape(-1)[0] <= 0)
    if none or not math.prod(scores.dims):
        return known(np.zeros((0, 3), np.int64))
    # Position in the order of scores, batch, class: a turn of the loop reads one position.
    dims = (count, batches, classes)
    values = b.transpose(scores, [2, 0, 1])
    ranks = b.select(b.compare("NE", values, values), b.full(-math.inf, values.element, dims), values)
    edges = [b.broadcast_in_dim(edge, [1, 0], dims) for edge in _edges(n, boxes)]
    index, values, *edges = ordered(b, [b.iota("i64", dims, 0), values, *edges], ranks, "GT")
    kept = _kept(n, values, edges)
    size = math.prod(dims)
    batch, group, _ = coordinates(b, (batches, classes, count))
    box = b.reshape(b.transpose(index, [1, 2, 0]), (size,))
    columns, number = chosen(b, b.reshape(b.transpose(kept, [1, 2, 0]), (size,)), batch, group, box)
    rows = [b.reshape(column, (size, 1)) for column in columns]
    return with_count(b.concatenate(rows, 1), 0, number)


def _edges(n: Site, boxes: Value) -> list[Value]:
    """Return the least and greatest y and the least and greatest x of boxes, each ``[batches, boxes]``."""
    b = n.b
    parts = [b.reshape(b.along(boxes, 2, i, i + 1), boxes.dims[:2]) for i in range(4)]
    if not n.int("center_point_box", 0):
        corners = (parts[0], parts[2]), (parts[1], parts[3])
        return [b.binary(op, *pair) for pair in corners for op in ("minimum", "maximum")]
    halves = [b.scalar("divide", part, 2) for part in parts[2:]]
    middles = (parts[1], halves[1]), (parts[0], halves[0])
    return [b.binary(op, *pair) for pair in middles for op in ("subtract", "add")]


def _kept(n: Site, values: Value, edges: list[Value]) -> Value:
    """Return which boxes are selected: ``i1`` by position in the order of scores, batch and class."""
    b, dims = n.b, values.dims
    most, overlap, threshold = n[2], n.get(3), n.get(4)
    most = b.reshape(most, ())
    overlap = b.full(0, edges[0].element) if overlap is None else b.reshape(overlap, ())
    out = b.full(False, "i1", dims)
    if threshold is not None:
        above = b.compare("GT", values, b.reshape(threshold, ()))
        out = b.unary("not", above)
    sides = [b.binary("subtract", edges[i + 1], edges[i]) for i in (0, 2)]
    areas = b.binary("multiply", sides[1], sides[0])
    inputs = [b.iota("i64", dims[:1], 0), *edges, areas]

    def turn(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        gone, number = state
        at, *own = slices
        free = b.unary("not", slice_at(b, gone, at, dims[0], back=False))
        selected = b.binary("and", free, b.compare("LT", number, most))
        hit = _overlaps(b, own, [*edges, areas], overlap)
        gone = b.binary("or", gone, b.binary("and", hit, selected))
        return [gone, b.binary("add", number, b.convert(selected, "i64"))], [selected]

    start = [out, b.full(0, "i64", dims[1:])]
    _, (kept,) = turns(b, dims[0], start, [(value, False) for value in inputs], turn)
    return kept


def _overlaps(b: Build, own: list[Value], others: list[Value], least: Value) -> Value:
    """Whether boxes share more than ``least`` of the union with the box ``own`` of their class."""
    low_y, high_y, low_x, high_x, area = own
    spans = [
        b.binary(
            "subtract", b.binary("minimum", others[high], one_high), b.binary("maximum", others[low], one_low)
        )
        for low, high, one_low, one_high in ((0, 1, low_y, high_y), (2, 3, low_x, high_x))
    ]
    shared = b.binary("multiply", spans[1], spans[0])
    union = b.binary("subtract", b.binary("add", area, others[4]), shared)
    some = [b.compare_to("GT", span, 0) for span in (*spans, shared, others[4], union)]
    whole = b.compare("GT", b.binary("divide", shared, union), least)
    whole = b.binary("and", whole, b.compare_to("GT", area, 0))
    for condition in some:
        whole = b.binary("and", whole, condition)
    return whole

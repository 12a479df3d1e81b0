"""NonMaxSuppression: selects boxes in order of score, except those that overlap a selected one."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.data_dependent import (
    element_coordinates,
    partition_by_mask,
    sort_by_key,
    with_data_dependent_dim,
)
from kcache_compiler.frontends.onnx.emitter import Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.sequence.scan_loop import emit_scan_loop, slice_at


@legalize(NonMaxSuppression=11)
def non_max_suppression(n: OnnxNode) -> Value:
    """Return ``i64[most, 3]`` of (batch, class, box), with a data-dependent size along axis 0."""
    b, boxes, scores = n.b, n[0], n[1]
    is_valid = boxes.rank == 3 == scores.rank and boxes.dims[2] == 4
    if not is_valid or boxes.dims[:2] != (scores.dims[0], scores.dims[2]):
        n.invalid(f"boxes of shape {list(boxes.dims)} and scores of shape {list(scores.dims)}")
    batches, classes, count = scores.dims
    limit = n.get(2)
    selects_none = limit is None or (limit.constant is not None and limit.constant.reshape(-1)[0] <= 0)
    if selects_none or not math.prod(scores.dims):
        return constant_value(np.zeros((0, 3), np.int64))
    # Axes: rank by score, batch, class. An iteration of the loop reads one rank.
    dims = (count, batches, classes)
    values = b.transpose(scores, [2, 0, 1])
    ranks = b.select(b.compare("NE", values, values), b.full(-math.inf, values.element, dims), values)
    edges = [b.broadcast_in_dim(edge, [1, 0], dims) for edge in _box_edges(n, boxes)]
    index, values, *edges = sort_by_key(b, [b.iota("i64", dims, 0), values, *edges], ranks, "GT")
    selected = _select(n, values, edges)
    size = math.prod(dims)
    batch, group, _ = element_coordinates(b, (batches, classes, count))
    box = b.reshape(b.transpose(index, [1, 2, 0]), (size,))
    columns, selected_count = partition_by_mask(
        b, b.reshape(b.transpose(selected, [1, 2, 0]), (size,)), batch, group, box
    )
    rows = [b.reshape(column, (size, 1)) for column in columns]
    return with_data_dependent_dim(b.concatenate(rows, 1), 0, selected_count)


def _box_edges(n: OnnxNode, boxes: Value) -> list[Value]:
    """Return the smallest and largest y and x of boxes, each ``[batches, boxes]``."""
    b = n.b
    columns = [b.reshape(b.slice_axis(boxes, 2, i, i + 1), boxes.dims[:2]) for i in range(4)]
    if not n.int("center_point_box", 0):
        corners = (columns[0], columns[2]), (columns[1], columns[3])
        return [b.binary(op, *pair) for pair in corners for op in ("minimum", "maximum")]
    half_sizes = [b.scalar("divide", column, 2) for column in columns[2:]]
    centers = (columns[1], half_sizes[1]), (columns[0], half_sizes[0])
    return [b.binary(op, *pair) for pair in centers for op in ("subtract", "add")]


def _select(n: OnnxNode, values: Value, edges: list[Value]) -> Value:
    """Return the selected boxes, ``i1`` by rank, batch and class."""
    b, dims = n.b, values.dims
    limit, overlap, threshold = n[2], n.get(3), n.get(4)
    limit = b.reshape(limit, ())
    overlap = b.full(0, edges[0].element) if overlap is None else b.reshape(overlap, ())
    suppressed = b.full(False, "i1", dims)
    if threshold is not None:
        is_above = b.compare("GT", values, b.reshape(threshold, ()))
        suppressed = b.unary("not", is_above)
    sides = [b.binary("subtract", edges[i + 1], edges[i]) for i in (0, 2)]
    areas = b.binary("multiply", sides[1], sides[0])
    inputs = [b.iota("i64", dims[:1], 0), *edges, areas]

    def iteration(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        dropped, count = state
        rank, *box = slices
        is_free = b.unary("not", slice_at(b, dropped, rank, dims[0], from_end=False))
        selected = b.binary("and", is_free, b.compare("LT", count, limit))
        overlapping = _overlaps(b, box, [*edges, areas], overlap)
        dropped = b.binary("or", dropped, b.binary("and", overlapping, selected))
        return [dropped, b.binary("add", count, b.convert(selected, "i64"))], [selected]

    initial = [suppressed, b.full(0, "i64", dims[1:])]
    _, (is_selected,) = emit_scan_loop(b, dims[0], initial, [(value, False) for value in inputs], iteration)
    return is_selected


def _overlaps(b: Builder, box: list[Value], others: list[Value], threshold: Value) -> Value:
    """Return which boxes overlap ``box`` by more than ``threshold`` (intersection over union)."""
    low_y, high_y, low_x, high_x, area = box
    spans = [
        b.binary(
            "subtract", b.binary("minimum", others[high], box_high), b.binary("maximum", others[low], box_low)
        )
        for low, high, box_low, box_high in ((0, 1, low_y, high_y), (2, 3, low_x, high_x))
    ]
    intersection = b.binary("multiply", spans[1], spans[0])
    union = b.binary("subtract", b.binary("add", area, others[4]), intersection)
    conditions = [b.compare_to("GT", span, 0) for span in (*spans, intersection, others[4], union)]
    result = b.compare("GT", b.binary("divide", intersection, union), threshold)
    result = b.binary("and", result, b.compare_to("GT", area, 0))
    for condition in conditions:
        result = b.binary("and", result, condition)
    return result

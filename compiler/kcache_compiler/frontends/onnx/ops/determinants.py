"""Det, by Gaussian elimination with partial pivoting."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.reductions import extreme_index
from kcache_compiler.frontends.onnx.ops.sequence.scan_loop import emit_scan_loop
from kcache_compiler.frontends.onnx.ops.vision.sampling import gather_last_axis


@legalize(Det=22)
def det(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    if x.rank < 2 or x.dims[-1] != x.dims[-2] or x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, not square matrices of floats")
    batch, size = math.prod(x.dims[:-2]), x.dims[-1]
    if not batch or not size:
        return b.full(1, x.element, x.dims[:-2])
    wide = b.convert(x, x.element if x.element in ("f32", "f64") else "f32")
    matrices = b.reshape(wide, (batch, size, size))

    def iteration(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        return _eliminate_column(n, state[0], state[1], slices[0]), []

    ones = b.full(1, wide.element, (batch,))
    final, _ = emit_scan_loop(b, size, [matrices, ones], [(b.iota("i64", (size,), 0), False)], iteration)
    return b.convert(b.reshape(final[1], x.dims[:-2]), x.element)


def _eliminate_column(n: OnnxNode, x: Value, product: Value, step: Value) -> list[Value]:
    """Swap the row with the largest element of a column to the diagonal and clear the elements below."""
    b, (batch, size, _) = n.b, x.dims
    column = _row_or_column(b, x, b.broadcast_in_dim(step, [], (batch, 1)), columns=True)
    row = b.iota("i64", (batch, size), 1)
    diagonal = b.broadcast_in_dim(step, [], (batch, size))
    below = b.compare("GT", row, diagonal)
    is_candidate = b.compare("GE", row, diagonal)
    magnitudes = b.select(is_candidate, b.unary("abs", column), b.full(-1, x.element, column.dims))
    pivot_index = extreme_index(n, magnitudes, 1, largest=True, last=False)
    pivot_index = b.binary("minimum", pivot_index, constant_value(np.asarray(size - 1, np.int64)))
    pivot_row = b.reshape(pivot_index, (batch, 1))
    pivot_values, diagonal_values = (
        _row_or_column(b, x, pivot_row),
        _row_or_column(b, x, b.broadcast_in_dim(step, [], (batch, 1))),
    )
    wide = b.broadcast_in_dim(diagonal_values, [0, 2], x.dims)
    is_pivot_row = b.broadcast_in_dim(b.compare("EQ", row, pivot_row), [0, 1], x.dims)
    x = b.select(is_pivot_row, wide, x)
    pivot = b.reshape(
        gather_last_axis(b, b.reshape(pivot_values, (batch, 1, size)), _broadcast_step(b, step, batch)),
        (batch,),
    )
    swapped = b.compare("NE", pivot_index, b.broadcast_in_dim(step, [], (batch,)))
    product = b.binary("multiply", product, b.select(swapped, b.unary("negate", pivot), pivot))
    column_values = _row_or_column(b, x, _broadcast_step(b, step, batch), columns=True)
    is_singular = b.compare_to("EQ", pivot, 0)
    divisor = b.select(is_singular, b.full(1, x.element, pivot.dims), pivot)
    factor = b.binary("divide", column_values, b.broadcast_in_dim(divisor, [0], column_values.dims))
    factor = b.select(below, factor, b.full(0, x.element, factor.dims))
    subtrahend = b.binary(
        "multiply",
        b.broadcast_in_dim(factor, [0, 1], x.dims),
        b.broadcast_in_dim(pivot_values, [0, 2], x.dims),
    )
    cleared = b.select(b.broadcast_in_dim(below, [0, 1], x.dims), b.binary("subtract", x, subtrahend), x)
    return [cleared, product]


def _broadcast_step(b: Builder, step: Value, batch: int) -> Value:
    return b.broadcast_in_dim(step, [], (batch, 1))


def _row_or_column(b: Builder, x: Value, index: Value, columns: bool = False) -> Value:
    """Return a row or column of each matrix, by indices of shape (batch, 1)."""
    by_row = x if columns else b.transpose(x, [0, 2, 1])
    return b.reshape(gather_last_axis(b, by_row, index), x.dims[:2])

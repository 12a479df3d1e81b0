"""Determinants, by elimination with the largest pivot of each column."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, known
from kcache_compiler.frontends.onnx.ops.reductions import arg_extreme
from kcache_compiler.frontends.onnx.ops.sequence.loops import turns
from kcache_compiler.frontends.onnx.ops.vision.sampling import gathered
from kcache_compiler.frontends.onnx.site import Site, legalizes


@legalizes(Det=22)
def det(n: Site) -> Value:
    b, x = n.b, n[0]
    if x.rank < 2 or x.dims[-1] != x.dims[-2] or x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, not square matrices of floats")
    batch, size = math.prod(x.dims[:-2]), x.dims[-1]
    if not batch or not size:
        return b.full(1, x.element, x.dims[:-2])
    wide = b.convert(x, x.element if x.element in ("f32", "f64") else "f32")
    matrices = b.reshape(wide, (batch, size, size))

    def turn(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        return _eliminated(n, state[0], state[1], slices[0]), []

    one = b.full(1, wide.element, (batch,))
    last, _ = turns(b, size, [matrices, one], [(b.iota("i64", (size,), 0), False)], turn)
    return b.convert(b.reshape(last[1], x.dims[:-2]), x.element)


def _eliminated(n: Site, x: Value, product: Value, step: Value) -> list[Value]:
    """Bring the largest element of a column up to its diagonal and clear what is below."""
    b, (batch, size, _) = n.b, x.dims
    column = _line(b, x, b.broadcast_in_dim(step, [], (batch, 1)), columns=True)
    row = b.iota("i64", (batch, size), 1)
    here = b.broadcast_in_dim(step, [], (batch, size))
    below = b.compare("GT", row, here)
    open_ = b.compare("GE", row, here)
    sizes = b.select(open_, b.unary("abs", column), b.full(-1, x.element, column.dims))
    chosen = arg_extreme(n, sizes, 1, largest=True, last=False)
    chosen = b.binary("minimum", chosen, known(np.asarray(size - 1, np.int64)))
    place = b.reshape(chosen, (batch, 1))
    top, old = _line(b, x, place), _line(b, x, b.broadcast_in_dim(step, [], (batch, 1)))
    wide = b.broadcast_in_dim(old, [0, 2], x.dims)
    moved = b.broadcast_in_dim(b.compare("EQ", row, place), [0, 1], x.dims)
    x = b.select(moved, wide, x)
    pivot = b.reshape(gathered(b, b.reshape(top, (batch, 1, size)), _at(b, step, batch)), (batch,))
    swapped = b.compare("NE", chosen, b.broadcast_in_dim(step, [], (batch,)))
    product = b.binary("multiply", product, b.select(swapped, b.unary("negate", pivot), pivot))
    left = _line(b, x, _at(b, step, batch), columns=True)
    nothing = b.compare_to("EQ", pivot, 0)
    divisor = b.select(nothing, b.full(1, x.element, pivot.dims), pivot)
    factor = b.binary("divide", left, b.broadcast_in_dim(divisor, [0], left.dims))
    factor = b.select(below, factor, b.full(0, x.element, factor.dims))
    less = b.binary(
        "multiply", b.broadcast_in_dim(factor, [0, 1], x.dims), b.broadcast_in_dim(top, [0, 2], x.dims)
    )
    cleared = b.select(b.broadcast_in_dim(below, [0, 1], x.dims), b.binary("subtract", x, less), x)
    return [cleared, product]


def _at(b: Build, step: Value, batch: int) -> Value:
    return b.broadcast_in_dim(step, [], (batch, 1))


def _line(b: Build, x: Value, place: Value, columns: bool = False) -> Value:
    """Return a row or column of each matrix, by (batch, 1) places."""
    by_row = x if columns else b.transpose(x, [0, 2, 1])
    return b.reshape(gathered(b, by_row, place), x.dims[:2])

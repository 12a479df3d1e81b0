"""Reductions, ArgMax and ArgMin, and cumulative reductions."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.onnx.builder import Window
from kcache_compiler.frontends.onnx.emitter import FLOATS, HALF_PRECISION, Value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize

_VERSIONS = {
    "ReduceL1": 18,
    "ReduceL2": 18,
    "ReduceLogSum": 28,
    "ReduceLogSumExp": 28,
    "ReduceMax": 20,
    "ReduceMean": 18,
    "ReduceMin": 20,
    "ReduceProd": 18,
    "ReduceSum": 13,
    "ReduceSumSquare": 18,
}
_COMBINERS = {"ReduceSum": "add", "ReduceProd": "multiply", "ReduceMax": "maximum", "ReduceMin": "minimum"}


@legalize(**_VERSIONS)
def reduce(n: OnnxNode) -> Value:
    x = n[0]
    axes = n.axes(x.rank)
    if not axes:
        if n.int("noop_with_empty_axes", 0):
            return x if n.op in _COMBINERS or n.op == "ReduceMean" else _reduce(n, x, [], keep=False)
        axes = list(range(x.rank))
    return _reduce(n, x, axes, keep=bool(n.int("keepdims", 1)))


def _reduce(n: OnnxNode, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """Emit a reduction of ``x`` over ``axes``.

    Elements of 16 bits are reduced in f32, except minima and maxima.
    """
    b, op = n.b, n.op
    if op in _COMBINERS:
        if x.element == "i1":
            return b.reduce("or" if op == "ReduceMax" else "and", x, axes, keep)
        return b.reduce(_COMBINERS[op], x, axes, keep)
    if op == "ReduceMean":
        return b.mean(x, axes, keep)
    if x.element in HALF_PRECISION:
        return b.convert(_reduce(n, b.convert(x, "f32"), axes, keep), x.element)
    if op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp") and x.element not in FLOATS:
        n.unsupported(f"roots and logarithms of {x.element}: cast its input to floats")
    if op == "ReduceL1":
        return b.reduce("add", x if x.element.startswith("ui") else b.unary("abs", x), axes, keep)
    if op in ("ReduceL2", "ReduceSumSquare"):
        total = b.reduce("add", b.binary("multiply", x, x), axes, keep)
        return b.unary("sqrt", total) if op == "ReduceL2" else total
    if op == "ReduceLogSum":
        return b.unary("log", b.reduce("add", x, axes, keep))
    if not axes:
        return x
    # log(sum(exp(x))), shifted by the maximum if it is finite.
    maximum = b.reduce("maximum", x, axes, keep=True)
    finite = b.select(b.unary("is_finite", maximum, "i1"), maximum, b.full(0, maximum.element, maximum.dims))
    total = b.reduce("add", b.unary("exponential", b.binary("subtract", x, finite)), axes, keep)
    shift = finite if keep else b.reshape(finite, total.dims)
    return b.binary("add", b.unary("log", total), shift)


@legalize(ArgMax=13, ArgMin=13)
def arg(n: OnnxNode) -> Value:
    x = n[0]
    axis = n.axis(n.int("axis", 0), x.rank)
    last = bool(n.int("select_last_index", 0))
    index = extreme_index(n, x, axis, largest=n.op == "ArgMax", last=last)
    return n.b.restore_axes(index, x.dims, [axis]) if n.int("keepdims", 1) else index


def extreme_index(n: OnnxNode, x: Value, axis: int, largest: bool, last: bool) -> Value:
    """Return the index of the largest or smallest element along an axis: the first such one, or the last.

    NaN exceeds all values, as in the standard's reference.
    """
    b = n.b
    extreme = b.reduce("maximum" if largest else "minimum", x, [axis], keep=True)
    index = b.iota("i64", x.dims, axis)
    outside = b.full(-1 if last else x.dims[axis], "i64", x.dims)
    is_extreme = b.compare("EQ", x, extreme)
    if x.element in FLOATS:
        is_extreme = b.binary("or", is_extreme, b.compare("NE", x, x))
    candidates = b.select(is_extreme, index, outside)
    return b.reduce("maximum" if last else "minimum", candidates, [axis])


@legalize(CumSum=14, CumProd=26)
def cumulative(n: OnnxNode) -> Value:
    """Lower ``CumSum`` and ``CumProd`` along a constant axis to a window over the whole axis.

    ``exclusive`` leaves out the element itself, ``reverse`` starts at the end. The result has the shape of
    the input.
    """
    b, x = n.b, n[0]
    op, identity = ("add", 0) if n.op == "CumSum" else ("multiply", 1)
    axis = n.axis(n.numbers(1, "axis")[0], x.rank)
    from_end = bool(n.int("reverse", 0))
    if n.int("exclusive", 0):
        low, high = [0] * x.rank, [0] * x.rank
        (high if from_end else low)[axis] = 1
        (low if from_end else high)[axis] = -1
        x = b.pad(x, b.full(identity, x.element), low, high)
    ones = [1] * x.rank
    sizes, pads = list(ones), [(0, 0)] * x.rank
    sizes[axis] = max(1, x.dims[axis])
    pads[axis] = (0, sizes[axis] - 1) if from_end else (sizes[axis] - 1, 0)
    return b.window(op, x, Window(sizes, ones, ones, pads))

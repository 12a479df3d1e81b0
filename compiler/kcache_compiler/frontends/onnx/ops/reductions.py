"""Reductions, extremes by index, and running sums."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.onnx.builder import Window
from kcache_compiler.frontends.onnx.emitter import FLOATS, HALVES, Value
from kcache_compiler.frontends.onnx.site import Site, legalizes

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
_PLAIN = {"ReduceSum": "add", "ReduceProd": "multiply", "ReduceMax": "maximum", "ReduceMin": "minimum"}


@legalizes(**_VERSIONS)
def reduce(n: Site) -> Value:
    x = n[0]
    axes = n.axes(x.rank)
    if not axes:
        if n.int("noop_with_empty_axes", 0):
            return x if n.op in _PLAIN or n.op == "ReduceMean" else _reduced(n, x, [], keep=False)
        axes = list(range(x.rank))
    return _reduced(n, x, axes, keep=bool(n.int("keepdims", 1)))


def _reduced(n: Site, x: Value, axes: Sequence[int], keep: bool) -> Value:
    b, op = n.b, n.op
    if op in _PLAIN:
        if x.element == "i1":
            return b.reduce("or" if op == "ReduceMax" else "and", x, axes, keep)
        return b.reduce(_PLAIN[op], x, axes, keep)
    if op == "ReduceMean":
        return b.mean(x, axes, keep)
    if x.element in HALVES:
        return b.convert(_reduced(n, b.convert(x, "f32"), axes, keep), x.element)
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
    # log(sum(exp(x))), shifted by the greatest where that is finite.
    top = b.reduce("maximum", x, axes, keep=True)
    finite = b.select(b.unary("is_finite", top, "i1"), top, b.full(0, top.element, top.dims))
    total = b.reduce("add", b.unary("exponential", b.binary("subtract", x, finite)), axes, keep)
    shift = finite if keep else b.reshape(finite, total.dims)
    return b.binary("add", b.unary("log", total), shift)


@legalizes(ArgMax=13, ArgMin=13)
def arg(n: Site) -> Value:
    x = n[0]
    axis = n.axis(n.int("axis", 0), x.rank)
    last = bool(n.int("select_last_index", 0))
    index = arg_extreme(n, x, axis, largest=n.op == "ArgMax", last=last)
    return n.b.kept(index, x.dims, [axis]) if n.int("keepdims", 1) else index


def arg_extreme(n: Site, x: Value, axis: int, largest: bool, last: bool) -> Value:
    """Return the index of the greatest or least along an axis: the first such one, or the last.

    NaN is beyond all numbers, as the standard's reference has it.
    """
    b = n.b
    extreme = b.reduce("maximum" if largest else "minimum", x, [axis], keep=True)
    index = b.iota("i64", x.dims, axis)
    outside = b.full(-1 if last else x.dims[axis], "i64", x.dims)
    chosen = b.compare("EQ", x, extreme)
    if x.element in FLOATS:
        chosen = b.binary("or", chosen, b.compare("NE", x, x))
    here = b.select(chosen, index, outside)
    return b.reduce("maximum" if last else "minimum", here, [axis])


@legalizes(CumSum=14, CumProd=26)
def running(n: Site) -> Value:
    b, x = n.b, n[0]
    op, first = ("add", 0) if n.op == "CumSum" else ("multiply", 1)
    axis = n.axis(n.numbers(1, "axis")[0], x.rank)
    back = bool(n.int("reverse", 0))
    if n.int("exclusive", 0):
        low, high = [0] * x.rank, [0] * x.rank
        (high if back else low)[axis] = 1
        (low if back else high)[axis] = -1
        x = b.pad(x, b.full(first, x.element), low, high)
    ones = [1] * x.rank
    sizes, pads = list(ones), [(0, 0)] * x.rank
    sizes[axis] = max(1, x.dims[axis])
    pads[axis] = (0, sizes[axis] - 1) if back else (sizes[axis] - 1, 0)
    return b.window(op, x, Window(sizes, ones, ones, pads))

"""One graph and its meaning in NumPy for every operation of the graph format, and more for its attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special as sp

from tests.graph.running import Build

_RNG = np.random.default_rng(20)


@dataclass(frozen=True)
class Case:
    """``build`` on inputs like ``arrays`` is what ``expected`` makes of them.

    ``interpreted``: unless the interpreter lacks it, or total order.
    """

    op: str
    build: Build
    arrays: Sequence[np.ndarray]
    expected: Callable[..., Any]
    tolerance: float = 2e-6
    variant: str = ""
    interpreted: bool = True

    @property
    def id(self) -> str:
        return f"{self.op}-{self.variant}" if self.variant else self.op


def floats(*shape: int, low: float = -3.0, high: float = 3.0, dtype: str = "f4") -> np.ndarray:
    return _RNG.uniform(low, high, shape).astype(dtype)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: str = "i4") -> np.ndarray:
    return _RNG.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> np.ndarray:
    return _RNG.integers(0, 2, shape).astype(bool)


def complexes(*shape: int) -> np.ndarray:
    return (floats(*shape) + 1j * floats(*shape)).astype(np.complex64)


def _method(name: str) -> Build:
    return lambda g, *xs: getattr(g, name)(*xs)


def all_cases() -> list[Case]:
    """Every case, in a stable order."""
    families = (_unary, _binary, _dtypes, _creation, _shapes, _parts, _indexing, _reductions, _products)
    later = (_windows, _sorting, _linear, _composites)
    return [case for family in (*families, *later) for case in family()]


def _unary() -> list[Case]:
    x, positive, unit = floats(3, 5), floats(3, 5, low=0.1), floats(3, 5, low=-0.95, high=0.95)
    functions: dict[str, tuple[np.ndarray, Callable[..., Any]]] = {
        "abs": (x, np.abs),
        "negate": (x, np.negative),
        "sign": (x, np.sign),
        "exp": (x, np.exp),
        "expm1": (x, np.expm1),
        "log": (positive, np.log),
        "log1p": (positive, np.log1p),
        "sqrt": (positive, np.sqrt),
        "rsqrt": (positive, lambda v: 1 / np.sqrt(v)),
        "cbrt": (x, np.cbrt),
        "sin": (x, np.sin),
        "cos": (x, np.cos),
        "tan": (unit, np.tan),
        "sinh": (x, np.sinh),
        "cosh": (x, np.cosh),
        "tanh": (x, np.tanh),
        "asin": (unit, np.arcsin),
        "acos": (unit, np.arccos),
        "atan": (x, np.arctan),
        "asinh": (x, np.arcsinh),
        "acosh": (positive + 1, np.arccosh),
        "atanh": (unit, np.arctanh),
        "logistic": (x, sp.expit),
        "erf": (x, sp.erf),
        "erfc": (unit, sp.erfc),
        "erf_inv": (unit, sp.erfinv),
        "lgamma": (positive + 3, sp.gammaln),
        "digamma": (positive + 3, sp.digamma),
        "floor": (x, np.floor),
        "ceil": (x, np.ceil),
        "round": (
            np.array([-2.5, -0.5, 0.4, 0.5, 1.5, 2.5], "f4"),
            lambda v: np.trunc(v + np.copysign(0.5, v)),
        ),
        "round_even": (np.array([-2.5, -0.5, 0.4, 0.5, 1.5, 2.5], "f4"), np.round),
        "square": (x, np.square),
        "reciprocal": (positive, np.reciprocal),
        "is_finite": (np.array([1, np.inf, np.nan], "f4"), np.isfinite),
        "is_inf": (np.array([1, -np.inf, np.nan], "f4"), np.isinf),
        "is_nan": (np.array([1, np.inf, np.nan], "f4"), np.isnan),
        "not": (ints(7), np.invert),
        "popcnt": (ints(7, low=0), lambda v: np.array([int(i).bit_count() for i in v], "i4")),
        "clz": (ints(7, low=1), lambda v: np.array([32 - int(i).bit_length() for i in v], "i4")),
        "real": (complexes(4), np.real),
        "imag": (complexes(4), np.imag),
        "conj": (complexes(4), np.conj),
    }
    cases = [
        Case(name, _method({"not": "not_"}.get(name, name)), [x], function, 5e-6)
        for name, (x, function) in functions.items()
    ]
    return [
        *cases,
        Case("abs", _method("abs"), [complexes(4)], np.abs, variant="complex"),
        Case("not", _method("not_"), [bools(5)], np.logical_not, variant="i1"),
    ]


def _binary() -> list[Case]:
    x, y = floats(3, 5), floats(5, low=0.5)
    i, j = ints(4, 1), ints(3, low=1)
    bits = ints(6, low=0, high=9)
    functions: dict[str, tuple[np.ndarray, np.ndarray, Callable[..., Any]]] = {
        "add": (x, y, np.add),
        "subtract": (x, y, np.subtract),
        "multiply": (x, y, np.multiply),
        "divide": (x, y, np.divide),
        "remainder": (i, j, np.fmod),
        "power": (floats(3, 5, low=0.1), y, np.power),
        "maximum": (x, y, np.maximum),
        "minimum": (x, y, np.minimum),
        "atan2": (x, y, np.arctan2),
        "and": (i, j, np.bitwise_and),
        "or": (i, j, np.bitwise_or),
        "xor": (i, j, np.bitwise_xor),
        "shift_left": (bits, ints(6, low=0, high=5), np.left_shift),
        "shift_right_arithmetic": (-bits, ints(6, low=0, high=5), np.right_shift),
        "shift_right_logical": (bits, ints(6, low=0, high=5), np.right_shift),
        "complex": (x, y, lambda a, b: a + 1j * b),
    }
    names = {"and": "and_", "or": "or_"}
    cases = [
        Case(name, _method(names.get(name, name)), [a, b], function, 5e-6)
        for name, (a, b, function) in functions.items()
    ]
    orders = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    some, special = ints(4, 5, low=0, high=3, dtype="u1"), np.array([0.0, -0.0, np.nan, 1], "f4")
    cases += [
        Case("compare", lambda g, a, b, d=d: g.compare(a, b, d), [some, some[:1]], f, variant=d)
        for d, f in orders.items()
    ]
    return [
        *cases,
        Case(
            "compare",
            lambda g, a, b: g.compare(g.expand_dims(a, [1]), b, "le", total_order=True),
            [special, special],
            lambda a, b: np.array([[_key(p) <= _key(q) for q in b] for p in a]),
            variant="total",
            interpreted=False,
        ),
        Case(
            "divide", _method("divide"), [i, j], lambda a, b: np.trunc(a / b).astype("i4"), variant="integers"
        ),
        Case("select", _method("select"), [bools(3, 1), x, y], np.where),
        Case(
            "clamp",
            _method("clamp"),
            [np.array(-1, "f4"), x, y],
            lambda low, v, high: np.minimum(np.maximum(v, low), high),
        ),
    ]


def _key(value: np.float32) -> int:
    """IEEE 754's total order as integers."""
    bits = int(np.float32(value).view(np.int32))
    return bits if bits >= 0 else bits ^ 0x7FFFFFFF


def _dtypes() -> list[Case]:
    x = floats(4, 2)
    return [
        Case("convert", lambda g, v: g.convert(v, "i8"), [x], lambda v: v.astype("i1")),
        Case(
            "convert", lambda g, v: v.astype(np.float64), [ints(4)], lambda v: v.astype("f8"), variant="wider"
        ),
        Case(
            "convert", lambda g, v: v.astype("i1"), [ints(9, low=-1, high=2)], lambda v: v != 0, variant="i1"
        ),
        Case("bitcast", lambda g, v: g.bitcast(v, "ui32"), [x], lambda v: v.view("u4")),
        Case(
            "bitcast",
            lambda g, v: g.bitcast(v, "ui16"),
            [x],
            lambda v: v.view("u2").reshape(4, 2, 2),
            variant="narrower",
        ),
        Case("bitcast", lambda g, v: g.bitcast(v, "f64"), [x], lambda v: v.view("f8")[:, 0], variant="wider"),
        Case(
            "reduce_precision",
            lambda g, v: g.reduce_precision(v, 5, 10),
            [x],
            lambda v: v.astype("f2").astype("f4"),
        ),
    ]


def _creation() -> list[Case]:
    x, table = floats(3, 4), floats(3, 4, dtype="f8")
    big = floats(40, 30)
    return [
        Case("constant", lambda g, v: v + g.constant(table, "f32"), [x], lambda v: v + table.astype("f4")),
        Case("constant", lambda g, v: v + big, [floats(30)], lambda v: v + big, variant="lifted"),
        Case(
            "constant",
            lambda g, v: g.select(np.array([True, False, True]), v, g.constant(np.full((2, 3), 7, "i4"))),
            [ints(3)],
            lambda v: np.where([True, False, True], v, np.full((2, 3), 7)),
            variant="i1-and-splat",
        ),
        Case("full", lambda g, v: v + g.full(2.5, "f32", (3, 4)), [x], lambda v: v + 2.5),
        Case("scalar_like", lambda g, v: 1 - 2 * v, [x], lambda v: 1 - 2 * v),
        Case(
            "scalar_like",
            lambda g, v: g.minimum(v, float("-inf")),
            [x],
            lambda v: v * 0 - np.inf,
            variant="inf",
        ),
        Case(
            "iota",
            lambda g, v: v * g.iota("f32", (3, 4), axis=-1),
            [x],
            lambda v: v * np.arange(4, dtype="f4"),
        ),
        Case("size", lambda g, v: g.size(v, -1, "i64") + g.size(v, 0, "i64"), [x], lambda v: np.int64(7)),
    ]


def _shapes() -> list[Case]:
    x = floats(3, 1, 4)
    return [
        Case(
            "broadcast_to",
            lambda g, v: g.broadcast_to(v, (2, 3, 5, 4)),
            [x],
            lambda v: v + np.zeros((2, 3, 5, 4), "f4"),
        ),
        Case(
            "broadcast_in_dim",
            lambda g, v: g.broadcast_in_dim(v, (4, 2, 3), (2, 0)),
            [floats(3, 4)],
            lambda v: np.broadcast_to(v.T[:, None], (4, 2, 3)),
        ),
        Case("reshape", lambda g, v: v.reshape(2, -1), [x], lambda v: v.reshape(2, -1)),
        Case("expand_dims", lambda g, v: g.expand_dims(v, (0, -1)), [x], lambda v: v[None, ..., None]),
        Case("squeeze", lambda g, v: g.squeeze(v), [x], np.squeeze),
        Case(
            "squeeze", lambda g, v: g.squeeze(v, [1]), [floats(1, 1, 2)], lambda v: v[:, 0], variant="named"
        ),
        Case("transpose", lambda g, v: v.T, [floats(2, 3, 4)], np.transpose),
        Case(
            "transpose",
            lambda g, v: g.transpose(v, (1, -1, 0)),
            [floats(2, 3, 4)],
            lambda v: v.transpose(1, 2, 0),
            variant="named",
        ),
        Case("reverse", lambda g, v: g.reverse(v, [0, -1]), [floats(2, 3, 4)], lambda v: v[::-1, :, ::-1]),
        Case(
            "concatenate",
            lambda g, *vs: g.concatenate(*vs, axis=-1),
            [floats(2, 3), floats(2, 0), floats(2, 1)],
            lambda *vs: np.concatenate(vs, -1),
        ),
        Case(
            "stack",
            lambda g, *vs: g.stack(*vs, axis=1),
            [floats(2, 3), floats(2, 3)],
            lambda *vs: np.stack(vs, 1),
        ),
        Case("tile", lambda g, v: g.tile(v, (2, 3)), [floats(2, 2)], lambda v: np.tile(v, (2, 3))),
    ]


def _parts() -> list[Case]:
    x = floats(5, 6, 7)
    return [
        Case(
            "slice",
            lambda g, v: g.slice(v, (1, 0, 2), (4, 6, 7), (1, 2, 3)),
            [x],
            lambda v: v[1:4, 0:6:2, 2:7:3],
        ),
        Case("slice", lambda g, v: v[1:, ..., :-2], [x], lambda v: v[1:, ..., :-2], variant="basic"),
        Case("slice", lambda g, v: v[-2, None, ::2], [x], lambda v: v[-2, None, ::2], variant="integers"),
        Case("slice", lambda g, v: v[..., -1], [x], lambda v: v[..., -1], variant="last"),
        Case(
            "pad",
            lambda g, v: g.pad(v, low=(1, 0), high=(0, 2)),
            [floats(2, 3)],
            lambda v: np.pad(v, ((1, 0), (0, 2))),
        ),
        Case(
            "pad",
            lambda g, v: g.pad(v, g.constant(9, "f32"), low=(-1,), high=(1,), interior=(1,)),
            [floats(4)],
            lambda v: np.array([9, v[1], 9, v[2], 9, v[3], 9], "f4"),
            variant="interior",
        ),
    ]


def _indexing() -> list[Case]:
    x, rows = floats(5, 6), np.array([[4, 0], [2, 2]], "i4")
    columns = ints(5, 2, low=0, high=6)
    starts = [np.array(3, "i4"), np.array(1, "i4")]

    def add_rows(v: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        result = v.copy()
        np.add.at(result, i[:, 0], u)
        return result

    return [
        Case("take", lambda g, v, i: g.take(v, i), [x, rows], lambda v, i: v[i]),
        Case("take", lambda g, v, i: g.take(v, i, -1), [x, rows], lambda v, i: v[:, i], variant="last"),
        Case(
            "take_along_axis",
            lambda g, v, i: g.take_along_axis(v, i),
            [x, columns],
            lambda v, i: np.take_along_axis(v, i.astype("i8"), 1),
        ),
        Case("one_hot", lambda g, i: g.one_hot(i, 5), [rows], lambda i: np.eye(5, dtype="f4")[i]),
        Case(
            "dynamic_slice",
            lambda g, v, i, j: g.dynamic_slice(v, i, j, sizes=(2, 3)),
            [x, *starts],
            lambda v, i, j: v[3:5, 1:4],
        ),
        Case(
            "dynamic_update_slice",
            lambda g, v, u, i, j: g.dynamic_update_slice(v, u, i, j),
            [x, floats(2, 3), *starts],
            lambda v, u, i, j: np.vstack([v[:3], np.hstack([v[3:, :1], u, v[3:, 4:]])]),
        ),
        Case(
            "gather",
            lambda g, v, i: g.gather(
                v,
                i,
                offset_dims=(1,),
                collapsed_slice_dims=(0,),
                start_index_map=(0,),
                index_vector_dim=1,
                slice_sizes=(1, 4),
            ),
            [x, rows.reshape(4, 1)],
            lambda v, i: v[i[:, 0], :4],
        ),
        Case(
            "scatter",
            lambda g, v, i, u: g.scatter(
                v,
                i,
                u,
                kind="add",
                update_window_dims=(1,),
                inserted_window_dims=(0,),
                scatter_dims_to_operand_dims=(0,),
                index_vector_dim=1,
            ),
            [x, rows.reshape(4, 1), floats(4, 6)],
            add_rows,
        ),
    ]


def _reductions() -> list[Case]:
    x, i, b = floats(3, 4, 5), ints(3, 4, 5), bools(4, 6)
    ties = np.array([[1, 3, 3, 0], [np.nan, 9, np.nan, 2]], "f4")
    functions = {
        "sum": (x, np.sum),
        "product": (x, np.prod),
        "max": (x, np.max),
        "min": (x, np.min),
        "and": (i, np.bitwise_and.reduce),
        "or": (i, np.bitwise_or.reduce),
        "xor": (i, np.bitwise_xor.reduce),
    }
    cases = [
        Case(
            f"reduce_{name}",
            lambda g, v, name=name: getattr(g, f"reduce_{name}")(v, [0, -1]),
            [array],
            lambda v, f=f: f(v, axis=(0, 2)),
            5e-6,
        )
        for name, (array, f) in functions.items()
    ]
    cases += [
        Case("reduce_sum", lambda g, v: g.reduce_sum(v), [x], np.sum, 1e-5, "all"),
        Case("reduce_sum", lambda g, v: g.reduce_sum(v, []), [x], lambda v: v, variant="none"),
        Case(
            "reduce_max",
            lambda g, v: g.reduce_max(v, [1]),
            [floats(3, 0)],
            lambda v: np.full(3, -np.inf),
            variant="empty",
        ),
        Case(
            "reduce_min",
            lambda g, v: g.reduce_min(v, [1]),
            [ints(3, 0, dtype="i1")],
            lambda v: np.full(3, 127),
            variant="empty",
        ),
        Case(
            "reduce_and",
            lambda g, v: g.reduce_and(v, [1], keepdims=True),
            [b],
            lambda v: v.all(1, keepdims=True),
            variant="i1",
        ),
        Case("mean", lambda g, v: g.mean(v, [1], keepdims=True), [x], lambda v: v.mean(1, keepdims=True)),
        Case("variance", lambda g, v: g.variance(v, [0, 2]), [x], lambda v: v.var((0, 2)), 1e-5),
        Case(
            "variance", lambda g, v: g.variance(v, correction=1), [x], lambda v: v.var(ddof=1), 1e-5, "sample"
        ),
        Case(
            "logsumexp",
            lambda g, v: g.logsumexp(v * 99, [-1]),
            [x],
            lambda v: sp.logsumexp(v.astype("f8") * 99, -1),
            1e-5,
        ),
        Case("argmax", lambda g, v: g.argmax(v), [ties], lambda v: np.array([1, 0], "i4")),
        Case(
            "argmin",
            lambda g, v: g.argmin(v, 0, keepdims=True, dtype="i64"),
            [i[0]],
            lambda v: v.argmin(0)[None],
        ),
        Case("cumsum", lambda g, v: g.cumsum(v, 1), [x], lambda v: v.cumsum(1), 5e-6),
        Case(
            "cumsum",
            lambda g, v: g.cumsum(v, reverse=True),
            [i],
            lambda v: v[..., ::-1].cumsum(-1)[..., ::-1],
            variant="reverse",
        ),
        Case("cumprod", lambda g, v: g.cumprod(v), [x], lambda v: v.cumprod(-1), 5e-6),
        Case("cummax", lambda g, v: g.cummax(v, 0), [i], lambda v: np.maximum.accumulate(v, 0)),
        Case("cummin", lambda g, v: g.cummin(v, 0), [x], lambda v: np.minimum.accumulate(v, 0)),
    ]
    return cases


def _products() -> list[Case]:
    x, kernel = floats(2, 4, 7, 6), floats(6, 2, 3, 2)
    shapes = [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (2, 4, 3)),
    ]
    cases = [
        Case("matmul", lambda g, a, b: a @ b, [floats(*a), floats(*b)], np.matmul, 1e-5, f"{len(a)}x{len(b)}")
        for a, b in shapes
    ]
    return [
        *cases,
        Case(
            "dot_general",
            lambda g, a, b: g.dot_general(a, b, (1,), (-1,), lhs_batch=(0,), rhs_batch=(1,)),
            [floats(2, 4, 3), floats(5, 2, 4)],
            lambda a, b: np.einsum("bki,jbk->bij", a, b),
            1e-5,
        ),
        Case(
            "dot_general",
            lambda g, a, b: g.dot_general(a, b, (1,), (0,), dtype="i32"),
            [ints(3, 4, dtype="i1"), ints(4, 2, dtype="i1")],
            lambda a, b: a.astype("i4") @ b.astype("i4"),
            variant="wider",
        ),
        Case(
            "convolution",
            lambda g, v, k: g.convolution(
                v, k, strides=(2, 1), low=(1, 0), high=(0, 1), kernel_dilation=(1, 2), groups=2
            ),
            [x, kernel],
            lambda v, k: convolved(v, k, (2, 1), ((1, 0), (0, 1)), (1, 2), 2),
            1e-5,
        ),
        Case(
            "convolution",
            lambda g, v, k: g.convolution(v, k, input_layout="NHWC", kernel_layout="HWIO"),
            [x.transpose(0, 2, 3, 1).copy(), floats(3, 2, 4, 5)],
            lambda v, k: convolved(
                v.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1
            ).transpose(0, 2, 3, 1),
            1e-5,
            "channels-last",
        ),
    ]


def convolved(
    x: np.ndarray, kernel: np.ndarray, strides: Any, padding: Any, dilation: Any, groups: int
) -> np.ndarray:
    """A convolution over two axes, by its definition."""
    x = np.pad(x.astype("f8"), ((0, 0), (0, 0), *padding))
    features, inside, *window = kernel.shape
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    sizes = [(s - r) // t + 1 for s, r, t in zip(x.shape[2:], reach, strides, strict=True)]
    result = np.zeros((x.shape[0], features, *sizes))
    for f in range(features):
        first = f // (features // groups) * inside
        for p in range(sizes[0]):
            for q in range(sizes[1]):
                part = x[
                    :,
                    first : first + inside,
                    p * strides[0] : p * strides[0] + reach[0] : dilation[0],
                    q * strides[1] : q * strides[1] + reach[1] : dilation[1],
                ]
                result[:, f, p, q] = (part * kernel[f]).sum((1, 2, 3))
    return result


def _pooled(x: np.ndarray, window: int, stride: int, function: Callable[..., Any]) -> np.ndarray:
    starts = range(0, x.shape[-1] - window + 1, stride)
    return np.stack([function(x[..., s : s + window], axis=-1) for s in starts], -1)


def _dilated(x: np.ndarray) -> np.ndarray:
    """Zeros between neighbors along the last axis."""
    result = np.zeros((*x.shape[:-1], 2 * x.shape[-1] - 1), x.dtype)
    result[..., ::2] = x
    return result


def _windows() -> list[Case]:
    x = floats(2, 3, 8)
    padded = np.concatenate([np.full((2, 3, 1), np.nan, "f4"), x], -1)
    return [
        Case(
            "reduce_window",
            lambda g, v: g.reduce_window(
                v, "sum", (1, 1, 2), window_dilation=(1, 1, 3), base_dilation=(1, 1, 2)
            ),
            [x],
            lambda v: _dilated(v)[..., :12] + _dilated(v)[..., 3:],
        ),
        Case(
            "reduce_window",
            lambda g, v: g.reduce_window(v, "max", (2, 1, 1), (1, 2, 1), low=(0, 1, 0)),
            [x],
            lambda v: np.concatenate([np.full((1, 1, 8), -np.inf), v.max(0, keepdims=True)[:, 1:2]], 1),
            variant="padded",
        ),
        Case("max_pool", lambda g, v: g.max_pool(v, (3,), (2,)), [x], lambda v: _pooled(v, 3, 2, np.max)),
        Case("avg_pool", lambda g, v: g.avg_pool(v, (2,)), [x], lambda v: _pooled(v, 2, 2, np.mean)),
        Case(
            "avg_pool",
            lambda g, v: g.avg_pool(v, (3,), (1,), low=(1,)),
            [x],
            lambda v: _pooled(padded, 3, 1, np.nanmean),
            variant="padded",
        ),
        Case(
            "avg_pool",
            lambda g, v: g.avg_pool(v, (3,), (1,), low=(1,), axes=(0,), count_padding=True),
            [floats(4, 2)],
            lambda v: _pooled(np.pad(v, ((1, 0), (0, 0))).T, 3, 1, np.mean).T,
            variant="counted",
        ),
    ]


def _sorting() -> list[Case]:
    x = floats(3, 6)
    ties = np.array([2, 1, 2, 0, 1], "i4")
    return [
        Case("sort", lambda g, v: g.sort(v, 0), [x], lambda v: np.sort(v, 0)),
        Case(
            "sort",
            lambda g, v: g.sort(v, descending=True),
            [np.array([1, np.nan, -1], "f4")],
            lambda v: np.array([np.nan, 1, -1], "f4"),
            variant="nan",
            interpreted=False,
        ),
        Case(
            "argsort",
            lambda g, v: g.argsort(v, descending=True),
            [ties],
            lambda v: np.array([0, 2, 1, 4, 3], "i4"),
        ),
        Case(
            "top_k",
            lambda g, v: g.top_k(v, 2),
            [x],
            lambda v: (-np.sort(-v, -1)[:, :2], np.argsort(-v, -1, kind="stable")[:, :2]),
        ),
    ]


def _linear() -> list[Case]:
    square = floats(3, 3)
    positive = (square @ square.T + np.eye(3)).astype("f4")
    lower, rhs = np.tril(positive), floats(3, 2)
    return [
        Case(
            "fft",
            lambda g, v: g.fft(v, "fft", (2, 4)),
            [complexes(3, 2, 4)],
            lambda v: np.fft.fft2(v),
            1e-5,
            interpreted=False,
        ),
        Case(
            "fft",
            lambda g, v: g.fft(v, "rfft", (5,)),
            [floats(2, 5)],
            lambda v: np.fft.rfft(v),
            1e-5,
            "real",
            interpreted=False,
        ),
        Case(
            "fft",
            lambda g, v: g.fft(v, "irfft", (6,)),
            [complexes(2, 4)],
            lambda v: np.fft.irfft(v, 6),
            1e-5,
            "inverse",
            interpreted=False,
        ),
        Case(
            "cholesky",
            lambda g, v: g.cholesky(v),
            [positive],
            np.linalg.cholesky,
            1e-5,
            interpreted=False,
        ),
        Case(
            "triangular_solve",
            lambda g, m, v: g.triangular_solve(m, v),
            [lower, rhs],
            np.linalg.solve,
            1e-4,
            interpreted=False,
        ),
    ]


def _softmax(v: np.ndarray, axis: int = -1) -> np.ndarray:
    return sp.softmax(v.astype("f8"), axis)


def _normal(v: np.ndarray, axes: Any, epsilon: float) -> np.ndarray:
    v = v.astype("f8")
    return (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + epsilon)


def _composites() -> list[Case]:
    x, w, b = floats(2, 3, 4), floats(3, 4), floats(3, 4)
    channel = [floats(3), floats(3), floats(3), floats(3, low=0.1)]
    tanh = np.sqrt(2 / np.pi)
    return [
        Case("relu", _method("relu"), [x], lambda v: np.maximum(v, 0)),
        Case("leaky_relu", lambda g, v: g.leaky_relu(v, 0.2), [x], lambda v: np.where(v > 0, v, 0.2 * v)),
        Case("sigmoid", _method("sigmoid"), [x], sp.expit),
        Case("silu", _method("silu"), [x], lambda v: v * sp.expit(v)),
        Case("softplus", _method("softplus"), [x], lambda v: np.logaddexp(v, 0), 5e-6),
        Case("gelu", _method("gelu"), [x], lambda v: v * sp.ndtr(v), 5e-6),
        Case(
            "gelu",
            lambda g, v: g.gelu(v, "tanh"),
            [x],
            lambda v: v * (0.5 * (1 + np.tanh(tanh * (v + 0.044715 * v**3)))),
            5e-6,
            "tanh",
        ),
        Case("softmax", lambda g, v: g.softmax(v, axis=1), [x], lambda v: _softmax(v, 1)),
        Case("log_softmax", lambda g, v: g.log_softmax(v), [x], lambda v: np.log(_softmax(v)), 5e-6),
        Case(
            "layer_norm",
            lambda g, v, s, o: g.layer_norm(v, s, o, axes=(1, 2)),
            [x, w, b],
            lambda v, s, o: _normal(v, (1, 2), 1e-5) * s + o,
            1e-5,
        ),
        Case(
            "layer_norm",
            lambda g, v, o: g.layer_norm(v, None, o, epsilon=0.1),
            [x, floats(4)],
            lambda v, o: _normal(v, -1, 0.1) + o,
            1e-5,
            "bias-only",
        ),
        Case(
            "rms_norm",
            lambda g, v, s: g.rms_norm(v, s),
            [x, floats(4)],
            lambda v, s: v / np.sqrt((v.astype("f8") ** 2).mean(-1, keepdims=True) + 1e-6) * s,
            1e-5,
        ),
        Case(
            "batch_norm_inference",
            lambda g, v, s, o, m, q: g.batch_norm_inference(v, s, o, m, q),
            [x, *channel],
            lambda v, s, o, m, q: (v - m[:, None]) / np.sqrt(q[:, None] + 1e-5) * s[:, None] + o[:, None],
            1e-5,
        ),
    ]

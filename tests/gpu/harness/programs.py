"""Programs for every template of GPU kernels, at sizes that fit no tile; their results by NumPy in f64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler.codegen_harness import NUMPY

Array = np.ndarray[Any, Any]

#: Error allowed as a share of the largest result of absolute values: some roundings in the element type.
TOLERANCE = {"f16": 4e-3, "bf16": 3e-2, "f32": 1e-5, "f64": 1e-12}


@dataclass(frozen=True)
class Template:
    """``text`` of element type and sizes, the shapes of its arguments, and its result from f64 arguments."""

    name: str
    text: Callable[..., str]
    shapes: Callable[..., tuple[tuple[int, ...], ...]]
    expected: Callable[..., Array]
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = ("f32", "f16", "bf16", "f64")

    def arguments(self, dtype: str, sizes: tuple[int, ...]) -> list[Array]:
        rng = np.random.default_rng(sum(sizes))
        return [rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in self.shapes(*sizes)]

    def check(self, dtype: str, arguments: list[Array], got: Array) -> None:
        wanted = self.expected(*(argument.astype("f8") for argument in arguments))
        assert got.shape == wanted.shape
        magnitudes = self.expected(*(np.abs(argument.astype("f8")) for argument in arguments))
        scale = float(np.max(np.abs(magnitudes), initial=1.0))
        error = float(np.max(np.abs(got.astype("f8") - wanted), initial=0.0))
        assert error <= TOLERANCE[dtype] * scale, (
            f"{self.name} {dtype} {wanted.shape}: error {error} of {scale}"
        )


def _main(arguments: list[str], result: str, body: str) -> str:
    """A module; its body says ``{i}`` for the type of argument i, and ends with the result in ``%r``."""
    listed = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(arguments))
    return f"func.func @main({listed}) -> {result} {{\n{body}\nreturn %r : {result} }}"


def _tensor(dtype: str, *sizes: int) -> str:
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{dtype}>"


def _pointwise(dtype: str, m: int, n: int) -> str:
    whole, row = _tensor(dtype, m, n), _tensor(dtype, n)
    return _main(
        [whole, row],
        whole,
        f"""%b = stablehlo.broadcast_in_dim %a1, dims = [1] : ({row}) -> {whole}
        %s = stablehlo.add %a0, %b : {whole}
        %t = stablehlo.tanh %s : {whole}
        %r = stablehlo.multiply %t, %a0 : {whole}""",
    )


def _reduce(name: str, what: str, init: str, kind: str, out: str, axis: int, dtype: str) -> str:
    scalar, combine = _tensor(dtype), "maximum" if "F" in init else "add"
    return f"""%{name}_0 = stablehlo.constant dense<{init}> : {scalar}
        %{name} = stablehlo.reduce(%{what} init: %{name}_0) applies stablehlo.{combine}
          across dimensions = [{axis}] : ({kind}, {scalar}) -> {out}"""


_LOWEST = {"f16": "0xFC00", "bf16": "0xFF80", "f32": "0xFF800000", "f64": "0xFFF0000000000000"}


def _softmax(dtype: str, m: int, n: int) -> str:
    whole, rows = _tensor(dtype, m, n), _tensor(dtype, m)
    return _main(
        [whole],
        whole,
        f"""{_reduce("top", "a0", _LOWEST[dtype], whole, rows, 1, dtype)}
        %tops = stablehlo.broadcast_in_dim %top, dims = [0] : ({rows}) -> {whole}
        %d = stablehlo.subtract %a0, %tops : {whole}
        %e = stablehlo.exponential %d : {whole}
        {_reduce("sum", "e", "0.0", whole, rows, 1, dtype)}
        %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : ({rows}) -> {whole}
        %r = stablehlo.divide %e, %sums : {whole}""",
    )


def _sums(axis: int) -> Callable[..., str]:
    def text(dtype: str, m: int, n: int) -> str:
        whole, out = _tensor(dtype, m, n), _tensor(dtype, n if axis == 0 else m)
        return _main([whole], out, _reduce("r", "a0", "0.0", whole, out, axis, dtype))

    return text


def _transpose(dtype: str, m: int, n: int) -> str:
    whole, turned = _tensor(dtype, m, n), _tensor(dtype, n, m)
    return _main([whole], turned, f"%r = stablehlo.transpose %a0, dims = [1, 0] : ({whole}) -> {turned}")


def _matmul(dtype: str, m: int, n: int, k: int) -> str:
    """max(a b + bias, 0)"""
    a, b, bias, out = _tensor(dtype, m, k), _tensor(dtype, k, n), _tensor(dtype, n), _tensor(dtype, m, n)
    return _main(
        [a, b, bias],
        out,
        f"""%p = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({a}, {b}) -> {out}
        %w = stablehlo.broadcast_in_dim %a2, dims = [1] : ({bias}) -> {out}
        %s = stablehlo.add %p, %w : {out}
        %z = stablehlo.constant dense<0.0> : {out}
        %r = stablehlo.maximum %s, %z : {out}""",
    )


def _batched(dtype: str, g: int, m: int, n: int, k: int) -> str:
    """a bᵀ of each of a batch."""
    a, b, out = _tensor(dtype, g, m, k), _tensor(dtype, g, n, k), _tensor(dtype, g, m, n)
    return _main(
        [a, b],
        out,
        f"""%r = stablehlo.dot_general %a0, %a1, batching_dims = [0] x [0], contracting_dims = [2] x [2]
          : ({a}, {b}) -> {out}""",
    )


def _exp_rows(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


_PLANES = ((1, 1), (3, 5), (2, 32), (5, 33), (7, 255), (4, 1000), (2, 1025), (37, 64), (1, 4099))
TEMPLATES = (
    Template("pointwise", _pointwise, lambda m, n: ((m, n), (n,)), lambda a, b: np.tanh(a + b) * a, _PLANES),
    Template(
        "softmax", _softmax, lambda m, n: ((m, n),), _exp_rows, (*_PLANES, (9, 512), (8, 2048), (2, 9001))
    ),
    Template("row sums", _sums(1), lambda m, n: ((m, n),), lambda a: a.sum(1), _PLANES),
    Template("column sums", _sums(0), lambda m, n: ((m, n),), lambda a: a.sum(0), (*_PLANES, (301, 3))),
    Template("transpose", _transpose, lambda m, n: ((m, n),), np.transpose, (*_PLANES, (64, 96), (33, 31))),
    Template(
        "matmul",
        _matmul,
        lambda m, n, k: ((m, k), (k, n), (n,)),
        lambda a, b, c: np.maximum(a @ b + c, 0),
        (
            (1, 1, 1),
            (7, 5, 3),
            (16, 8, 16),
            (64, 64, 32),
            (33, 65, 17),
            (100, 72, 88),
            (64, 128, 40),
            (130, 136, 40),
            (128, 128, 64),
        ),
    ),
    Template(
        "batched",
        _batched,
        lambda g, m, n, k: ((g, m, k), (g, n, k)),
        lambda a, b: a @ b.transpose(0, 2, 1),
        ((1, 1, 1, 1), (3, 7, 5, 9), (2, 64, 48, 32), (2, 33, 40, 24)),
    ),
)


def narrow_attention(
    batch: int, heads: int, queries: int, keys: int, depth: int, element: str, causal: bool
) -> str:
    """Scores and softmax in f32, weights rounded to ``element`` for the product with the values."""
    wide = {"": "f32", "n": element}
    q, k = (_tensor(element, batch, heads, count, depth) for count in (queries, keys))
    s, w = (_tensor(kind, batch, heads, queries, keys) for kind in wide.values())
    rows, out = _tensor("f32", batch, heads, queries), _tensor("f32", batch, heads, queries, depth)
    numbers, flags = (_tensor(kind, batch, heads, queries, keys) for kind in ("i32", "i1"))
    mask = f"""%i = stablehlo.iota dim = 2 : {numbers}
        %j = stablehlo.iota dim = 3 : {numbers}
        %m = stablehlo.compare GE, %i, %j : ({numbers}, {numbers}) -> {flags}
        %low = stablehlo.constant dense<0xFF800000> : {s}
        %s = stablehlo.select %m, %scaled, %low : {flags}, {s}"""
    scores = "s" if causal else "scaled"
    return _main(
        [q, k, k],
        q,
        f"""%p = stablehlo.dot_general %a0, %a1, batching_dims = [0, 1] x [0, 1],
          contracting_dims = [3] x [3] : ({q}, {k}) -> {s}
        %c = stablehlo.constant dense<{depth**-0.5:.9e}> : {s}
        %scaled = stablehlo.multiply %p, %c : {s}
        {mask if causal else ""}
        {_reduce("top", scores, "0xFF800000", s, rows, 3, "f32")}
        %tops = stablehlo.broadcast_in_dim %top, dims = [0, 1, 2] : ({rows}) -> {s}
        %x = stablehlo.subtract %{scores}, %tops : {s}
        %e = stablehlo.exponential %x : {s}
        {_reduce("sum", "e", "0.0", s, rows, 3, "f32")}
        %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : ({rows}) -> {s}
        %d = stablehlo.divide %e, %sums : {s}
        %w = stablehlo.convert %d : ({s}) -> {w}
        %o = stablehlo.dot_general %w, %a2, batching_dims = [0, 1] x [0, 1],
          contracting_dims = [3] x [2] : ({w}, {k}) -> {out}
        %r = stablehlo.convert %o : ({out}) -> {q}""",
    )

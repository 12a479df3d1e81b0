"""Graphs with open axes: one kernel for all sizes, and sizes as polynomials over the symbols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kcache_compiler.frontends.graph.size_expression import plus, product, quotient, symbol, times
from kcache_grpc import Graph
from kcache_grpc.runtime.dtypes import numpy_dtype
from tests.graph.running import Build, canonical_of, compiled, digest_of, graph_of, text_of
from tests.ops.harness import native

SIZES = ((3, 5), (1, 1), (2, 2), (7, 6))


@dataclass(frozen=True)
class Open:
    """``build`` on inputs of these shapes, in which n and m are open, is what ``expected`` makes of them.

    ``alone``: no graph of fixed sizes is the same; it computes with sizes or names a symbol.
    """

    name: str
    build: Build
    dims: tuple[tuple[Any, ...], ...]
    expected: Callable[..., Any]
    alone: bool = False


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normal(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


OPEN = (
    Open(
        "bias-relu",
        lambda g, x, w, b: g.relu(x @ w + b),
        (("n", 4), (4, 5), (5,)),
        lambda x, w, b: np.maximum(x @ w + b, 0),
    ),
    Open("softmax", lambda g, x: g.softmax(x), (("n", "m"),), softmax),
    Open("mean", lambda g, x: g.mean(x, [0]), (("n", 4),), lambda x: x.mean(0)),
    Open("layer-norm", lambda g, x, w: g.layer_norm(x, w), (("n", "m"), ("m",)), lambda x, w: normal(x) * w),
    Open(
        "reshape",
        lambda g, x: g.relu(x.reshape(-1, 4)),
        (("n", "m", 4),),
        lambda x: np.maximum(x.reshape(-1, 4), 0),
    ),
    Open(
        "reshape-back",
        lambda g, x: g.tanh(x.reshape("m", -1)),
        (("n", "m"),),
        lambda x: np.tanh(x.reshape(x.shape[1], -1)),
        alone=True,
    ),
    Open(
        "concatenate",
        lambda g, x, y: g.concatenate(x, y) * 2.0,
        (("n", 4), ("m", 4)),
        lambda x, y: np.concatenate([x, y]) * 2,
        alone=True,
    ),
    Open(
        "pad",
        lambda g, x: g.pad(x, g.constant(3, "f32"), low=(2, 0), high=(1, 1)),
        (("n", 4),),
        lambda x: np.pad(x, ((2, 1), (0, 1)), constant_values=3),
        alone=True,
    ),
    Open(
        "iota",
        lambda g, x: x * g.iota("f32", ("n", 4)),
        (("n", 4),),
        lambda x: x * np.arange(len(x), dtype="f4")[:, None],
        alone=True,
    ),
    Open(
        "size",
        lambda g, x: x / g.size(x, 0, "f32"),
        (("n", 4),),
        lambda x: x / len(x),
        alone=True,
    ),
    Open(
        "attention",
        lambda g, q, k, v: g.softmax(q @ g.transpose(k, (0, 2, 1))) @ v,
        ((2, "n", 4), (2, "m", 4), (2, "m", 3)),
        lambda q, k, v: softmax(q @ k.transpose(0, 2, 1)) @ v,
    ),
    Open("argmax", lambda g, x: g.argmax(x), (("n", 4),), lambda x: x.argmax(-1)),
    Open("unnamed", lambda g, x: g.tanh(x) + 1, ((None, None),), lambda x: np.tanh(x) + 1),
)


@pytest.mark.parametrize("case", [case for case in OPEN if not case.alone], ids=lambda case: case.name)
def test_open_and_fixed_axes_have_one_key(case: Open):
    digests: set[bytes] = set()
    for n, m in ((None, None), (3, 5), (24, 6)):
        dims = [[{"n": n or "n", "m": m or "m", None: n}.get(d, d) for d in shape] for shape in case.dims]
        digests.add(digest_of(graph_of(case.build, [np.zeros(0, "f4")] * len(dims), dims)))
    assert len(digests) == 1


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", OPEN, ids=lambda case: case.name)
def test_one_kernel_computes_all_sizes(case: Open):
    rng = np.random.default_rng(len(case.name))
    shapes = [[tuple(_size(dim, n, m) for dim in dims) for dims in case.dims] for n, m in SIZES]
    first = [np.zeros(shape, "f4") for shape in shapes[0]]
    canonical = canonical_of(graph_of(case.build, first, case.dims))
    kernel = compiled(canonical)
    for wanted in shapes:
        arrays = [rng.standard_normal(shape).astype("f4") for shape in wanted]
        expected = np.asarray(case.expected(*arrays))
        sizes = tuple(arrays[s.arg].shape[s.axis] for s in kernel.interface.symbols)
        constants = [constant.content for constant in canonical.constants]
        (data,) = native.run(kernel, [array.tobytes() for array in arrays], constants, sizes)
        got = np.frombuffer(data, numpy_dtype(canonical.results[0].dtype)).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def _size(dim: Any, n: int, m: int) -> int:
    return dim if isinstance(dim, int) else {"n": n, "m": m, None: n}[dim]


def lowered(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> str:
    graph = Graph()
    graph.output(build(graph, *(graph.input(name, "f32", s) for name, s in zip("xyz", shapes, strict=False))))
    return text_of(graph)


def test_equal_polynomials_are_one_size():
    lowered(lambda g, x, y: g.concatenate(x, y) + g.concatenate(y, x), ("n",), ("m",))
    lowered(lambda g, x, y: x.reshape(-1, 3) + g.transpose(y).reshape(-1, 3), ("n", "m", 3), (3, "m", "n"))
    lowered(lambda g, x: g.pad(x, low=(1,), high=(2,)) + g.pad(x, low=(2,), high=(1,)), ("n",))


def test_windows_over_an_open_axis_name_their_sizes():
    assert "tensor<2x?xf32>" in lowered(lambda g, x: g.max_pool(x, (3,)) + g.avg_pool(x, (3,)), (2, "n"))
    text = lowered(lambda g, x: g.max_pool(x, (3,), (1,), low=(1,), high=(1,)) + x, (2, "n"))
    assert "dynamic" not in text, "a window that keeps the size keeps the symbol"


def test_what_is_fixed_is_emitted_in_its_static_form():
    text = lowered(lambda g, x, w: g.relu(x @ w), ("n", 4), (4, 5))
    assert text.count("dynamic_broadcast_in_dim") == 1, "only the zero of relu, over the open axis"
    assert "get_dimension_size" in text
    assert "dynamic" not in lowered(lambda g, x, w: g.softmax(g.relu(x @ w)), (3, 4), (4, 5))


def test_a_slice_leaves_open_axes_whole():
    assert "real_dynamic_slice" in lowered(lambda g, x: x[:, 1:3], ("n", 4))


def test_polynomials():
    n, m = symbol("n"), symbol("m")
    assert plus(n, 0) == n
    assert plus(n, times(n, -1)) == 0
    assert str(plus(times(2, times(n, m)), plus(m, 3))) == "3 + m + 2*m*n"
    assert times(plus(n, 1), plus(n, -1)) == plus(times(n, n), -1)
    assert product((2, n, 3)) == times(6, n)
    assert quotient(times(6, times(n, m)), times(2, n)) == times(3, m)
    assert quotient(plus(n, m), n) is None
    assert quotient(times(3, n), 2) is None
    assert quotient(plus(n, 1), plus(n, 1)) == 1
    assert quotient(times(4, n), n) == 4
    assert quotient(0, n) == 0

"""Operations of the graph format have the keys of the functions of JAX that they are named after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcache_compiler import canonicalize
from kcache_grpc import Graph
from kcache_grpc.graph import Value
from tests.graph.running import digest_of

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

Shapes = list[tuple[int, ...]]


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w + b


def batch_norm(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    scale, offset, mean, variance = (each[None, :, None] for each in (scale, offset, mean, variance))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + offset


def cross_entropy(x: Any, t: Any) -> Any:
    return -jnp.mean(jnp.sum(jax.nn.one_hot(t.astype("i4"), 5) * jax.nn.log_softmax(x), -1))


def graph_cross_entropy(g: Graph, x: Value, t: Value) -> Value:
    return -g.mean(g.reduce_sum(g.one_hot(t.astype("i32"), 5) * g.log_softmax(x), [-1]))


def max_pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any], Shapes]] = {
    "gelu-tanh": (lambda g, x: g.gelu(x, "tanh"), lambda x: jax.nn.gelu(x, approximate=True), [(3, 5)]),
    "gelu-erf": (lambda g, x: g.gelu(x), lambda x: jax.nn.gelu(x, approximate=False), [(3, 5)]),
    "silu": (lambda g, x: g.silu(x), lambda x: jax.nn.silu(x), [(3, 5)]),
    "leaky_relu": (lambda g, x: g.leaky_relu(x), lambda x: jax.nn.leaky_relu(x), [(3, 5)]),
    "layer_norm": (lambda g, *xs: g.layer_norm(*xs), layer_norm, [(3, 5), (5,), (5,)]),
    "batch_norm": (
        lambda g, *xs: g.batch_norm_inference(*xs),
        batch_norm,
        [(2, 3, 4), (3,), (3,), (3,), (3,)],
    ),
    "variance": (lambda g, x: g.variance(x, [-1]), lambda x: jnp.var(x, -1), [(3, 5)]),
    "variance-sample": (
        lambda g, x: g.variance(x, [-1], correction=1),
        lambda x: jnp.var(x, -1, ddof=1),
        [(3, 5)],
    ),
    "log_softmax": (lambda g, x: g.log_softmax(x), lambda x: jax.nn.log_softmax(x), [(3, 5)]),
    "logsumexp": (lambda g, x: g.logsumexp(x, [-1]), lambda x: jax.nn.logsumexp(x, -1), [(3, 5)]),
    "cross-entropy": (graph_cross_entropy, cross_entropy, [(3, 5), (3,)]),
    "argmax": (lambda g, x: g.argmax(x), lambda x: jnp.argmax(x, -1), [(3, 5)]),
    "cumsum": (lambda g, x: g.cumsum(x), lambda x: jnp.cumsum(x, -1), [(3, 5)]),
    "top_k": (lambda g, x: g.top_k(x, 2), lambda x: jax.lax.top_k(x, 2), [(3, 5)]),
    "max_pool": (lambda g, x: g.max_pool(x, (2, 2)), max_pool, [(1, 2, 4, 4)]),
    "convolution": (
        lambda g, x, k: g.convolution(x, k),
        lambda x, k: jax.lax.conv(x, k, (1, 1), "VALID"),
        [(1, 2, 4, 4), (3, 2, 2, 2)],
    ),
    "matmul": (lambda g, x, y: x @ y, lambda x, y: x @ y, [(2, 3, 4), (2, 4, 5)]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAME)
def test_an_operation_has_the_key_of_its_function(name: str):
    build, function, shapes = SAME[name]
    graph = Graph()
    outputs = build(graph, *(graph.input(f"v{index}", "f32", shape) for index, shape in enumerate(shapes)))
    graph.output(*([outputs] if isinstance(outputs, Value) else outputs))
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    exported = jax.export.export(jax.jit(function))(*arguments).mlir_module()
    assert digest_of(graph) == canonicalize(exported.encode(), "stablehlo").spec_digest

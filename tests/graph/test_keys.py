"""A graph has the key of the same computation written as StableHLO, or exported by JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kcache_compiler import canonicalize
from kcache_grpc import Graph
from tests.graph.running import digest_of, digest_of_text

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Same:
    """One computation three times: as a graph, as StableHLO text, as a function of JAX."""

    name: str
    shapes: tuple[Shape, ...]
    graph: Callable[..., Any]
    text: str
    jax: Callable[..., Any]


def _jnp() -> Any:
    return pytest.importorskip("jax.numpy")


def _nn() -> Any:
    return pytest.importorskip("jax.nn")


SAME = (
    Same(
        "bias-relu",
        ((3, 5), (5,)),
        lambda g, x, b: g.relu(x + b),
        """func.func @main(%x: tensor<3x5xf32>, %b: tensor<5xf32>) -> tensor<3x5xf32> {
          %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<5xf32>) -> tensor<3x5xf32>
          %1 = stablehlo.add %x, %0 : tensor<3x5xf32>
          %z = stablehlo.constant dense<0.0> : tensor<3x5xf32>
          %2 = stablehlo.maximum %1, %z : tensor<3x5xf32>
          return %2 : tensor<3x5xf32> }""",
        lambda x, b: _nn().relu(x + b),
    ),
    Same(
        "matmul-bias-relu",
        ((3, 4), (4, 5), (5,)),
        lambda g, x, w, b: g.relu(x @ w + b),
        """func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>) -> tensor<3x5xf32> {
          %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
          %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<5xf32>) -> tensor<3x5xf32>
          %1 = stablehlo.add %0, %d : tensor<3x5xf32>
          %z = stablehlo.constant dense<0.0> : tensor<3x5xf32>
          %2 = stablehlo.maximum %1, %z : tensor<3x5xf32>
          return %2 : tensor<3x5xf32> }""",
        lambda x, w, b: _nn().relu(x @ w + b),
    ),
    Same(
        "softmax",
        ((3, 5),),
        lambda g, x: g.softmax(x),
        """func.func @main(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
          %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
            : (tensor<3x5xf32>, tensor<f32>) -> tensor<3xf32>
          %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<3xf32>) -> tensor<3x5xf32>
          %s = stablehlo.subtract %x, %mb : tensor<3x5xf32>
          %e = stablehlo.exponential %s : tensor<3x5xf32>
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %t = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1]
            : (tensor<3x5xf32>, tensor<f32>) -> tensor<3xf32>
          %tb = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<3xf32>) -> tensor<3x5xf32>
          %r = stablehlo.divide %e, %tb : tensor<3x5xf32>
          return %r : tensor<3x5xf32> }""",
        lambda x: _nn().softmax(x),
    ),
    Same(
        "sigmoid-gate",
        ((3, 5), (3, 5)),
        lambda g, x, y: g.sigmoid(x) * y,
        """func.func @main(%x: tensor<3x5xf32>, %y: tensor<3x5xf32>) -> tensor<3x5xf32> {
          %0 = stablehlo.logistic %x : tensor<3x5xf32>
          %1 = stablehlo.multiply %y, %0 : tensor<3x5xf32>
          return %1 : tensor<3x5xf32> }""",
        lambda x, y: y * _nn().sigmoid(x),
    ),
    Same(
        "residual-add",
        ((2, 3, 5), (5, 5)),
        lambda g, x, w: x + x @ w,
        """func.func @main(%x: tensor<2x3x5xf32>, %w: tensor<5x5xf32>) -> tensor<2x3x5xf32> {
          %d = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
            : (tensor<2x3x5xf32>, tensor<5x5xf32>) -> tensor<2x3x5xf32>
          %1 = stablehlo.add %d, %x : tensor<2x3x5xf32>
          return %1 : tensor<2x3x5xf32> }""",
        lambda x, w: x + x @ w,
    ),
    Same(
        "attention-scores",
        ((2, 4, 3, 8), (2, 4, 5, 8)),
        lambda g, q, k: g.softmax(q @ g.transpose(k, (0, 1, 3, 2)) * 0.125),
        """func.func @main(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>) -> tensor<2x4x3x5xf32> {
          %d = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
            : (tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x5xf32>
          %c = stablehlo.constant dense<0.125> : tensor<2x4x3x5xf32>
          %x = stablehlo.multiply %d, %c : tensor<2x4x3x5xf32>
          %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [3]
            : (tensor<2x4x3x5xf32>, tensor<f32>) -> tensor<2x4x3xf32>
          %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1, 2] : (tensor<2x4x3xf32>) -> tensor<2x4x3x5xf32>
          %s = stablehlo.subtract %x, %mb : tensor<2x4x3x5xf32>
          %e = stablehlo.exponential %s : tensor<2x4x3x5xf32>
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %t = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [3]
            : (tensor<2x4x3x5xf32>, tensor<f32>) -> tensor<2x4x3xf32>
          %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1, 2] : (tensor<2x4x3xf32>) -> tensor<2x4x3x5xf32>
          %r = stablehlo.divide %e, %tb : tensor<2x4x3x5xf32>
          return %r : tensor<2x4x3x5xf32> }""",
        lambda q, k: _nn().softmax(_jnp().einsum("bhqd,bhkd->bhqk", q, k) * 0.125),
    ),
    Same(
        "mean-squared-error",
        ((3, 5), (3, 5)),
        lambda g, x, y: g.mean(g.square(x - y)),
        """func.func @main(%x: tensor<3x5xf32>, %y: tensor<3x5xf32>) -> tensor<f32> {
          %d = stablehlo.subtract %x, %y : tensor<3x5xf32>
          %q = stablehlo.multiply %d, %d : tensor<3x5xf32>
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %t = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [0, 1]
            : (tensor<3x5xf32>, tensor<f32>) -> tensor<f32>
          %n = stablehlo.constant dense<15.0> : tensor<f32>
          %r = stablehlo.divide %t, %n : tensor<f32>
          return %r : tensor<f32> }""",
        lambda x, y: _jnp().mean((x - y) ** 2),
    ),
    Same(
        "rms-norm",
        ((3, 5), (5,)),
        lambda g, x, w: g.rms_norm(x, w, epsilon=1e-5),
        """func.func @main(%x: tensor<3x5xf32>, %w: tensor<5xf32>) -> tensor<3x5xf32> {
          %q = stablehlo.multiply %x, %x : tensor<3x5xf32>
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %t = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [1]
            : (tensor<3x5xf32>, tensor<f32>) -> tensor<3xf32>
          %n = stablehlo.constant dense<5.0> : tensor<3xf32>
          %m = stablehlo.divide %t, %n : tensor<3xf32>
          %e = stablehlo.constant dense<1.0e-05> : tensor<3xf32>
          %a = stablehlo.add %m, %e : tensor<3xf32>
          %s = stablehlo.rsqrt %a : tensor<3xf32>
          %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<3xf32>) -> tensor<3x5xf32>
          %p = stablehlo.multiply %x, %sb : tensor<3x5xf32>
          %wb = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<5xf32>) -> tensor<3x5xf32>
          %r = stablehlo.multiply %p, %wb : tensor<3x5xf32>
          return %r : tensor<3x5xf32> }""",
        lambda x, w: x * pytest.importorskip("jax.lax").rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
    ),
)


def built(same: Same, shapes: tuple[Shape, ...] | None = None) -> Graph:
    graph = Graph()
    shapes = shapes or same.shapes
    values = [graph.input(f"v{index}", "f32", shape) for index, shape in enumerate(shapes)]
    graph.output(same.graph(graph, *values))
    return graph


@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("same", SAME, ids=lambda same: same.name)
def test_a_graph_has_the_key_of_its_stablehlo(same: Same, numerics: str):
    assert digest_of(built(same), numerics) == digest_of_text(same.text, numerics)


@pytest.mark.parametrize("same", SAME, ids=lambda same: same.name)
def test_a_graph_has_the_key_of_the_function_in_jax(same: Same):
    jax = pytest.importorskip("jax")
    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in same.shapes]
    exported = jax.export.export(jax.jit(same.jax))(*shapes)
    text = exported.mlir_module().encode()
    assert digest_of(built(same), "strict") == canonicalize(text, "stablehlo", "strict").spec_digest


@pytest.mark.parametrize("same", SAME, ids=lambda same: same.name)
def test_the_batch_size_is_no_part_of_the_key(same: Same):
    first = same.shapes[0][0]
    others = tuple(
        (first + 4, *shape[1:]) if len(shape) > 1 and shape[0] == first else shape for shape in same.shapes
    )
    assert digest_of(built(same, others)) == digest_of(built(same))


def test_names_and_dead_nodes_are_no_part_of_the_key():
    first, second = Graph(), Graph()
    x = first.input("x", "f32", (4, 3))
    first.output(first.tanh(x + 1))
    y = second.input("another", "f32", (4, 3))
    second.exp(y, name="unused")
    second.output(second.tanh(second.add(1, y, name="sum"), name="result"))
    assert digest_of(first) == digest_of(second)


def test_what_differs_has_another_key():
    digests: set[bytes] = set()
    for op in ("tanh", "exp", "softmax", "log_softmax", "relu", "gelu", "silu"):
        graph = Graph()
        graph.output(getattr(graph, op)(graph.input("x", "f32", (4, 3))))
        digests.add(digest_of(graph))
    for axis in (0, 1):
        for keepdims in (False, True):
            graph = Graph()
            graph.output(graph.mean(graph.input("x", "f32", (4, 3)), [axis], keepdims=keepdims))
            digests.add(digest_of(graph))
    assert len(digests) == 11

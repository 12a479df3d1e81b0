"""Fusion keeps programs compilable."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import kernel_of

_PRODUCERS = {
    "broadcast of a scalar": (
        "%p = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8x5xf32>"
    ),
    "broadcast of rows": (
        "%p = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<5xf32>) -> tensor<8x5xf32>"
    ),
    "reverse": ("%p = stablehlo.reverse %x, dims = [0, 1] : tensor<8x5xf32>"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dims", ["0", "1", "0, 1"])
@pytest.mark.parametrize("producer", _PRODUCERS)
def test_a_reduction_of_what_is_only_read_elsewhere(producer: str, dims: str) -> None:
    kind = {"0": "tensor<5xf32>", "1": "tensor<8xf32>", "0, 1": "tensor<f32>"}[dims]
    kernel = kernel_of(f"""
      func.func @main(%s: tensor<f32>, %v: tensor<5xf32>, %x: tensor<8x5xf32>) -> {kind} {{
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        {_PRODUCERS[producer]}
        %r = stablehlo.reduce(%p init: %z) applies stablehlo.add across dimensions = [{dims}]
          : (tensor<8x5xf32>, tensor<f32>) -> {kind}
        return %r : {kind}
      }}""")
    s, v, x = np.float32(3), np.arange(5, dtype="f4"), np.arange(40, dtype="f4").reshape(8, 5)
    full = {
        "broadcast of a scalar": np.full((8, 5), s),
        "broadcast of rows": np.broadcast_to(v, (8, 5)),
        "reverse": x[::-1, ::-1],
    }
    axes = tuple(int(axis) for axis in dims.split(","))
    np.testing.assert_array_equal(kernel(s, v, x)[0], full[producer].sum(axes))


def test_a_contraction_with_a_broadcast() -> None:
    kernel = kernel_of("""
      func.func @main(%s: tensor<f32>, %x: tensor<8x5xf32>) -> tensor<8x3xf32> {
        %w = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
        %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : (tensor<8x5xf32>, tensor<5x3xf32>) -> tensor<8x3xf32>
        return %r : tensor<8x3xf32>
      }""")
    x = np.arange(40, dtype="f4").reshape(8, 5)
    np.testing.assert_array_equal(kernel(np.float32(2), x)[0], x @ np.full((5, 3), 2, "f4"))


def test_running_maxima_in_a_long_program() -> None:
    """Operands are put in one order there; what a scan has so far is no operand."""
    kind, count = "tensor<11x7xf32>", 100
    lines = [
        f'%r{n} = "stablehlo.reduce_window"(%v{n}, %low) <{{window_dimensions = array<i64: 11, 1>, '
        "padding = dense<[[10, 0], [0, 0]]> : tensor<2x2xi64>}> ({\n"
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.maximum %p, %q : tensor<f32>\n"
        f"stablehlo.return %s : tensor<f32>\n}}) : ({kind}, tensor<f32>) -> {kind}\n"
        f"%n{n} = stablehlo.negate %r{n} : {kind}\n"
        f"%v{n + 1} = stablehlo.reverse %n{n}, dims = [0, 1] : {kind}"
        for n in range(count)
    ]
    body = "\n".join(lines)
    kernel = kernel_of(f"""
      func.func @main(%v0: {kind}) -> {kind} {{
        %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
        {body}
        return %v{count} : {kind}
      }}""")
    x = np.random.default_rng(0).normal(size=(11, 7)).astype(np.float32)
    expected = x
    for _ in range(count):
        expected = -np.maximum.accumulate(expected, axis=0)[::-1, ::-1]
    np.testing.assert_array_equal(kernel(x)[0], expected)

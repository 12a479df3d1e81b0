"""Exact rewrites over all values of f16; merged axes and reductions of reductions."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.graph.element_types import encode, is_float, read_scalar
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.spec.rewrites.constant_folding import root
from kcache_compiler.types import ArgSpec
from tests.compiler.codegen_harness import kernel_of
from tests.compiler.spec.test_canonical_rewrites import PAIRS

EVERY = np.arange(1 << 16, dtype=np.uint16)
OTHER = np.random.default_rng(1).permutation(EVERY)
HALF_PRECISION = [(name, before, after) for name, before, after, dtype in PAIRS if dtype == "f16"]


def bits(text: str) -> np.ndarray:
    """The result of a program, as it stands, on every f16; which NaN a NaN is does not count."""
    # The barrier has no kernel; the least of a value and itself is that value.
    text = text.replace("stablehlo.optimization_barrier %x", "stablehlo.minimum %x, %x")
    wide = text.replace("tensor<14x", "tensor<65536x")
    (result,) = kernel_of(wide, opt_level=0)(EVERY.view(np.float16), OTHER.view(np.float16))
    if result.dtype != np.float16:
        return result
    return np.where(np.isnan(result), np.uint16(0x7E00), result.view(np.uint16))


@pytest.mark.sampled(36)
@pytest.mark.parametrize(("name", "before", "after"), HALF_PRECISION)
def test_no_rewrite_changes_a_bit_of_any_half(name: str, before: str, after: str) -> None:
    assert np.array_equal(bits(before), bits(after))


# -- numbers


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_numbers_are_rounded_as_numpy_rounds_them(dtype: type) -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate(
        [rng.integers(0, 1 << 63, 2000).astype(np.uint64).view(np.float64), rng.normal(size=2000)]
    )
    element = {np.float16: "f16", np.float32: "f32"}[dtype]
    with np.errstate(all="ignore"):
        wanted = values.astype(dtype)
    encoded = [encode(float(v), element) for v in values]
    nan = np.isnan(values)
    assert [f for f, n in zip(encoded, nan, strict=True) if not n] == [
        w.tobytes().hex() for w in wanted[~nan]
    ]


def test_integers_are_rounded_once() -> None:
    # As a double it would be 2^60 + 2^36, half way between two floats, and round to the even one.
    assert read_scalar(encode((1 << 60) + (1 << 36) + 1, "f32"), "f32") == float((1 << 60) + (1 << 37))
    assert is_float("f32")


def test_roots_are_rounded_correctly() -> None:
    values = np.random.default_rng(3).uniform(1e-30, 1e30, 2000).astype(np.float32)
    values = np.concatenate([values, np.array([1e-45, 2.0, 4.0, 3.4e38], np.float32)])
    assert [read_scalar(encode(root(float(v)), "f32"), "f32") for v in values] == [
        float(np.sqrt(v)) for v in values
    ]


# -- merged axes


def spec(text: str, numerics: str = "strict") -> str:
    return canonicalize(text.encode(), "stablehlo", numerics).spec_text


MERGED_BATCH = """func.func @main(%x: tensor<3x5x7xf32>, %w: tensor<7x4xf32>, %b: tensor<4xf32>) -> tensor<3x5x4xf32> {
  %m = stablehlo.reshape %x : (tensor<3x5x7xf32>) -> tensor<15x7xf32>
  %d = stablehlo.dot_general %m, %w, contracting_dims = [1] x [0] : (tensor<15x7xf32>, tensor<7x4xf32>) -> tensor<15x4xf32>
  %c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<15x4xf32>
  %a = stablehlo.add %d, %c : tensor<15x4xf32>
  %r = stablehlo.reshape %a : (tensor<15x4xf32>) -> tensor<3x5x4xf32>
  return %r : tensor<3x5x4xf32>
}"""
APART = """func.func @main(%x: tensor<3x5x7xf32>, %w: tensor<7x4xf32>, %b: tensor<4xf32>) -> tensor<3x5x4xf32> {
  %d = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0] : (tensor<3x5x7xf32>, tensor<7x4xf32>) -> tensor<3x5x4xf32>
  %c = stablehlo.broadcast_in_dim %b, dims = [2] : (tensor<4xf32>) -> tensor<3x5x4xf32>
  %r = stablehlo.add %d, %c : tensor<3x5x4xf32>
  return %r : tensor<3x5x4xf32>
}"""


def test_a_linear_layer_over_merged_axes_is_one_over_the_axes() -> None:
    assert spec(MERGED_BATCH) == spec(APART)


def test_axes_that_are_split_otherwise_stay_merged() -> None:
    other = MERGED_BATCH.replace("-> tensor<3x5x4xf32>", "-> tensor<5x3x4xf32>").replace(
        "return %r : tensor<3x5x4xf32>", "return %r : tensor<5x3x4xf32>"
    )
    assert spec(other) != spec(APART)
    assert "reshape" in spec(other)


@pytest.mark.parametrize("text", [MERGED_BATCH, APART])
def test_a_layer_over_merged_axes_computes_what_was_written(text: str) -> None:
    form = canonicalize(text.encode(), "stablehlo", "strict")
    rng = np.random.default_rng(4)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5, 7), (7, 4), (4,)))
    (result,) = kernel_of(render(form.spec_text, ArgSpec(form.arg_spec.args)))(x, w, b)
    assert np.allclose(result, x @ w + b, rtol=1e-5, atol=1e-5)


def flattened(combiner: str, start: str) -> tuple[str, str]:
    """A reduction of all of ``x``, of it flattened; and over one axis after the other."""
    scalar = f"%i = stablehlo.constant dense<{start}> : tensor<f32>\n"
    whole = f"""func.func @main(%x: tensor<3x5xf32>) -> tensor<f32> {{
      {scalar}%m = stablehlo.reshape %x : (tensor<3x5xf32>) -> tensor<15xf32>
      %r = stablehlo.reduce(%m init: %i) applies stablehlo.{combiner} across dimensions = [0] : (tensor<15xf32>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32> }}"""
    nested = f"""func.func @main(%x: tensor<3x5xf32>) -> tensor<f32> {{
      {scalar}%m = stablehlo.reduce(%x init: %i) applies stablehlo.{combiner} across dimensions = [1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<3xf32>
      %r = stablehlo.reduce(%m init: %i) applies stablehlo.{combiner} across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32> }}"""
    return whole, nested


def test_a_greatest_value_of_greatest_values_is_the_greatest_of_all() -> None:
    whole, nested = flattened("maximum", "0xFF800000")
    assert spec(whole) == spec(nested)


def test_sums_of_sums_are_one_sum_where_values_may_change() -> None:
    whole, nested = flattened("add", "0.0")
    assert spec(whole) != spec(nested)
    assert spec(whole, "default") == spec(nested, "default")


def test_the_sum_of_a_matrix_product_stays_a_contraction() -> None:
    text = """func.func @main(%x: tensor<3x5xf32>, %w: tensor<5x4xf32>) -> tensor<3xf32> {
      %i = stablehlo.constant dense<0.0> : tensor<f32>
      %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<3x5xf32>, tensor<5x4xf32>) -> tensor<3x4xf32>
      %r = stablehlo.reduce(%d init: %i) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
      return %r : tensor<3xf32> }"""
    assert spec(text, "default").count("reduce") == 2

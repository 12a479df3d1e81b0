"""Sums of columns: rows are added up before they join a sum, so that its error stays small."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.lower.loops.segment import SUMMED_ROWS
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, kernel_of, threaded_host

#: From this number on, adding 1 in f32 changes nothing.
LARGE = 2.0**24


def sums_of_columns(rows: int, columns: int, start: str = "0.0") -> str:
    """Of the elements, and of their squares."""
    kind, result = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}xf32>"
    return f"""
    func.func @main(%x: {kind}) -> ({result}, {result}) {{
      %start = stablehlo.constant dense<{start}> : tensor<f32>
      %square = stablehlo.multiply %x, %x : {kind}
      %0 = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0]
        : ({kind}, tensor<f32>) -> {result}
      %1 = stablehlo.reduce(%square init: %start) applies stablehlo.add across dimensions = [0]
        : ({kind}, tensor<f32>) -> {result}
      return %0, %1 : {result}, {result}
    }}"""


def compiled(text: str, numerics: str = "default") -> Kernel:
    return Kernel(lower_module(text, 2, "x86-64-v2", CompileOptions(numerics=numerics), lambda _: None))


def error(result: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(result - wanted) / np.linalg.norm(wanted))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rows", [1, 17, SUMMED_ROWS**2 - 1, SUMMED_ROWS**2, SUMMED_ROWS**2 + 13, 5000])
@pytest.mark.parametrize("columns", [16, 67])
def test_sums_are_those_of_all_rows(rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    wide = x.astype(np.float64)
    kernel = compiled(sums_of_columns(rows, columns))
    alone, threaded = kernel(x), kernel(x, host=threaded_host())
    for total, same, terms in zip(alone, threaded, (wide, wide**2), strict=True):
        np.testing.assert_allclose(total, terms.sum(0), rtol=0, atol=1e-6 * np.abs(terms).sum(0).max())
        assert np.array_equal(total, same)


def test_the_error_grows_with_a_part_of_the_rows() -> None:
    """``strict`` adds one row after the other."""
    x = np.random.default_rng(0).random((20_000, 64), np.float32)
    text, wide = sums_of_columns(*x.shape), x.astype(np.float64)
    pairs = zip(compiled(text)(x), compiled(text, "strict")(x), (wide, wide**2), strict=True)
    for default, strict, terms in pairs:
        assert error(default, terms.sum(0)) < 0.4 * error(strict, terms.sum(0))


def test_sums_of_negative_zeros_are_negative() -> None:
    x = np.full((300, 16), -0.0, np.float32)
    sums, squares = compiled(sums_of_columns(300, 16, "-0.0"))(x)
    assert np.signbit(sums).all()
    assert not np.signbit(squares).any()


@pytest.mark.parametrize(("numerics", "added"), [("strict", 0), ("default", 64)])
def test_small_elements_are_not_lost_in_a_large_total(numerics: str, added: int) -> None:
    text = f"""
func.func @main(%a: tensor<64x40xf32>) -> tensor<40xf32> {{
  %start = stablehlo.constant dense<{LARGE}> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %start) applies stablehlo.add across dimensions = [0]
    : (tensor<64x40xf32>, tensor<f32>) -> tensor<40xf32>
  return %0 : tensor<40xf32>
}}"""
    (result,) = kernel_of(text, "x86-64-v3", numerics=numerics)(np.ones((64, 40), np.float32))
    np.testing.assert_array_equal(result, np.full(40, LARGE + added, np.float32))

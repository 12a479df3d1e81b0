"""Integers as bf16, by way of f32: LLVM has a function for it that no library has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.compiler.codegen_harness import NUMPY, kernel_of, runs_here

TEXT = """func.func @main(%a: tensor<{n}xi8>, %b: tensor<{n}xi8>) -> tensor<{n}xbf16> {{
  %p = stablehlo.compare NE, %a, %b, SIGNED : (tensor<{n}xi8>, tensor<{n}xi8>) -> tensor<{n}xi1>
  %f = stablehlo.convert %p : (tensor<{n}xi1>) -> tensor<{n}xf32>
  %r = stablehlo.convert %f : (tensor<{n}xf32>) -> tensor<{n}xbf16>
  return %r : tensor<{n}xbf16> }}"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("n", [1, 3, 52, 1000])
def test_truth_values_by_way_of_single_precision(target: str, n: int) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine does not have {target}")
    generator = np.random.default_rng(n)
    a, b = (generator.integers(0, 2, n).astype(np.int8) for _ in range(2))
    (got,) = kernel_of(TEXT.format(n=n), target)(a, b)
    np.testing.assert_array_equal(got, (a != b).astype(ml_dtypes.bfloat16))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("element", ["i8", "ui8", "i16", "i32", "i64", "ui64"])
@pytest.mark.parametrize("n", [1, 52])
def test_integers_by_way_of_single_precision(n: int, element: str, opt_level: int) -> None:
    text = f"""func.func @main(%a: tensor<{n}x{element}>) -> tensor<{n}xbf16> {{
      %f = stablehlo.convert %a : (tensor<{n}x{element}>) -> tensor<{n}xf32>
      %r = stablehlo.convert %f : (tensor<{n}xf32>) -> tensor<{n}xbf16>
      return %r : tensor<{n}xbf16> }}"""
    size = np.dtype(NUMPY[element]).itemsize
    a = np.frombuffer(np.random.default_rng(n).bytes(n * size), NUMPY[element])
    (got,) = kernel_of(text, "x86-64-v2", opt_level)(a)
    np.testing.assert_array_equal(got, a.astype(np.float32).astype(ml_dtypes.bfloat16))

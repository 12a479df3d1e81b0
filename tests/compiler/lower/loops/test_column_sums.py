"""Sums along an outer axis: rows are summed in blocks, unless the order of the program counts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import kernel_of

#: From this number on, adding 1 in f32 changes nothing.
LARGE = 2.0**24


@pytest.mark.parametrize(("numerics", "added"), [("strict", 0), ("default", 64)])
def test_small_elements_are_not_lost_in_a_large_total(numerics: str, added: int):
    text = f"""
func.func @main(%a: tensor<64x40xf32>) -> tensor<40xf32> {{
  %start = stablehlo.constant dense<{LARGE}> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %start) applies stablehlo.add across dimensions = [0]
    : (tensor<64x40xf32>, tensor<f32>) -> tensor<40xf32>
  return %0 : tensor<40xf32>
}}"""
    (result,) = kernel_of(text, "x86-64-v3", numerics=numerics)(np.ones((64, 40), np.float32))
    np.testing.assert_array_equal(result, np.full(40, LARGE + added, np.float32))

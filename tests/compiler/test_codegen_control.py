"""Control flow carries every element type, in place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import NUMPY, kernel_of

UNSIGNED = ("ui8", "ui16", "ui32", "ui64")


def _near_the_top(dtype: str) -> np.ndarray:
    return np.array([3, 5, np.iinfo(NUMPY[dtype]).max - 6], NUMPY[dtype])


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_a_loop_carries_unsigned_values(dtype: str) -> None:
    kind = f"tensor<3x{dtype}>"
    kernel = kernel_of(f"""
      func.func @main(%n: tensor<ui32>, %x: {kind}) -> {kind} {{
        %one = stablehlo.constant dense<1> : tensor<ui32>
        %zero = stablehlo.constant dense<0> : tensor<ui32>
        %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<ui32>, {kind}
          cond {{
            %p = stablehlo.compare LT, %i, %n : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            %j = stablehlo.add %i, %one : tensor<ui32>
            %c = stablehlo.divide %a, %x : {kind}
            %d = stablehlo.subtract %c, %x : {kind}
            stablehlo.return %j, %d : tensor<ui32>, {kind}
          }}
        return %r#1 : {kind}
      }}""")
    x = _near_the_top(dtype)
    expected = x
    for _ in range(3):
        expected = expected // x - x
    np.testing.assert_array_equal(kernel(np.uint32(3), x)[0], expected)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_branches_give_unsigned_values(dtype: str) -> None:
    kind = f"tensor<3x{dtype}>"
    kernel = kernel_of(f"""
      func.func @main(%p: tensor<i1>, %q: tensor<i32>, %x: {kind}) -> ({kind}, {kind}) {{
        %r = "stablehlo.if"(%p) ({{
          stablehlo.return %x : {kind}
        }}, {{
          %y = stablehlo.divide %x, %x : {kind}
          stablehlo.return %y : {kind}
        }}) : (tensor<i1>) -> {kind}
        %s = "stablehlo.case"(%q) ({{
          stablehlo.return %x : {kind}
        }}, {{
          %y = stablehlo.minimum %x, %r : {kind}
          stablehlo.return %y : {kind}
        }}) : (tensor<i32>) -> {kind}
        return %r, %s : {kind}, {kind}
      }}""")
    x = _near_the_top(dtype)
    ones = np.ones_like(x)
    for choice, taken in ((True, x), (False, ones)):
        for branch, result in ((0, x), (1, taken)):
            first, second = kernel(np.bool_(choice), np.int32(branch), x)
            np.testing.assert_array_equal(first, taken)
            np.testing.assert_array_equal(second, result)

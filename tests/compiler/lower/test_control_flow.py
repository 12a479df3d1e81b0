"""Control flow carries every element type, in place; tensors without elements go anywhere."""

# ruff: noqa: E501 (programs as text)

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import NUMPY, kernel_of

UNSIGNED = ("ui8", "ui16", "ui32", "ui64")


def _near_the_top(dtype: str) -> np.ndarray:
    return np.array([3, 5, np.iinfo(NUMPY[dtype]).max - 6], NUMPY[dtype])


@pytest.mark.sampled(4)
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


def test_a_loop_drops_values_that_its_body_does_not_read() -> None:
    """The condition alone reads ``%more``: what the body yields for it still reaches the next condition."""
    kernel = kernel_of("""
      func.func @main(%n: tensor<i32>, %x: tensor<3xf32>) -> tensor<3xf32> {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %true = stablehlo.constant dense<true> : tensor<i1>
        %r:4 = stablehlo.while(%i = %zero, %more = %true, %a = %x, %b = %x) : tensor<i32>, tensor<i1>, tensor<3xf32>, tensor<3xf32>
          cond {
            stablehlo.return %more : tensor<i1>
          } do {
            %j = stablehlo.add %i, %one : tensor<i32>
            %p = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %c = stablehlo.add %a, %b : tensor<3xf32>
            stablehlo.return %j, %p, %b, %c : tensor<i32>, tensor<i1>, tensor<3xf32>, tensor<3xf32>
          }
        return %r#3 : tensor<3xf32>
      }""")
    x = np.array([1, -2, 3], "f4")
    for n, factor in ((0, 2), (1, 2), (2, 3), (5, 13)):
        np.testing.assert_array_equal(kernel(np.int32(n), x)[0], factor * x)


@pytest.mark.parametrize("dtype", ["f32", "ui8"])
def test_slices_and_pads_of_no_elements(dtype: str) -> None:
    kernel = kernel_of(f"""
      func.func @main(%x: tensor<4x2x{dtype}>, %p: tensor<{dtype}>, %i: tensor<i32>) -> (tensor<4x0x{dtype}>, tensor<4x2x{dtype}>, tensor<4x2x{dtype}>) {{
        %none = stablehlo.slice %x [0:4, 2:2:2] : (tensor<4x2x{dtype}>) -> tensor<4x0x{dtype}>
        %pad = stablehlo.pad %none, %p, low = [0, 2], high = [0, 0], interior = [0, 1] : (tensor<4x0x{dtype}>, tensor<{dtype}>) -> tensor<4x2x{dtype}>
        %same = stablehlo.dynamic_update_slice %x, %none, %i, %i : (tensor<4x2x{dtype}>, tensor<4x0x{dtype}>, tensor<i32>, tensor<i32>) -> tensor<4x2x{dtype}>
        return %none, %pad, %same : tensor<4x0x{dtype}>, tensor<4x2x{dtype}>, tensor<4x2x{dtype}>
      }}""")
    x = np.arange(8).reshape(4, 2).astype(NUMPY[dtype])
    none, padded, same = kernel(x, NUMPY[dtype](7), np.int32(2))
    assert none.shape == (4, 0)
    np.testing.assert_array_equal(padded, np.full((4, 2), 7))
    np.testing.assert_array_equal(same, x)


def test_a_loop_ends_when_sizes_do_not_fit() -> None:
    """The launch that counts is skipped after an error, and the condition alone would never fail."""
    kind = "tensor<?xf32>"
    kernel = kernel_of(f"""
      func.func @main(%n: tensor<i32>, %a: {kind}, %b: {kind}) -> {kind} {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, {kind}
          cond {{
            %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            %j = stablehlo.add %i, %one : tensor<i32>
            %y = stablehlo.add %x, %b : {kind}
            stablehlo.return %j, %y : tensor<i32>, {kind}
          }}
        return %r#1 : {kind}
      }}""")
    x = np.array([1, 2, 3], "f4")
    np.testing.assert_array_equal(kernel(np.int32(4), x, x)[0], 5 * x)
    with pytest.raises(RuntimeError, match="sizes of the arguments do not fit"):
        kernel(np.int32(4), x, np.ones(5, "f4"))


def test_a_reshape_to_its_own_type_is_the_value() -> None:
    kernel = kernel_of("""
      func.func @main(%x: tensor<ui8>) -> tensor<ui8> {
        %r = stablehlo.reshape %x : (tensor<ui8>) -> tensor<ui8>
        return %r : tensor<ui8>
      }""")
    assert kernel(np.uint8(200))[0] == 200


def test_windows_of_no_elements() -> None:
    def windows(rows: int, results: int) -> str:
        return f"""
          func.func @main(%x: tensor<{rows}x4xf32>) -> tensor<{results}x0xf32> {{
            %none = stablehlo.slice %x [0:{rows}, 4:4] : (tensor<{rows}x4xf32>) -> tensor<{rows}x0xf32>
            %z = stablehlo.constant dense<0.0> : tensor<f32>
            %r = "stablehlo.reduce_window"(%none, %z) <{{window_dimensions = array<i64: 2, 1>}}> ({{
              ^bb0(%a: tensor<f32>, %b: tensor<f32>):
                %s = stablehlo.add %a, %b : tensor<f32>
                stablehlo.return %s : tensor<f32>
            }}) : (tensor<{rows}x0xf32>, tensor<f32>) -> tensor<{results}x0xf32>
            return %r : tensor<{results}x0xf32>
          }}"""

    assert kernel_of(windows(3, 2))(np.zeros((3, 4), "f4"))[0].shape == (2, 0)


@pytest.mark.parametrize("place", ["computed", "looked up"])
def test_a_loop_replaces_slices_at_places_that_it_computes(place: str) -> None:
    start = {
        "computed": "%at = stablehlo.multiply %i, %two : tensor<i32>",
        "looked up": """
            %found = stablehlo.dynamic_slice %places, %i, sizes = [1] : (tensor<4xi32>, tensor<i32>) -> tensor<1xi32>
            %at = stablehlo.reshape %found : (tensor<1xi32>) -> tensor<i32>""",
    }[place]
    kernel = kernel_of(f"""
      func.func @main(%places: tensor<4xi32>, %x: tensor<1x5xf32>, %y: tensor<8x5xf32>) -> tensor<8x5xf32> {{
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %two = stablehlo.constant dense<2> : tensor<i32>
        %four = stablehlo.constant dense<4> : tensor<i32>
        %r:3 = stablehlo.while(%i = %zero, %row = %x, %all = %y) : tensor<i32>, tensor<1x5xf32>, tensor<8x5xf32>
          cond {{
            %p = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            %next = stablehlo.add %i, %one : tensor<i32>
            %sum = stablehlo.add %row, %row : tensor<1x5xf32>
            {start}
            %new = stablehlo.dynamic_update_slice %all, %sum, %at, %zero : (tensor<8x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<8x5xf32>
            stablehlo.return %next, %sum, %new : tensor<i32>, tensor<1x5xf32>, tensor<8x5xf32>
          }}
        return %r#2 : tensor<8x5xf32>
      }}""")
    places = np.array([7, 1, 7, 4], np.int32)
    x, y = np.arange(5, dtype=np.float32)[None], np.full((8, 5), -1, np.float32)
    expected = y.copy()
    for number, at in enumerate([0, 2, 4, 6] if place == "computed" else places):
        expected[at] = x[0] * 2 ** (number + 1)
    np.testing.assert_array_equal(kernel(places, x, y)[0], expected)


@pytest.mark.parametrize("reshaped", [False, True])
def test_a_branch_that_is_a_slice(reshaped: bool) -> None:
    kind = "tensor<9xf32>" if reshaped else "tensor<3x3xf32>"
    kernel = kernel_of(f"""
      func.func @main(%x: tensor<4x3xf32>, %y: {kind}, %i: tensor<i64>, %p: tensor<i1>) -> {kind} {{
        %s = stablehlo.dynamic_slice %x, %i, %i, sizes = [3, 3] : (tensor<4x3xf32>, tensor<i64>, tensor<i64>) -> tensor<3x3xf32>
        %t = stablehlo.reshape %s : (tensor<3x3xf32>) -> {kind}
        %r = "stablehlo.if"(%p) ({{
          stablehlo.return %y : {kind}
        }}, {{
          stablehlo.return %t : {kind}
        }}) : (tensor<i1>) -> {kind}
        return %r : {kind}
      }}""")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y = -np.ones((9,) if reshaped else (3, 3), np.float32)
    for place, row in ((-1, 0), (0, 0), (1, 1), (7, 1)):
        for choice, expected in ((True, y), (False, x[row : row + 3].reshape(y.shape))):
            (result,) = kernel(x, y, np.int64(place), np.bool_(choice))
            np.testing.assert_array_equal(result, expected)

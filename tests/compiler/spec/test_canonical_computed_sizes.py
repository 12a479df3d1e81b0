"""Axes that are indexed by what their size is part of keep it; others are symbols."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kcache_compiler.spec import canonicalize


def sliced(size: int, index: str) -> str:
    return f"""func.func @main(%x: tensor<{size}x3xf32>, %i: tensor<i32>) -> tensor<1x3xf32> {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %n = stablehlo.constant dense<{size}> : tensor<i32>
      {index}
      %r = stablehlo.dynamic_slice %x, %j, %z, sizes = [1, 3]
        : (tensor<{size}x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      return %r : tensor<1x3xf32> }}"""


FROM_THE_END = """%m = stablehlo.add %i, %n : tensor<i32>
  %p = stablehlo.compare LT, %i, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %j = stablehlo.select %p, %m, %i : tensor<i1>, tensor<i32>"""
AS_GIVEN = "%j = stablehlo.add %i, %i : tensor<i32>"


def looked_up(size: int, index: str) -> str:
    return f"""func.func @main(%x: tensor<{size}x3xf32>, %i: tensor<i32>) -> tensor<3xf32> {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %n = stablehlo.constant dense<{size}> : tensor<i32>
      {index}
      %k = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
      %r = "stablehlo.gather"(%x, %k) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0],
        collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 3>}}>
        : (tensor<{size}x3xf32>, tensor<1xi32>) -> tensor<3xf32>
      return %r : tensor<3xf32> }}"""


def looped(size: int, turns: int) -> str:
    return f"""func.func @main(%x: tensor<{size}xf32>) -> tensor<1xf32> {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %n = stablehlo.constant dense<{turns}> : tensor<i32>
      %s = stablehlo.constant dense<0.0> : tensor<1xf32>
      %r:2 = stablehlo.while(%i = %z, %t = %s) : tensor<i32>, tensor<1xf32>
      cond {{
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %a = stablehlo.dynamic_slice %x, %i, sizes = [1]
          : (tensor<{size}xf32>, tensor<i32>) -> tensor<1xf32>
        %u = stablehlo.add %t, %a : tensor<1xf32>
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %u : tensor<i32>, tensor<1xf32>
      }}
      return %r#1 : tensor<1xf32> }}"""


def first_axis(text: str) -> int | str:
    return canonicalize(text.encode(), "stablehlo").symbolic_args[0].dims[0]


@pytest.mark.parametrize("program", [sliced, looked_up])
def test_an_axis_indexed_from_its_end_keeps_its_size(program: Callable[[int, str], str]) -> None:
    assert first_axis(program(6, FROM_THE_END)) == 6
    assert first_axis(program(6, AS_GIVEN)) == "s0"


def test_an_axis_that_a_loop_walks_keeps_its_size() -> None:
    assert first_axis(looped(6, 6)) == 6
    assert first_axis(looped(6, 4)) == "s0"


def test_an_axis_that_is_taken_whole_is_a_symbol() -> None:
    text = (
        sliced(6, AS_GIVEN)
        .replace("%j, %z, sizes", "%j, %k, sizes")
        .replace("%j =", "%k = stablehlo.add %i, %n : tensor<i32>\n%j =")
    )
    assert canonicalize(
        text.replace("x3x", "x6x").replace("[1, 3]", "[1, 6]").encode(), "stablehlo"
    ).symbolic_args[0].dims == ("s0", "s1")

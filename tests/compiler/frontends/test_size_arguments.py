"""Integers among the arguments that say how large something is: which they are, and what a spec has of them."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.types import Canonical, CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.harness.native import run

#: As ``jax.export`` writes a function of a symbol: the size goes to the functions that need it.
CALLED = """
func.func public @main(%n: tensor<i64>, %x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = call @counted(%n, %x) : (tensor<i64>, tensor<?x3xf32>) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
func.func private @shape(%n: tensor<i64>) -> tensor<2xi32> {
  %0 = stablehlo.convert %n : (tensor<i64>) -> tensor<i32>
  %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
  %2 = stablehlo.constant dense<3> : tensor<1xi32>
  %3 = stablehlo.concatenate %1, %2, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  return %3 : tensor<2xi32>
}
func.func private @counted(%n: tensor<i64>, %x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = call @shape(%n) : (tensor<i64>) -> tensor<2xi32>
  %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<2xi32>) -> tensor<?x3xf32>
  %2 = stablehlo.add %x, %1 : tensor<?x3xf32>
  return %2 : tensor<?x3xf32>
}
"""
#: The size is carried around a loop.
LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %made:3 = stablehlo.while(%i = %zero, %k = %n, %y = %x) : tensor<i32>, tensor<i32>, tensor<?xf32>
  cond {
    %less = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  } do {
    %shape = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
    %count = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    %sum = stablehlo.add %y, %count : tensor<?xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %k, %sum : tensor<i32>, tensor<i32>, tensor<?xf32>
  }
  return %made#2 : tensor<?xf32>
}
"""
#: A shape, an amount of padding, and a number that is data beside them.
SHAPES = """
func.func @main(%x: tensor<?xf32>, %shape: tensor<2xi32>, %low: tensor<1xi64>, %data: tensor<i32>)
    -> (tensor<?x?xf32>, tensor<?xf32>, tensor<2xi32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<1xi64>
  %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %1 = stablehlo.dynamic_pad %x, %zero, %low, %none, %none
    : (tensor<?xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %0, %1, %shape, %data : tensor<?x?xf32>, tensor<?xf32>, tensor<2xi32>, tensor<i32>
}
"""
#: As ``lax.dynamic_slice`` from a place that is data, of as many elements as an argument says.
MOVED = """
func.func @main(%n: tensor<i32>, %at: tensor<i32>, %y: tensor<9xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %nine = stablehlo.constant dense<9> : tensor<1xi32>
  %count = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %from = stablehlo.reshape %at : (tensor<i32>) -> tensor<1xi32>
  %last = stablehlo.subtract %nine, %count : tensor<1xi32>
  %first = stablehlo.clamp %zero, %from, %last : tensor<1xi32>
  %end = stablehlo.add %first, %count : tensor<1xi32>
  %made = stablehlo.real_dynamic_slice %y, %first, %end, %one
    : (tensor<9xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  return %made : tensor<?xf32>
}
"""
#: Sizes stated: an integer argument is data, whatever is computed of it.
STATED = """
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.add %x, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
"""
#: Twice as many as an argument says are counted, and meet an array: by themselves, and in a reduction.
TWICE = """
func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> (tensor<?xf32>, tensor<i32>) {
  %two = stablehlo.constant dense<2> : tensor<i32>
  %twice = stablehlo.multiply %n, %two : tensor<i32>
  %shape = stablehlo.reshape %twice : (tensor<i32>) -> tensor<1xi32>
  %fill = stablehlo.constant dense<1.0> : tensor<f32>
  MADE
}
"""
MET = {
    "fill": """
  %ones = stablehlo.dynamic_broadcast_in_dim %fill, %shape, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %sum = stablehlo.add %ones, %x : tensor<?xf32>
  return %sum, %n : tensor<?xf32>, tensor<i32>
""",
    "count": """
  %count = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %first = stablehlo.constant dense<0> : tensor<i32>
  %found:2 = stablehlo.reduce(%x init: %least), (%count init: %first) across dimensions = [0]
    : (tensor<?xf32>, tensor<?xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
    reducer(%a: tensor<f32>, %c: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
      %more = stablehlo.compare GT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %value = stablehlo.select %more, %a, %c : tensor<i1>, tensor<f32>
      %place = stablehlo.select %more, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %value, %place : tensor<f32>, tensor<i32>
    }
  %sum = stablehlo.add %x, %x : tensor<?xf32>
  return %sum, %found#1 : tensor<?xf32>, tensor<i32>
""",
}
#: Programs of a vector, and of something that is as long as twice what an argument says.
MISFITS = {
    "product": """
  %r = stablehlo.dot_general %x, %count, contracting_dims = [0] x [0] : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
  return %r : tensor<f32>
""",
    "map": """
  %r = "stablehlo.map"(%x, %count) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
""",
    "complex": """
  %c = stablehlo.complex %x, %count : tensor<?xcomplex<f32>>
  %square = stablehlo.multiply %c, %c : tensor<?xcomplex<f32>>
  %r = stablehlo.real %square : (tensor<?xcomplex<f32>>) -> tensor<?xf32>
  return %r : tensor<?xf32>
""",
    "gathered": """
  %g = "stablehlo.gather"(%x, %places) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}>
    : (tensor<?xf32>, tensor<?xi32>) -> tensor<?xf32>
  %r = stablehlo.add %g, %x : tensor<?xf32>
  return %r : tensor<?xf32>
""",
    "branch": """
  %r = "stablehlo.if"(%true) ({
    %sum = stablehlo.add %x, %count : tensor<?xf32>
    stablehlo.return %sum : tensor<?xf32>
  }, {
    stablehlo.return %x : tensor<?xf32>
  }) : (tensor<i1>) -> tensor<?xf32>
  return %r : tensor<?xf32>
""",
    "joined": """
  %half = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %part = stablehlo.dynamic_iota %half, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %whole = stablehlo.concatenate %part, %part, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %r = stablehlo.add %whole, %x : tensor<?xf32>
  return %r : tensor<?xf32>
""",
}


def _canonical(text: str) -> Canonical:
    return canonicalize(text.encode(), "stablehlo", "strict")


def _outputs(text: str, inputs: list[np.ndarray], dims: tuple[int, ...]) -> list[np.ndarray]:
    canonical = _canonical(text)
    options = CompileOptions(numerics="strict")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, host_target().isa, options, lambda _: None)
    outputs = run(kernel, [array.tobytes() for array in inputs], [], dims)
    kinds = {"f32": np.float32, "i32": np.int32}
    return [
        np.frombuffer(content, kinds[type.dtype])
        for content, type in zip(outputs, canonical.results, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "sizes", "spec"),
    [
        (CALLED, (0,), "i64[s0,0];f32[s0,3]"),
        (LOOP, (0,), "i32[s0,0];f32[s0]"),
        (SHAPES, (1, 2), "f32[s0];i32[s1,s2,0];i64[s3,0];i32[]"),
        (MOVED, (0,), "i32[s0,0];i32[];f32[9]"),
        (STATED, (), "i32[];f32[4]"),
    ],
    ids=["calls", "loop", "shapes", "place", "stated"],
)
def test_arguments_that_sizes_are_made_of_are_axes(text: str, sizes: tuple[int, ...], spec: str) -> None:
    canonical = _canonical(text)
    assert canonical.size_arguments == sizes
    assert ";".join(map(str, canonical.symbolic_args)) == (spec if sizes else "i32[];f32[s0]")
    again = canonicalize(render(canonical.spec_text, canonical.arg_spec).encode(), "stablehlo", "strict")
    assert again.spec_text == canonical.spec_text
    assert again.size_arguments == ()


def test_a_size_that_an_argument_has_too_is_one_symbol() -> None:
    """A call in which they differ is rejected before anything runs."""
    for text in (CALLED, LOOP):
        assert [symbol.name for symbol in _canonical(text).symbols] == ["s0"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_kernels_take_the_sizes_of_the_call(n: int) -> None:
    nothing, rows = np.zeros(0), np.arange(3 * n, dtype=np.float32)
    (result,) = _outputs(CALLED, [nothing, rows], (n,))
    np.testing.assert_array_equal(result.reshape(n, 3), rows.reshape(n, 3) + np.arange(n)[:, None])
    (result,) = _outputs(LOOP, [nothing, rows[:n]], (n,))
    np.testing.assert_array_equal(result, rows[:n] + 3 * np.arange(n))
    for at in (-1, 3, 100):
        y = np.arange(9, dtype=np.float32)
        (result,) = _outputs(MOVED, [nothing, np.array(at, np.int32), y], (n,))
        first = min(max(at, 0), 9 - n)
        np.testing.assert_array_equal(result, y[first : first + n])


def test_lists_of_sizes_and_amounts() -> None:
    x, nothing = np.arange(1, 7, dtype=np.float32), np.zeros(0)
    whole, padded, shape, data = _outputs(SHAPES, [x, nothing, nothing, np.array(-5, np.int32)], (6, 3, 2, 4))
    np.testing.assert_array_equal(whole, x)
    np.testing.assert_array_equal(padded, np.pad(x, (4, 0)))
    assert (shape.tolist(), data.tolist()) == ([3, 2], [-5])
    with pytest.raises(RuntimeError, match="returned 1"):
        _outputs(SHAPES, [x, nothing, nothing, np.array(0, np.int32)], (6, 3, 3, 4))


@pytest.mark.parametrize("met", list(MET))
def test_what_is_made_with_a_size_fits_what_it_meets(met: str) -> None:
    text = TWICE.replace("MADE", MET[met])
    x, nothing = np.array([1, 5, 2, 3, 4, 0], np.float32), np.zeros(0)
    result, number = _outputs(text, [nothing, x], (3, 6))
    np.testing.assert_array_equal(result, x + (1 if met == "fill" else x))
    assert number.tolist() == [3 if met == "fill" else 1]
    for n in (2, 4):
        with pytest.raises(RuntimeError, match="returned 1"):
            _outputs(text, [nothing, x], (n, 6))


@pytest.mark.parametrize("misfit", list(MISFITS))
def test_sizes_that_fit_nothing_are_rejected(misfit: str) -> None:
    """By all operations of several operands, in branches too, and behind what makes other sizes of a size."""
    counted = """
  %count = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %places = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %true = stablehlo.constant dense<true> : tensor<i1>
"""
    text = TWICE.replace("MADE", counted + MISFITS[misfit])
    results = "tensor<f32>" if misfit == "product" else "tensor<?xf32>"
    text = text.replace("(tensor<?xf32>, tensor<i32>) {", f"{results} {{")
    x, nothing = np.array([1, 5, 2, 3, 4, 0], np.float32), np.zeros(0)
    (result,) = _outputs(text, [nothing, x], (3, 6))
    count, half = np.arange(6), np.tile(np.arange(3), 2)
    want = {"product": [x @ count], "complex": x * x - count * count, "gathered": x + x, "joined": x + half}
    np.testing.assert_array_equal(result, want.get(misfit, x + count))
    for n in (2, 4):
        with pytest.raises(RuntimeError, match="returned 1"):
            _outputs(text, [nothing, x], (n, 6))

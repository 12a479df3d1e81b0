"""Programs in linalg: a family of their own, with the same promises."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.spec import canonicalize, parse
from kcache_compiler.spec.rendering.stablehlo import render
from tests.compiler.variants import commuted, duplicated, outlined, relocated, renamed, shuffled

SOFTMAX = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module {
  func.func private @sums(%x: tensor<4x8xf32>, %i: tensor<4xf32>) -> tensor<4xf32> {
    %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%i : tensor<4xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    return %r : tensor<4xf32>
  }
  func.func @main(%x: tensor<4x8xf32>, %n: tensor<?x8xf32>) -> (tensor<4x8xf32>, tensor<?x8xf32>) {
    %zero = arith.constant 0.0 : f32
    %two = arith.constant 2.0 : f32
    %empty = tensor.empty() : tensor<4x8xf32>
    %exp = linalg.exp ins(%x : tensor<4x8xf32>) outs(%empty : tensor<4x8xf32>) -> tensor<4x8xf32>
    %rows = tensor.empty() : tensor<4xf32>
    %init = linalg.fill ins(%zero : f32) outs(%rows : tensor<4xf32>) -> tensor<4xf32>
    %sum = call @sums(%exp, %init) : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4xf32>
    %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %sum : tensor<4x8xf32>, tensor<4xf32>) outs(%empty : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %q = arith.divf %a, %b : f32
      %t = arith.mulf %q, %two : f32
      linalg.yield %t : f32
    } -> tensor<4x8xf32>
    %i0 = arith.constant 0 : index
    %d = tensor.dim %n, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%d) : tensor<?x8xf32>
    %m = linalg.add ins(%n, %n : tensor<?x8xf32>, tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    return %r, %m : tensor<4x8xf32>, tensor<?x8xf32>
  }
}
"""

MATMUL = """
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x5xf32>) -> tensor<4x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x5xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4x5xf32>) -> tensor<4x5xf32>
  %r = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x5xf32>) outs(%i : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}
"""

LOOP = """
func.func @main(%x: tensor<8xf32>, %n: tensor<i64>) -> tensor<8xf32> {
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  %n0 = tensor.extract %n[] : tensor<i64>
  %count = arith.index_cast %n0 : i64 to index
  %r = scf.for %i = %i0 to %count step %i1 iter_args(%v = %x) -> (tensor<8xf32>) {
    %w = arith.addf %v, %x : tensor<8xf32>
    scf.yield %w : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}
"""


def key(text: str) -> str:
    return canonicalize(text.encode(), "linalg").spec_text


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", [SOFTMAX, MATMUL, LOOP])
@pytest.mark.parametrize("seed", range(3))
def test_writing_it_differently_keeps_the_key(program: str, seed: int) -> None:
    for variant in (renamed, relocated, shuffled, commuted, duplicated, outlined):
        assert key(variant(program, seed)) == key(program), variant.__name__


@pytest.mark.parametrize("program", [SOFTMAX, MATMUL, LOOP])
def test_rendering_and_reading_back_is_the_same_spec(program: str) -> None:
    form = canonicalize(program.encode(), "linalg")
    assert key(render(form.spec_text, form.arg_spec)) == form.spec_text
    assert parse(key(program)).family == "linalg"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arith.divf %a, %b", "arith.divf %b, %a"),
        ("arith.divf %a, %b", "arith.subf %a, %b"),
        ("2.0 : f32", "2.5 : f32"),
        ('["parallel", "reduction"]', '["parallel", "parallel"]'),
        ("linalg.exp", "linalg.tanh"),
        ("return %r, %m", "return %exp, %m"),
        ("#row, #id], iter", "#row, affine_map<(d0, d1) -> (d0, 7 - d1)>], iter"),
    ],
)
def test_another_computation_has_another_key(old: str, new: str) -> None:
    assert old in SOFTMAX
    try:
        assert key(SOFTMAX.replace(old, new)) != key(SOFTMAX)
    except InvalidProgram:
        pytest.skip("not a program")


def test_scalar_arithmetic_commutes() -> None:
    assert key(SOFTMAX.replace("arith.mulf %q, %two", "arith.mulf %two, %q")) == key(SOFTMAX)


def test_a_constant_is_the_same_inside_and_outside_a_region() -> None:
    inside = SOFTMAX.replace("%q = arith.divf", "%two2 = arith.constant 2.0 : f32\n      %q = arith.divf")
    assert key(inside.replace("%q, %two ", "%q, %two2 ")) == key(SOFTMAX)


def test_dynamic_dims_are_symbols() -> None:
    form = canonicalize(SOFTMAX.encode(), "linalg")
    assert str(form.arg_spec) == "f32[4,8];f32[s2,8]"


def test_named_operations_are_generic() -> None:
    assert "linalg.matmul" not in key(MATMUL)
    assert "linalg.generic" in key(MATMUL)


def test_large_constants_are_lifted() -> None:
    values = ", ".join(str(float(i)) for i in range(512))
    program = f"""func.func @main(%x: tensor<512xf32>) -> tensor<512xf32> {{
      %c = arith.constant dense<[{values}]> : tensor<512xf32>
      %r = arith.addf %x, %c : tensor<512xf32>
      return %r : tensor<512xf32>
    }}"""
    form = canonicalize(program.encode(), "linalg")
    assert [c.type.dims for c in form.constants] == [(512,)]
    again = canonicalize(
        render(form.spec_text, form.arg_spec).encode(), "linalg", lifted={1: form.constants[0].digest}
    )
    assert again.spec_text == form.spec_text

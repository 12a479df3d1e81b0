"""Indices that data gives: none reads or writes outside of its tensor."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel

_LOOK_UP = """#m = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<6xi32>, %t: tensor<SIZExf32>) -> tensor<6xf32> {
  %e = tensor.empty() : tensor<6xf32>
  %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel"]}
    ins(%a : tensor<6xi32>) outs(%e : tensor<6xf32>) {
  ^bb0(%x: i32, %o: f32):
    %i = arith.index_cast %x : i32 to index
    %v = tensor.extract %t[%i] : tensor<SIZExf32>
    linalg.yield %v : f32 } -> tensor<6xf32>
  return %r : tensor<6xf32> }"""
_PUT = """func.func @main(%n: tensor<i32>, %t: tensor<5xf32>) -> tensor<5xf32> {
  %one = arith.constant 9.0 : f32
  %x = tensor.extract %n[] : tensor<i32>
  %i = arith.index_cast %x : i32 to index
  %r = tensor.insert %one into %t[%i] : tensor<5xf32>
  return %r : tensor<5xf32> }"""

_SLICES = """func.func @main(%n: tensor<i32>, %t: tensor<8xf32>, %u: tensor<3xf32>)
    -> (tensor<3xf32>, tensor<8xf32>) {
  %x = tensor.extract %n[] : tensor<i32>
  %i = arith.index_cast %x : i32 to index
  %cut = tensor.extract_slice %t[%i] [3] [2] : tensor<8xf32> to tensor<3xf32>
  %put = tensor.insert_slice %u into %t[%i] [3] [1] : tensor<3xf32> into tensor<8xf32>
  return %cut, %put : tensor<3xf32>, tensor<8xf32> }"""


def _kernel(text: str) -> Kernel:
    form = canonicalize(text.encode(), "linalg", "strict")
    options = CompileOptions("strict")
    return Kernel(compile_spec(form.spec_text, form.arg_spec, host_target().isa, options, lambda _: None))


@pytest.mark.parametrize("size", ["5", "?"])
def test_what_is_looked_up_is_of_the_tensor(size: str) -> None:
    kernel = _kernel(_LOOK_UP.replace("SIZE", size))
    places = np.array([0, 4, 5, -1, 2**31 - 1, -(2**31)], "i4")
    (got,) = kernel(places, np.arange(5, dtype="f4"))
    assert got.tolist() == [0, 4, 4, 0, 4, 0]


@pytest.mark.parametrize(("index", "place"), [(2, 2), (5, 4), (-1, 0), (10**9, 4)])
def test_what_is_put_is_put_into_the_tensor(index: int, place: int) -> None:
    (got,) = _kernel(_PUT)(np.array(index, "i4"), np.zeros(5, "f4"))
    assert got.tolist() == [9.0 if one == place else 0.0 for one in range(5)]


@pytest.mark.parametrize("index", [0, 2, 3, 5, 6, 10**9, -1, -(10**9)])
def test_slices_are_inside_of_the_tensor(index: int) -> None:
    numbers = np.arange(8, dtype="f4")
    cut, put = _kernel(_SLICES)(np.array(index, "i4"), numbers, np.array([10, 11, 12], "f4"))
    first = min(max(index, 0), 3)
    assert cut.tolist() == [first, first + 2, first + 4]
    first = min(max(index, 0), 5)
    numbers[first : first + 3] = [10, 11, 12]
    assert put.tolist() == numbers.tolist()

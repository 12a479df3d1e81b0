"""Indices that data, numbers or loops give: none reads or writes outside of its tensor."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
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
    assert got.tolist() == [9.0 if position == place else 0.0 for position in range(5)]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("index", [0, 2, 3, 5, 6, 10**9, -1, -(10**9)])
def test_slices_are_inside_of_the_tensor(index: int) -> None:
    numbers = np.arange(8, dtype="f4")
    cut, put = _kernel(_SLICES)(np.array(index, "i4"), numbers, np.array([10, 11, 12], "f4"))
    first = min(max(index, 0), 3)
    assert cut.tolist() == [first, first + 2, first + 4]
    first = min(max(index, 0), 5)
    numbers[first : first + 3] = [10, 11, 12]
    assert put.tolist() == numbers.tolist()


_NUMBERED = """func.func @main(%t: tensor<SIZExf32>) -> (tensor<1xf32>, tensor<SIZExf32>) {
  %c = arith.constant PLACE : index
  %x = arith.constant 9.0 : f32
  %v = tensor.extract %t[%c] : tensor<SIZExf32>
  %e = tensor.from_elements %v : tensor<1xf32>
  %r = tensor.insert %x into %t[%c] : tensor<SIZExf32>
  return %e, %r : tensor<1xf32>, tensor<SIZExf32> }"""
_COUNTED = """#m = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<6xf32>, %t: tensor<SIZExf32>) -> tensor<6xf32> {
  %r = linalg.generic {indexing_maps = [#m], iterator_types = ["parallel"]} outs(%a : tensor<6xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %c = arith.constant 2 : index
    %j = arith.subi %i, %c : index
    %v = tensor.extract %t[%j] : tensor<SIZExf32>
    linalg.yield %v : f32 } -> tensor<6xf32>
  return %r : tensor<6xf32> }"""
_CUT = """func.func @main(%t: tensor<SIZExf32>) -> tensor<3xf32> {
  %c = arith.constant 4 : index
  %r = tensor.extract_slice %t[%c] [3] [1] : tensor<SIZExf32> to tensor<3xf32>
  return %r : tensor<3xf32> }"""
_PUT_SLICE = """func.func @main(%u: tensor<8xf32>, %t: tensor<?xf32>) -> tensor<?xf32> {
  %r = tensor.insert_slice %u into %t[0] [8] [1] : tensor<8xf32> into tensor<?xf32>
  return %r : tensor<?xf32> }"""


@pytest.mark.parametrize(("place", "reached"), [(0, 0), (4, 4), (5, 4), (900, 4), (-3, 0)])
def test_numbers_are_places_of_the_tensor(place: int, reached: int) -> None:
    kernel = _kernel(_NUMBERED.replace("SIZE", "5").replace("PLACE", str(place)))
    numbers = np.arange(10, 15, dtype="f4")
    cut, put = kernel(numbers)
    assert cut.tolist() == [10 + reached]
    numbers[reached] = 9
    assert put.tolist() == numbers.tolist()


@pytest.mark.parametrize("text", [_NUMBERED.replace("PLACE", "5"), _CUT])
def test_numbers_that_open_sizes_do_not_reach_are_rejected_by_the_kernel(text: str) -> None:
    kernel = _kernel(text.replace("SIZE", "?"))
    assert kernel(np.arange(7, dtype="f4"))[0][0] == (5 if text != _CUT else 4)
    with pytest.raises(RuntimeError, match="do not fit"):
        kernel(np.arange(5, dtype="f4"))


def test_slices_that_open_sizes_do_not_hold_are_rejected_by_the_kernel() -> None:
    kernel = _kernel(_PUT_SLICE)
    (got,) = kernel(np.full(8, 3, "f4"), np.zeros(9, "f4"))
    assert got.tolist() == [3.0] * 8 + [0.0]
    with pytest.raises(RuntimeError, match="do not fit"):
        kernel(np.full(8, 3, "f4"), np.zeros(5, "f4"))


def test_an_offset_that_is_a_number_is_inside() -> None:
    (got,) = _kernel(_CUT.replace("SIZE", "5"))(np.arange(5, dtype="f4"))
    assert got.tolist() == [2, 3, 4]


@pytest.mark.parametrize("size", ["3", "?"])
def test_what_is_counted_is_of_the_tensor(size: str) -> None:
    kernel = _kernel(_COUNTED.replace("SIZE", size))
    (got,) = kernel(np.zeros(6, "f4"), np.arange(10, 13, dtype="f4"))
    assert got.tolist() == [10, 10, 10, 11, 12, 12]


def test_nothing_is_looked_up_in_an_empty_tensor() -> None:
    kernel = _kernel(_LOOK_UP.replace("SIZE", "?"))
    with pytest.raises(RuntimeError, match="do not fit"):
        kernel(np.zeros(6, "i4"), np.zeros(0, "f4"))
    with pytest.raises(UnsupportedOp, match="without elements"):
        _kernel(_LOOK_UP.replace("SIZE", "0"))


_COMPUTED = """func.func @main(%n: tensor<i32>, %t: tensor<5xf32>) -> tensor<8xf32> {
  %x = tensor.extract %n[] : tensor<i32>
  %i = arith.index_cast %x : i32 to index
  %z = arith.constant 0.0 : f32
  STEP
  return %r : tensor<8xf32> }"""


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            "%r = tensor.extract_slice %t[%i] [8] [1] : tensor<5xf32> to tensor<8xf32>",
            "8 elements, 1 apart, of 5",
        ),
        (
            "%r = tensor.extract_slice %t[0] [8] [%i] : tensor<5xf32> to tensor<8xf32>",
            "state the sizes of slices",
        ),
        (
            "%r = tensor.pad %t low[%i] high[%i] { ^bb0(%q: index): tensor.yield %z : f32 } "
            ": tensor<5xf32> to tensor<8xf32>",
            "a padding that is computed",
        ),
    ],
)
def test_what_no_place_mends_is_rejected(step: str, reason: str) -> None:
    with pytest.raises(UnsupportedOp, match=reason):
        _kernel(_COMPUTED.replace("STEP", step))


_ONE_TURN = """func.func @main(%t: tensor<?xf32>) -> (tensor<2xf32>, tensor<1xf32>) {
  %c7 = arith.constant 7 : index
  %c8 = arith.constant 8 : index
  %c1 = arith.constant 1 : index
  %two = tensor.empty() : tensor<2xf32>
  %one = tensor.empty() : tensor<1xf32>
  %r, %s = scf.for %i = %c7 to %c8 step %c1 iter_args(%a = %two, %b = %one)
      -> (tensor<2xf32>, tensor<1xf32>) {
    %cut = tensor.extract_slice %t[%i] [2] [1] : tensor<?xf32> to tensor<2xf32>
    %v = tensor.extract %t[%i] : tensor<?xf32>
    %e = tensor.from_elements %v : tensor<1xf32>
    scf.yield %cut, %e : tensor<2xf32>, tensor<1xf32> }
  return %r, %s : tensor<2xf32>, tensor<1xf32> }"""
_YIELDED = """#m = affine_map<(d0) -> (d0)>
func.func @main(%t: tensor<?xf32>) -> tensor<6xf32> {
  %e = tensor.empty() : tensor<6xf32>
  %q = tensor.empty() : tensor<6xi32>
  %a = linalg.generic {indexing_maps = [#m], iterator_types = ["parallel"]} outs(%q : tensor<6xi32>) {
  ^bb0(%o: i32):
    %c = arith.constant 9 : i32
    linalg.yield %c : i32 } -> tensor<6xi32>
  %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel"]}
    ins(%a : tensor<6xi32>) outs(%e : tensor<6xf32>) {
  ^bb0(%x: i32, %o: f32):
    %i = arith.index_cast %x : i32 to index
    %v = tensor.extract %t[%i] : tensor<?xf32>
    linalg.yield %v : f32 } -> tensor<6xf32>
  return %r : tensor<6xf32> }"""
_HALVED = """#m = affine_map<(d0) -> (d0)>
func.func @main(%t: tensor<?xf32>, %u: tensor<?xf32>) -> tensor<?xf32> {
  %c2 = arith.constant 2 : index
  %r = linalg.generic {indexing_maps = [#m], iterator_types = ["parallel"]} outs(%u : tensor<?xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = arith.divui %i, %c2 : index
    %v = tensor.extract %t[%j] : tensor<?xf32>
    linalg.yield %v : f32 } -> tensor<?xf32>
  return %r : tensor<?xf32> }"""


@pytest.mark.parametrize("size", [4, 9, 20])
def test_places_that_passes_make_numbers_are_of_tensors_of_open_sizes(size: int) -> None:
    numbers = np.arange(size, dtype="f4")
    cut, single = _kernel(_ONE_TURN)(numbers)
    first = min(7, size - 2)
    assert cut.tolist() == [first, first + 1]
    assert single.tolist() == [min(7, size - 1)]
    (got,) = _kernel(_YIELDED)(numbers)
    assert got.tolist() == [min(9, size - 1)] * 6


def test_places_are_computed_of_what_is_counted() -> None:
    (got,) = _kernel(_HALVED)(np.arange(4, dtype="f4"), np.zeros(10, "f4"))
    assert got.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 3]

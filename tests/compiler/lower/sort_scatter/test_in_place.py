"""Scatters that could work in place, in what a sort or another scatter reads as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

SORT = """
func.func @main(%keys: tensor<8xi32>, %v: tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>, tensor<8xi32>) {
  %two = stablehlo.constant dense<2> : tensor<8xi32>
  %w = stablehlo.multiply %v, %two : tensor<8xi32>
  %places = stablehlo.constant dense<[[1], [3]]> : tensor<2x1xi32>
  %new = stablehlo.constant dense<99> : tensor<2xi32>
  %u = "stablehlo.scatter"(%w, %places, %new) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%old: tensor<i32>, %one: tensor<i32>):
      stablehlo.return %one : tensor<i32>
  }) : (tensor<8xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<8xi32>
  %sorted:2 = "stablehlo.sort"(%keys, %w) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
      %less = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
  }) : (tensor<8xi32>, tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>)
  return %u, %sorted#0, %sorted#1 : tensor<8xi32>, tensor<8xi32>, tensor<8xi32>
}
"""
INDICES = """
func.func @main(%i: tensor<8xi32>, %v: tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>) {
  %seven = stablehlo.constant dense<7> : tensor<8xi32>
  %w = stablehlo.subtract %seven, %i : tensor<8xi32>
  %places = stablehlo.constant dense<[[1], [3]]> : tensor<2x1xi32>
  %new = stablehlo.constant dense<5> : tensor<2xi32>
  %u = "stablehlo.scatter"(%w, %places, %new) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%old: tensor<i32>, %one: tensor<i32>):
      stablehlo.return %one : tensor<i32>
  }) : (tensor<8xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<8xi32>
  %rows = stablehlo.reshape %w : (tensor<8xi32>) -> tensor<8x1xi32>
  %r = "stablehlo.scatter"(%v, %rows, %v) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%old: tensor<i32>, %one: tensor<i32>):
      %sum = stablehlo.add %old, %one : tensor<i32>
      stablehlo.return %sum : tensor<i32>
  }) : (tensor<8xi32>, tensor<8x1xi32>, tensor<8xi32>) -> tensor<8xi32>
  return %u, %r : tensor<8xi32>, tensor<8xi32>
}
"""
KEYS = np.array([4, 1, 7, 0, 3, 6, 2, 5], np.int32)
VALUES = np.arange(10, 18, dtype=np.int32)


def changed(values: Any, number: int) -> Any:
    """``values`` with that number at 1 and 3."""
    values = values.copy()
    values[[1, 3]] = number
    return values


@pytest.mark.parametrize("level", [1, 2])
def test_what_a_sort_fetches_is_not_overwritten_before(level: int) -> None:
    results = run(SORT, level)
    expected = changed(2 * VALUES, 99), np.sort(KEYS), (2 * VALUES)[np.argsort(KEYS)]
    assert [list(array) for array in results] == [list(array) for array in expected]


@pytest.mark.parametrize("level", [1, 2])
def test_places_of_a_scatter_are_not_overwritten_before(level: int) -> None:
    results = run(INDICES, level)
    sums = VALUES.copy()
    sums[7 - KEYS] += VALUES
    assert [list(array) for array in results] == [list(changed(7 - KEYS, 5)), list(sums)]


def run(text: str, level: int) -> tuple[Any, ...]:
    """The kernel's results for keys and values."""
    form = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict", opt_level=level)
    compiled = compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", options, lambda _: None)
    constants = [np.frombuffer(c.content, np.int32).reshape(c.type.dims) for c in form.constants]
    return Kernel(compiled)(KEYS, VALUES, *constants)

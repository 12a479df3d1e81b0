"""Reshapes between open and stated sizes: both have as many elements, or nothing is computed."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel


@pytest.mark.parametrize("stated", ["5x3", "15", "7x1x2"])
def test_a_reshape_that_fixes_the_product_of_open_sizes_is_rejected(stated: str) -> None:
    kind = f"tensor<{stated}xf32>"
    text = f"""func.func @main(%a: tensor<?x?xf32>) -> {kind} {{
  %r = stablehlo.reshape %a : (tensor<?x?xf32>) -> {kind}
  return %r : {kind}
}}"""
    with pytest.raises(UnsupportedOp, match="reshape"):
        canonicalize(text.encode(), "stablehlo")


def test_elements_that_do_not_fill_computed_sizes_are_rejected_by_the_kernel() -> None:
    text = """func.func @main(%x: tensor<?x?xf32>, %w: tensor<15xf32>) -> tensor<?x?xf32> {
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %b = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %c = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %d = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %c, %d, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %w, %s : (tensor<15xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}"""
    form = canonicalize(text.encode(), "stablehlo")
    options = CompileOptions(opt_level=1)
    compiled = compile_spec(form.spec_text, form.arg_spec, "x86-64-v2", options, lambda _: None)
    kernel, numbers = Kernel(compiled), np.arange(15, dtype=np.float32)
    (got,) = kernel(np.zeros((3, 5), np.float32), numbers)
    np.testing.assert_array_equal(got, numbers.reshape(3, 5))
    for sizes in ((4, 6), (2, 5), (0, 5)):
        with pytest.raises(RuntimeError, match="do not fit"):
            kernel(np.zeros(sizes, np.float32), numbers)

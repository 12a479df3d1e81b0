"""Linalg programs with erased sizes: one kernel for all agrees with NumPy, and with static kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import Kernel

MAPS = """#whole = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
"""
MATMUL = (
    MAPS
    + """func.func @main(%x: tensor<{a}x{b}xf32>, %y: tensor<{b}x{c}xf32>) -> tensor<{a}x{c}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{a}x{c}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{a}x{c}xf32>) -> tensor<{a}x{c}xf32>
  %r = linalg.generic {{indexing_maps = [#left, #right, #out],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %y : tensor<{a}x{b}xf32>, tensor<{b}x{c}xf32>) outs(%f : tensor<{a}x{c}xf32>) {{
  ^bb0(%p: f32, %q: f32, %s: f32):
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %t, %s : f32
    linalg.yield %u : f32
  }} -> tensor<{a}x{c}xf32>
  return %r : tensor<{a}x{c}xf32>
}}
"""
)
WEIGHTED_SUMS = (
    MAPS
    + """func.func @main(%x: tensor<{a}x{b}xf32>, %y: tensor<{b}xf32>) -> tensor<{a}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{a}x{b}xf32>
  %w = linalg.generic {{indexing_maps = [#whole, #columns, #whole],
      iterator_types = ["parallel", "parallel"]}}
      ins(%x, %y : tensor<{a}x{b}xf32>, tensor<{b}xf32>) outs(%e : tensor<{a}x{b}xf32>) {{
  ^bb0(%p: f32, %q: f32, %s: f32):
    %t = arith.mulf %p, %q : f32
    linalg.yield %t : f32
  }} -> tensor<{a}x{b}xf32>
  %n = tensor.empty() : tensor<{a}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%n : tensor<{a}xf32>) -> tensor<{a}xf32>
  %r = linalg.generic {{indexing_maps = [#whole, #rows], iterator_types = ["parallel", "reduction"]}}
      ins(%w : tensor<{a}x{b}xf32>) outs(%f : tensor<{a}xf32>) {{
  ^bb0(%p: f32, %s: f32):
    %u = arith.addf %p, %s : f32
    linalg.yield %u : f32
  }} -> tensor<{a}xf32>
  return %r : tensor<{a}xf32>
}}
"""
)
CASES: dict[str, tuple[str, Callable[..., list[tuple[int, ...]]], Callable[..., Any]]] = {
    "matmul": (MATMUL, lambda a, b, c: [(a, b), (b, c)], lambda x, y: x @ y),
    "weighted sums": (WEIGHTED_SUMS, lambda a, b, c: [(a, b), (b,)], lambda x, y: (x * y).sum(1)),
}
STRICT = CompileOptions(numerics="strict")


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_is_right_at_all_sizes(name: str) -> None:
    text, shapes, reference = CASES[name]

    def canonical(a: int, b: int, c: int) -> Any:
        return canonicalize(text.format(a=a, b=b, c=c).encode(), "linalg", "strict")

    def compiled(spec: str, args: Any) -> Kernel:
        return Kernel(compile_spec(spec, ArgSpec(args), "x86-64-v2", STRICT, lambda _: None))

    spec = canonical(4, 8, 6)
    assert canonical(5, 3, 7).spec_digest == spec.spec_digest
    dynamic = compiled(spec.spec_text, spec.symbolic_args)
    drawn = random.Random(name)
    sizes = [(1, 1, 1), (0, 3, 2), (2, 0, 3), (3, 2, 0), (33, 17, 5)]
    sizes += [(drawn.randint(0, 20), drawn.randint(0, 20), drawn.randint(0, 20)) for _ in range(30)]
    for number, at in enumerate(sizes):
        values = np.random.default_rng(number)
        arrays = [values.integers(-4, 5, shape).astype(np.float32) for shape in shapes(*at)]
        (result,) = dynamic(*arrays)
        np.testing.assert_array_equal(result, reference(*arrays))
    own = canonical(5, 3, 7)
    static = compiled(own.spec_text, own.arg_spec.args)
    arrays = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes(5, 3, 7)]
    assert static(*arrays)[0].tobytes() == dynamic(*arrays)[0].tobytes()

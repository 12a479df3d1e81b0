"""Sizes and strides of a product are a constant of the kernel where they are static."""

from __future__ import annotations

import re

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import kernel_of

_TABLE = re.compile(r"^@(table_\d+) = internal constant \[\d+ x i64\]", re.MULTILINE)
_FEW, _MANY = "tensor<48x48xf32>", "tensor<96x48xf32>"
_PRODUCTS = f"""
func.func @main(%a: {_FEW}, %b: {_FEW}, %c: {_MANY}) -> ({_FEW}, {_FEW}, {_MANY}) {{
  %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({_FEW}, {_FEW}) -> {_FEW}
  %q = stablehlo.dot_general %b, %p, contracting_dims = [1] x [0] : ({_FEW}, {_FEW}) -> {_FEW}
  %r = stablehlo.dot_general %c, %p, contracting_dims = [1] x [0] : ({_MANY}, {_FEW}) -> {_MANY}
  %s = stablehlo.exponential %r : {_MANY}
  return %p, %q, %s : {_FEW}, {_FEW}, {_MANY}
}}"""


def test_products_of_one_shape_share_a_table() -> None:
    kernel = kernel_of(_PRODUCTS)
    text = kernel.compiled.artifacts["llvm"].decode()
    tables = _TABLE.findall(text)
    assert len(tables) == 2
    for table in tables:
        assert f"ptr @{table}," in text
    random = np.random.default_rng(0)
    a, b = (random.uniform(-0.3, 0.3, (48, 48)).astype(np.float32) for _ in range(2))
    c = random.uniform(-0.3, 0.3, (96, 48)).astype(np.float32)
    first, second, third = kernel(a, b, c)
    np.testing.assert_allclose(first, a @ b, rtol=0, atol=1e-5)
    np.testing.assert_allclose(second, b @ (a @ b), rtol=0, atol=1e-5)
    np.testing.assert_allclose(third, np.exp(c @ (a @ b)), rtol=0, atol=1e-5)


def test_dynamic_sizes_are_stored_by_the_launch() -> None:
    kind = "tensor<?x48xf32>"
    text = f"""
    func.func @main(%a: {kind}, %b: {_FEW}) -> {kind} {{
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({kind}, {_FEW}) -> {kind}
      return %p : {kind}
    }}"""
    canonical = canonicalize(text.encode(), "stablehlo")
    kernel = compile_spec(
        canonical.spec_text, canonical.arg_spec, "x86-64-v2", CompileOptions(), lambda _: None
    )
    assert not _TABLE.search(kernel.artifacts["llvm"].decode())

"""Reductions of half precision accumulate in f32 and round once, for static and dynamic sizes."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, kernel_of, threaded_host


def program(element: str, name: str, start: str) -> str:
    kind, row = f"tensor<5x70x{element}>", f"tensor<5x{element}>"
    return f"""
func.func @main(%a: {kind}) -> {row} {{
  %start = stablehlo.constant dense<{start}> : tensor<{element}>
  %0 = stablehlo.reduce(%a init: %start) applies stablehlo.{name} across dimensions = [1]
    : ({kind}, tensor<{element}>) -> {row}
  return %0 : {row}
}}"""


def of_all_sizes(text: str) -> Kernel:
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    arguments = ArgSpec(canonical.symbolic_args)
    kernel = compile_spec(canonical.spec_text, arguments, "x86-64-v3", CompileOptions(), lambda _: None)
    assert len(kernel.interface.symbols) == 2
    return Kernel(kernel)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize(("name", "start", "fold"), [("add", "1.0", np.add), ("maximum", "0.5", np.maximum)])
def test_totals_are_rounded_once(element: str, name: str, start: str, fold: np.ufunc) -> None:
    text = program(element, name, start)
    # x86-64-v2 has no instructions that convert f16.
    kernels = [(kernel_of(text, target), 70) for target in ("x86-64-v2", "x86-64-v3")]
    kernels += [(of_all_sizes(text), length) for length in (1, 70, 333)]
    for kernel, length in kernels:
        a = np.random.default_rng(length).integers(-64, 64, (5, length)).astype(NUMPY[element]) / 64
        a[0, -1], a[1, 0] = np.nan, np.inf
        total = fold.reduce(a.astype(np.float32), axis=1, initial=np.float32(start))
        for host in (None, threaded_host()):
            (result,) = kernel(a, host=host)
            rounded = total.astype(result.dtype).astype(np.float32)
            np.testing.assert_array_equal(result.astype(np.float32), rounded)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("rows", ["?", "4"])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_sums_of_squares_are_rounded_once(element: str, rows: str, target: str) -> None:
    kind, row = f"tensor<{rows}x259x{element}>", f"tensor<{rows}x{element}>"
    text = f"""
    func.func @main(%a: {kind}) -> {row} {{
      %start = stablehlo.constant dense<0.0> : tensor<{element}>
      %0 = stablehlo.multiply %a, %a : {kind}
      %1 = stablehlo.reduce(%0 init: %start) applies stablehlo.add across dimensions = [1]
        : ({kind}, tensor<{element}>) -> {row}
      return %1 : {row}
    }}"""
    kernel = kernel_of(text, target)
    a = np.random.default_rng(1).integers(-5, 6, (4, 259)).astype(NUMPY[element])
    (result,) = kernel(a)
    expected = (a.astype(np.float32) ** 2).sum(axis=1).astype(result.dtype)
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("rows", ["?", "4"])
def test_sums_of_products_are_rounded_once(element: str, rows: str) -> None:
    kind, row = f"tensor<{rows}x259x{element}>", f"tensor<{rows}x{element}>"
    text = f"""
    func.func @main(%a: {kind}, %b: {kind}) -> {row} {{
      %start = stablehlo.constant dense<0.0> : tensor<{element}>
      %0 = stablehlo.multiply %a, %b : {kind}
      %1 = stablehlo.reduce(%0 init: %start) applies stablehlo.add across dimensions = [1]
        : ({kind}, tensor<{element}>) -> {row}
      return %1 : {row}
    }}"""
    draw = np.random.default_rng(1)
    a, b = (draw.integers(1, 6, (4, 259)).astype(NUMPY[element]) for _ in range(2))
    (result,) = kernel_of(text, "x86-64-v3")(a, b)
    expected = (a.astype(np.float32) * b.astype(np.float32)).sum(axis=1).astype(result.dtype)
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))

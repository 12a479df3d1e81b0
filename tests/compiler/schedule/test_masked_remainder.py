"""Ends of rows: masked vectors, tiles that move back, results that differ from their buffer by unit axes."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel, threaded_host
from tests.compiler.schedule.test_group_lowering import same_bits

HOST = host_target().isa
AVX512 = pytest.mark.skipif(HOST != "x86-64-v4", reason="only AVX-512 stores vectors in part")


def lowered(text: str, inputs: int, target: str = HOST, numerics: str = "strict") -> Kernel:
    return Kernel(lower_module(text, inputs, target, CompileOptions(numerics=numerics), lambda _: None))


def rows(columns: int, element: str = "f32") -> str:
    """Softmax of a sum, and the sum."""
    kind, row = f"tensor<5x{columns}x{element}>", f"tensor<5x{element}>"
    return f"""
    func.func @main(%a: {kind}, %b: {kind}) -> ({kind}, {kind}) {{
      %0 = stablehlo.add %a, %b : {kind}
      %low = stablehlo.constant dense<0x{"FC00" if element == "f16" else "FF800000"}> : tensor<{element}>
      %zero = stablehlo.constant dense<0.0> : tensor<{element}>
      %most = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [1]
        : ({kind}, tensor<{element}>) -> {row}
      %1 = stablehlo.broadcast_in_dim %most, dims = [0] : ({row}) -> {kind}
      %2 = stablehlo.subtract %0, %1 : {kind}
      %3 = stablehlo.exponential %2 : {kind}
      %sum = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1]
        : ({kind}, tensor<{element}>) -> {row}
      %4 = stablehlo.broadcast_in_dim %sum, dims = [0] : ({row}) -> {kind}
      %5 = stablehlo.divide %3, %4 : {kind}
      return %5, %0 : {kind}, {kind}
    }}"""


def arrays(columns: int, dtype: type = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(columns)
    a, b = (rng.normal(size=(5, columns)).astype(dtype) for _ in range(2))
    a[1, -1] = np.nan
    a[2, -1] = np.inf
    a[3, :-1] = -np.inf
    return [a, b]


@pytest.mark.sampled(9)
@AVX512
@pytest.mark.parametrize("columns", [5, 8, 11, 16, 17, 31, 65, 100, 1001])
def test_ends_of_rows_have_the_bits_of_a_target_without_masks(columns: int) -> None:
    text = rows(columns)
    kernel, narrow = lowered(text, 2), lowered(text, 2, "x86-64-v3")
    given = arrays(columns)
    wanted = narrow(*given)
    same_bits(kernel(*given), wanted)
    same_bits(kernel(*given, host=threaded_host()), wanted)


@pytest.mark.sampled(4)
@AVX512
@pytest.mark.parametrize(
    ("element", "dtype", "columns"),
    [("f32", np.float32, n) for n in (41, 100, 1001)] + [("f16", np.float16, n) for n in (33, 100)],
)
def test_reductions_of_what_whole_vectors_leave(columns: int, element: str, dtype: type) -> None:
    kernel = lowered(rows(columns, element), 2, numerics="default")
    assert b"{z}" in kernel.compiled.artifacts["asm"]
    assert_softmax(kernel, columns, dtype)


@pytest.mark.sampled(4)
@AVX512
@pytest.mark.parametrize("columns", [8, 13, 16, 17, 24, 32, 48, 64])
def test_short_rows_are_reduced_in_vectors(columns: int) -> None:
    kernel = lowered(rows(columns), 2, numerics="default")
    assembly = kernel.compiled.artifacts["asm"].partition(b"launch_0:")[2].partition(b"launch_0_task:")[0]
    assert assembly.count(b"vmaxss") < 8
    assert_softmax(kernel, columns)


def assert_softmax(kernel: Kernel, columns: int, dtype: type = np.float32) -> None:
    given = arrays(columns, dtype)
    soft, total = kernel(*given)
    same_bits((total,), (given[0] + given[1],))
    wide = total.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wanted = np.exp(wide - wide.max(1, keepdims=True))
        wanted /= wanted.sum(1, keepdims=True)
    near = 3e-6 if dtype == np.float32 else 1e-2
    np.testing.assert_allclose(soft.astype(np.float64), wanted, rtol=near, atol=near / 100)


@pytest.mark.sampled(9)
@AVX512
@pytest.mark.parametrize("columns", [7, 8, 13, 16, 17, 31, 32, 50, 64, 100, 197])
@pytest.mark.parametrize(
    ("name", "start", "fold"),
    [("add", 3.0, np.add), ("multiply", 2.0, np.multiply), ("maximum", 0.25, np.maximum)],
)
def test_totals_of_masked_vectors_do_not_count_the_start(
    columns: int, name: str, start: float, fold: np.ufunc
) -> None:
    kind, row = f"tensor<5x{columns}xf32>", "tensor<5xf32>"
    kernel = lowered(
        f"""
        func.func @main(%a: {kind}) -> {row} {{
          %start = stablehlo.constant dense<{start}> : tensor<f32>
          %0 = stablehlo.reduce(%a init: %start) applies stablehlo.{name} across dimensions = [1]
            : ({kind}, tensor<f32>) -> {row}
          return %0 : {row}
        }}""",
        1,
        numerics="default",
    )
    a = np.random.default_rng(columns).uniform(-1.2, 1.2, (5, columns)).astype(np.float32)
    a[0], a[1, -1] = -1.0, np.nan
    expected = fold.reduce(a.astype(np.float64), axis=1, initial=start)
    np.testing.assert_allclose(kernel(a)[0], expected, rtol=1e-5, atol=1e-5)


@AVX512
def test_a_sum_of_negative_zeros_is_one() -> None:
    kernel = lowered(
        """
        func.func @main(%a: tensor<2x50xf32>) -> tensor<2xf32> {
          %start = stablehlo.constant dense<-0.0> : tensor<f32>
          %0 = stablehlo.reduce(%a init: %start) applies stablehlo.add across dimensions = [1]
            : (tensor<2x50xf32>, tensor<f32>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }""",
        1,
        numerics="default",
    )
    a = np.full((2, 50), -0.0, np.float32)
    a[1, 49] = 0.0
    assert np.signbit(kernel(a)[0]).tolist() == [True, False]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("height", "width"), [(16, 17), (33, 50), (31, 16), (5, 40), (40, 5)])
def test_tiles_that_end_with_the_matrix(height: int, width: int) -> None:
    """The sum with the other argument is an element that is computed twice."""
    kind, turned = f"tensor<{height}x{width}xf32>", f"tensor<{width}x{height}xf32>"
    text = f"""
    func.func @main(%a: {kind}, %b: {turned}) -> {turned} {{
      %0 = stablehlo.transpose %a, dims = [1, 0] : ({kind}) -> {turned}
      %1 = stablehlo.add %0, %b : {turned}
      return %1 : {turned}
    }}"""
    rng = np.random.default_rng(height)
    a = rng.normal(size=(height, width)).astype(np.float32)
    b = rng.normal(size=(width, height)).astype(np.float32)
    kernel = lowered(text, 2)
    same_bits(kernel(a, b), (a.T + b,))
    same_bits(kernel(a, b, host=threaded_host()), (a.T + b,))


def test_a_result_with_a_unit_axis_needs_no_copy() -> None:
    text = """
    func.func @main(%a: tensor<40xf32>) -> (tensor<1x40xf32>, tensor<5x8xf32>) {
      %0 = stablehlo.negate %a : tensor<40xf32>
      %1 = stablehlo.exponential %a : tensor<40xf32>
      %2 = stablehlo.reshape %0 : (tensor<40xf32>) -> tensor<1x40xf32>
      %3 = stablehlo.reshape %1 : (tensor<40xf32>) -> tensor<5x8xf32>
      return %2, %3 : tensor<1x40xf32>, tensor<5x8xf32>
    }"""
    kernel = lowered(text, 1)
    assert kernel.interface.workspace == "0"
    assert not any("copy" in launch.ops for launch in kernel.interface.launches)
    a = np.linspace(-1, 1, 40, dtype=np.float32)
    negated, power = kernel(a)
    same_bits((negated,), (-a.reshape(1, 40),))
    np.testing.assert_allclose(power, np.exp(a).reshape(5, 8), rtol=1e-6)

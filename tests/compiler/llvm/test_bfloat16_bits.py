"""bf16 without conversions that no library has, at every optimization level."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.llvm.bfloat16_bits import as_integers
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import compile_text, kernel_of
from tests.gpu.harness.run import run_gpu

#: ``concatenate`` branches between bf16 values; the constant is one of the module.
CONSTANT = """func.func @main(
    %a: tensor<3x5xbf16>, %b: tensor<2x5xbf16>
) -> (tensor<5x5xbf16>, tensor<4xbf16>) {
  %c = stablehlo.constant dense<[1.0, -0.0, 0x7F80, 3.140625]> : tensor<4xbf16>
  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<3x5xbf16>, tensor<2x5xbf16>) -> tensor<5x5xbf16>
  return %0, %c : tensor<5x5xbf16>, tensor<4xbf16>
}"""
#: With AVX-512, elements are loaded in another block than they are converted in.
POWERS = """func.func @main(%a: tensor<5x50xbf16>, %b: tensor<50xbf16>) -> tensor<5x50xf64> {
  %0 = stablehlo.convert %a : (tensor<5x50xbf16>) -> tensor<5x50xf64>
  %1 = stablehlo.convert %b : (tensor<50xbf16>) -> tensor<50xf64>
  %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<50xf64>) -> tensor<5x50xf64>
  %3 = stablehlo.power %0, %2 : tensor<5x50xf64>
  return %3 : tensor<5x50xf64>
}"""


@pytest.mark.parametrize("level", range(4))
def test_a_branch_between_values_beside_a_constant(level: int) -> None:
    a, b = (np.arange(rows * 5).reshape(rows, 5).astype(ml_dtypes.bfloat16) for rows in (3, 2))
    joined, constant = kernel_of(CONSTANT, opt_level=level)(a, b)
    assert np.array_equal(joined, np.concatenate([a, b]))
    assert constant.view(np.uint16).tolist() == [0x3F80, 0x8000, 0x7F80, 0x4049]


def test_powers_of_values_that_become_f64() -> None:
    base = np.linspace(0.5, 3.5, 250).astype(ml_dtypes.bfloat16).reshape(5, 50)
    exponent = np.linspace(-2, 2, 50).astype(ml_dtypes.bfloat16)
    (powers,) = kernel_of(POWERS)(base, exponent)
    np.testing.assert_allclose(powers, base.astype("f8") ** exponent.astype("f8"), rtol=1e-14)
    compile_text(POWERS, "x86-64-v4")


def test_every_value_becomes_f64_on_cpus_and_gpus() -> None:
    text = """func.func @main(%a: tensor<65536xbf16>) -> tensor<65536xf64> {
      %0 = stablehlo.convert %a : (tensor<65536xbf16>) -> tensor<65536xf64>
      return %0 : tensor<65536xf64>
    }"""
    values = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    with np.errstate(invalid="ignore"):  # NaN that signals
        wanted = values.astype(np.float64)
    on_gpu = lower_module(text, 1, "sm_90", CompileOptions(), lambda _: None)
    for (got,) in (kernel_of(text)(values), run_gpu(on_gpu, [values])):
        assert np.array_equal(got, wanted, equal_nan=True)


def test_constants_become_integers_and_arithmetic_keeps_the_text() -> None:
    moves = (
        "@c = private constant [2 x bfloat] [bfloat 0xR3F80, bfloat 0xRBF77]\n  %1 = phi bfloat [ %2, %3 ]"
    )
    integers = "@c = private constant [2 x i16] [i16 16256, i16 49015]\n  %1 = phi i16 [ %2, %3 ]"
    assert as_integers(moves) == integers
    computes = moves + "\n  %4 = fneg bfloat %1"
    assert as_integers(computes) == computes

"""Rows in vectors of 32 bytes: long bodies are interleaved, a masked vector computes the rest of a row."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.compiler.codegen_harness import NUMPY, Kernel, compile_text, guarded

TARGET = "x86-64-v3"
ROWS = 3


def elementwise(name: str, size: int, dtype: str = "f32") -> str:
    """``name`` of the sum of rows and a vector, which keeps the rows apart."""
    kind = f"tensor<{ROWS}x{size}x{dtype}>"
    return f"""
    func.func @main(%x: {kind}, %y: tensor<{size}x{dtype}>) -> {kind} {{
      %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<{size}x{dtype}>) -> {kind}
      %1 = stablehlo.add %x, %0 : {kind}
      %2 = stablehlo.{name} %1{", %0" if name == "multiply" else ""} : {kind}
      return %2 : {kind}
    }}"""


def reduced(size: int) -> str:
    """The sum of the exponentials of each row."""
    return f"""
    func.func @main(%x: tensor<{ROWS}x{size}xf32>) -> tensor<{ROWS}xf32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.exponential %x : tensor<{ROWS}x{size}xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<{ROWS}x{size}xf32>, tensor<f32>) -> tensor<{ROWS}xf32>
      return %1 : tensor<{ROWS}xf32>
    }}"""


def assembly(text: str, numerics: str = "default") -> str:
    """What computes the launch; the entry around it stores pointers in vectors, too."""
    whole = compile_text(text, TARGET, numerics=numerics).artifacts["asm"].decode()
    return whole[whole.index("launch_0:") :].partition("launch_0_task:")[0]


def has_masks(text: str, numerics: str = "default") -> bool:
    return "vmaskmov" in assembly(text, numerics)


@pytest.mark.parametrize("name", ["exponential", "tanh"])
def test_masks_of_long_bodies(name: str) -> None:
    assert has_masks(elementwise(name, 39))
    assert has_masks(elementwise(name, 39, "f64"))
    assert has_masks(elementwise(name, 39), numerics="strict")


def test_rows_without_masks() -> None:
    assert not has_masks(elementwise("exponential", 40))  # whole vectors
    assert not has_masks(elementwise("exponential", 41))  # one element takes less time than a masked store
    assert not has_masks(elementwise("multiply", 39))  # neither do a few operations pay for one
    assert not has_masks(elementwise("exponential", 39, "f16"))  # AVX2 has no masks for two bytes


def test_masks_of_sums() -> None:
    assert has_masks(reduced(39))
    assert not has_masks(reduced(39), numerics="strict")  # the order of a strict sum is that of its elements


def stores(text: str) -> int:
    """Vectors that the loops of a launch store, except those that they spill."""
    return len(re.findall(r"vmovup[sd]\s+%ymm\d+, [-\w]*\(%(?!rsp|rbp)", assembly(text)))


def test_interleaved_vectors() -> None:
    assert stores(elementwise("exponential", 1024)) == 4
    assert stores(elementwise("exponential", 1024, "f64")) == 4
    assert stores(elementwise("exponential", 16)) == 2
    assert stores(elementwise("exponential", 24)) == 1  # of three vectors a third would be left


@pytest.mark.sampled(9)
@pytest.mark.parametrize("numerics", ["default", "strict"])
@pytest.mark.parametrize("size", [5, 12, 13, 31, 39, 41, 63, 100, 1003])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_elements_of_rows(dtype: str, size: int, numerics: str) -> None:
    """An element has the same bits wherever it stands in a row, and nothing behind the arguments is read."""
    draw = np.random.default_rng(size)
    x, y = (guarded(draw.standard_normal(shape).astype(NUMPY[dtype])) for shape in ((ROWS, size), size))
    kernel = Kernel(compile_text(elementwise("tanh", size, dtype), TARGET, numerics=numerics))
    (result,) = kernel(x, y)
    (other,) = kernel(guarded(x[:, ::-1]), guarded(y[::-1]))
    assert result.tobytes() == other[:, ::-1].tobytes()
    exact = np.tanh((x + y).astype(np.float64))
    tolerance = {"f32": 3e-7, "f64": 1e-15, "f16": 2e-3, "bf16": 2e-2}[dtype]
    np.testing.assert_allclose(result.astype(np.float64), exact, rtol=tolerance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [3, 5, 13, 39, 63, 1003, 9000])
def test_sums_of_rows(size: int) -> None:
    x = guarded(np.random.default_rng(size).standard_normal((ROWS, size)).astype(np.float32))
    (result,) = Kernel(compile_text(reduced(size), TARGET))(x)
    np.testing.assert_allclose(result, np.exp(x.astype(np.float64)).sum(1), rtol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", [0, 31, 38])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values(value: float, place: int) -> None:
    x = np.zeros((ROWS, 39), np.float32)
    x[1, place] = value
    (result,) = Kernel(compile_text(reduced(39), TARGET))(x)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(result, np.exp(x).sum(1), rtol=1e-6)

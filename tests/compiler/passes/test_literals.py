"""Scalar constants as literals of the code that reads them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

_X = "tensor<3x67xf32>"
#: Constants whose sign or class decides a maximum, as StableHLO.
CONSTANTS = {"0.0": 0.0, "-0.0": -0.0, "6.0": 6.0, "0x7FC00000": np.nan, "0xFF800000": -np.inf}
VALUES = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 5.5, -7.25, 1e-40], np.float32)


def _text(constant: str, operations: str) -> str:
    return f"""func.func @main(%x: {_X}) -> {_X} {{
      %c = stablehlo.constant dense<{constant}> : {_X}
      {operations}
      return %y : {_X}
    }}"""


def _run(text: str, x: np.ndarray) -> np.ndarray:
    compiled = lower_module(text, 1, "x86-64-v3", CompileOptions("strict"), lambda _: None)
    return Kernel(compiled)(x)[0]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_with_a_constant_have_the_bits_of_those_with_an_argument(name: str, constant: str) -> None:
    x = np.resize(VALUES, (3, 67))
    filled = np.full((3, 67), CONSTANTS[constant], np.float32)
    argument = f"""func.func @main(%x: {_X}, %c: {_X}) -> {_X} {{
      %y = stablehlo.{name} %x, %c : {_X}
      return %y : {_X}
    }}"""
    compiled = lower_module(argument, 2, "x86-64-v3", CompileOptions("strict"), lambda _: None)
    (expected,) = Kernel(compiled)(x, filled)
    got = _run(_text(constant, f"%y = stablehlo.{name} %x, %c : {_X}"), x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(got[numbers].view("u4"), expected[numbers].view("u4"))


@pytest.mark.parametrize(("kind", "constant"), [("f64", "0.1"), ("f16", "0.1"), ("bf16", "6.0")])
def test_code_reads_no_constant_from_memory(kind: str, constant: str) -> None:
    text = _text(constant, f"%y = stablehlo.multiply %x, %c : {_X}").replace("xf32", f"x{kind}")
    with lower_until(text, 1, "x86-64-v3", "launches") as module:
        assert "memref.get_global" not in str(module)


def test_equal_loops_with_other_constants_have_code_of_their_own() -> None:
    """Each sum over columns is a launch of its own."""
    x = np.linspace(-2, 2, 3 * 67, dtype=np.float32).reshape(3, 67)
    steps = [
        f"""%f{number} = stablehlo.constant dense<{factor}> : {_X}
        %m{number} = stablehlo.multiply %{"x" if not number else f"b{number - 1}"}, %f{number} : {_X}
        %s{number} = stablehlo.reduce(%m{number} init: %zero) applies stablehlo.add across dimensions = [0]
          : ({_X}, tensor<f32>) -> tensor<67xf32>
        %b{number} = stablehlo.broadcast_in_dim %s{number}, dims = [1] : (tensor<67xf32>) -> {_X}"""
        for number, factor in enumerate((0.5, 2.0, 0.25))
    ]
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>"
    text = _text("0.0", "\n".join([zero, *steps, f"%y = stablehlo.add %b2, %c : {_X}"]))
    expected = x.astype("f8")
    for factor in (0.5, 2.0, 0.25):
        expected = np.broadcast_to((expected * factor).sum(0), (3, 67))
    np.testing.assert_allclose(_run(text, x), expected, rtol=1e-5, atol=1e-6)


def test_large_constants_stay_in_memory() -> None:
    table = f"%t = stablehlo.constant dense<{list(range(67))}> : tensor<67xf32>"
    table = re.sub(r"(\d+)(?=[,\]])", r"\1.0", table)
    spread = f"%b = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<67xf32>) -> {_X}"
    x = np.ones((3, 67), np.float32)
    got = _run(
        _text(
            "2.0",
            f"{table}\n{spread}\n%z = stablehlo.add %x, %b : {_X}\n%y = stablehlo.multiply %z, %c : {_X}",
        ),
        x,
    )
    np.testing.assert_array_equal(got, np.broadcast_to(2 * (1 + np.arange(67, dtype="f4")), (3, 67)))


def test_scatters_of_a_constant_read_it_from_memory() -> None:
    text = f"""func.func @main(%x: {_X}, %i: tensor<2xi64>) -> {_X} {{
      %c = stablehlo.constant dense<7.0> : tensor<f32>
      %y = "stablehlo.scatter"(%x, %i, %c) <{{indices_are_sorted = true, unique_indices = true,
          scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1],
            scatter_dims_to_operand_dims = [0, 1]>}}> ({{
        ^bb0(%old: tensor<f32>, %new: tensor<f32>):
          stablehlo.return %new : tensor<f32>
        }}) : ({_X}, tensor<2xi64>, tensor<f32>) -> {_X}
      return %y : {_X}
    }}"""
    compiled = lower_module(text, 2, "x86-64-v3", CompileOptions("strict"), lambda _: None)
    x = np.resize(VALUES, (3, 67))
    expected = x.copy()
    expected[2, 5] = 7
    np.testing.assert_array_equal(Kernel(compiled)(x, np.array([2, 5]))[0], expected)


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_90"])
def test_factors_of_a_product_stay_in_memory(target: str) -> None:
    text = """func.func @main(%x: tensor<12x40xf32>) -> tensor<12x5xf32> {
      %c = stablehlo.constant dense<0.5> : tensor<40x5xf32>
      %y = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0]
        : (tensor<12x40xf32>, tensor<40x5xf32>) -> tensor<12x5xf32>
      return %y : tensor<12x5xf32>
    }"""
    compiled = lower_module(text, 1, target, CompileOptions(), lambda _: None)
    if target == "x86-64-v3":
        x = np.linspace(-1, 1, 480, dtype=np.float32).reshape(12, 40)
        expected = np.repeat(x.sum(1, dtype="f8", keepdims=True) / 2, 5, 1)
        np.testing.assert_allclose(Kernel(compiled)(x)[0], expected, rtol=1e-5, atol=1e-5)

"""``stablehlo.reduce_precision`` without mantissa bits: NaN becomes +inf, as in the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.gpu.harness.generated import difference_of
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.reference import ReferenceInterpreter

pytestmark = pytest.mark.issue(number=19, point=4)

FLOATS = ("f16", "bf16", "f32", "f64")
VALUES = (np.nan, -np.nan, np.inf, -np.inf, 1.4, -3.0, 0.0, 70.0)
ELEMENTWISE = """func.func @main(%x: tensor<{n}x{dtype}>) -> tensor<{n}x{dtype}> {{
  %y = stablehlo.reduce_precision %x, format = e{exponent}m{mantissa} : tensor<{n}x{dtype}>
  return %y : tensor<{n}x{dtype}> }}"""
REDUCER = """func.func @main(%x: tensor<{n}x2x{dtype}>) -> tensor<{n}x{dtype}> {{
  %zero = stablehlo.constant dense<0.0> : tensor<{dtype}>
  %y = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 1>}}> ({{
    ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
      %sum = stablehlo.add %a, %b : tensor<{dtype}>
      %short = stablehlo.reduce_precision %sum, format = e{exponent}m{mantissa} : tensor<{dtype}>
      stablehlo.return %short : tensor<{dtype}>
    }}) : (tensor<{n}x2x{dtype}>, tensor<{dtype}>) -> tensor<{n}x{dtype}>
  return %y : tensor<{n}x{dtype}> }}"""
CONSTANT = """func.func @main(%x: tensor<{n}x{dtype}>) -> tensor<{n}x{dtype}> {{
  %nan = stablehlo.constant dense<{nan}> : tensor<{n}x{dtype}>
  %short = stablehlo.reduce_precision %nan, format = e{exponent}m{mantissa} : tensor<{n}x{dtype}>
  %y = stablehlo.add %x, %short : tensor<{n}x{dtype}>
  return %y : tensor<{n}x{dtype}> }}"""
NAN = {"f16": "0x7E00", "bf16": "0x7FC0", "f32": "0x7FC00000", "f64": "0x7FF8000000000000"}


def _kernel(text: str, numerics: str) -> Kernel:
    canonical = canonicalize(text.encode(), "stablehlo")
    options = CompileOptions(numerics=numerics)
    return Kernel(compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", options, lambda _: None))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_becomes_infinity_as_in_the_reference_interpreter(
    dtype: str, numerics: str, interpreter: ReferenceInterpreter
) -> None:
    values = np.array(VALUES).astype(NUMPY[dtype])
    for exponent, mantissa in ((5, 0), (8, 0), (5, 2)):
        text = ELEMENTWISE.format(n=len(values), dtype=dtype, exponent=exponent, mantissa=mantissa)
        (expected,) = interpreter.evaluate(text, [values.tobytes()])
        (result,) = _kernel(text, numerics)(values)
        wanted = np.frombuffer(expected, NUMPY[dtype])
        assert np.isnan(wanted[0]) == (mantissa > 0)
        np.testing.assert_array_equal(result.astype("f8"), wanted.astype("f8"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_nan_becomes_infinity_in_the_body_of_a_reduction(dtype: str, numerics: str) -> None:
    pairs = np.array([[1.0, np.nan], [np.inf, 2.0], [1.4, 0.0], [-np.inf, np.inf]]).astype(NUMPY[dtype])
    text = REDUCER.format(n=len(pairs), dtype=dtype, exponent=5, mantissa=0)
    (result,) = _kernel(text, numerics)(pairs)
    assert result.astype("f8").tolist() == [np.inf, np.inf, 1.0, np.inf]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_constant_nan_becomes_infinity(dtype: str) -> None:
    text = CONSTANT.format(n=3, dtype=dtype, exponent=5, mantissa=0, nan=NAN[dtype])
    (result,) = _kernel(text, "default")(np.zeros(3, NUMPY[dtype]))
    assert result.astype("f8").tolist() == [np.inf] * 3


def test_nan_becomes_infinity_at_dynamic_sizes() -> None:
    text = ELEMENTWISE.format(n="?", dtype="f32", exponent=5, mantissa=0)
    kernel = _kernel(text, "default")
    for count in (1, 5):
        (result,) = kernel(np.array(VALUES[:count], "f4"))
        assert result.tolist() == [np.inf, np.inf, np.inf, -np.inf, 1.0][:count]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gpu_gives_the_bits_of_the_cpu(dtype: str) -> None:
    values = np.array(VALUES).astype(NUMPY[dtype])
    text = ELEMENTWISE.format(n=len(values), dtype=dtype, exponent=5, mantissa=0)
    assert not difference_of(
        OpProgram("reduce_precision", dtype, text, [values.tobytes()], [dtype]), "strict"
    )

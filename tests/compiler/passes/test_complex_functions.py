"""Functions of complex numbers in programs: every operation, in bodies of reductions, in ends of rows."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.passes.legalize.complex_functions import OF_TENSORS
from kcache_compiler.passes.math import COMPLEX
from tests.math.test_complex import WHOLE, compiled, sample
from tests.ops.generated.judge import execute
from tests.ops.harness.programs import OpProgram

DTYPES = {"f32": "c64", "f64": "c128"}


def text(op: str, part: str, count: int) -> str:
    kind = f"tensor<{count}xcomplex<{part}>>"
    real = COMPLEX[OF_TENSORS[op]].real
    result = f"tensor<{count}x{part}>" if real else kind
    arity = COMPLEX[OF_TENSORS[op]].arity
    names = ", ".join(f"%a{n}" for n in range(arity))
    types = ", ".join([kind] * arity)
    head = ", ".join(f"%a{n}: {kind}" for n in range(arity))
    call = f'"{op}"({names}) : ({types}) -> {result}'
    return f"func.func @main({head}) -> ({result}) {{\n  %0 = {call}\n  return %0 : {result}\n}}\n"


@pytest.mark.sampled(72)
@pytest.mark.parametrize("numerics", [pytest.param("strict", marks=pytest.mark.long), "default", "fast"])
@pytest.mark.parametrize("op", list(OF_TENSORS))
def test_an_operation_is_its_function(op: str, numerics: str) -> None:
    part = "f64" if numerics == "default" else "f32"
    name = OF_TENSORS[op]
    count = {"strict": 33, "default": 7, "fast": 1}[numerics]
    numbers = [sample(part, 3 + n)[:count] for n in range(COMPLEX[name].arity)]
    want = compiled(name, part)(*numbers)
    real = COMPLEX[name].real
    program = OpProgram(
        op,
        DTYPES[part],
        text(op, part, count),
        [z.tobytes() for z in numbers],
        [part if real else DTYPES[part]],
    )
    [got] = execute(program, 2, numerics)
    expected = want.real.copy() if real else want
    assert np.array_equal(np.frombuffer(got, expected.dtype), expected, equal_nan=True)


def test_a_quotient_in_the_body_of_a_reduction_is_the_function() -> None:
    """Of 1e38 (1 + i) by 1 + i: parts whose products overflow."""
    program = OpProgram(
        "reduce",
        "c64",
        """func.func @main(%a: tensor<2xcomplex<f32>>, %b: tensor<complex<f32>>) -> (tensor<complex<f32>>) {
  %0 = stablehlo.reduce(%a init: %b) across dimensions = [0] : (tensor<2xcomplex<f32>>,
    tensor<complex<f32>>) -> tensor<complex<f32>>
   reducer(%x: tensor<complex<f32>>, %y: tensor<complex<f32>>) {
    %q = stablehlo.divide %x, %y : tensor<complex<f32>>
    stablehlo.return %q : tensor<complex<f32>>
  }
  return %0 : tensor<complex<f32>>
}
""",
        [np.array([1 + 1j, 2], WHOLE["f32"]).tobytes(), np.array(2e38 + 2e38j, WHOLE["f32"]).tobytes()],
        ["c64"],
    )
    [got] = execute(program, 2, "strict")
    assert np.frombuffer(got, WHOLE["f32"])[0] == np.complex64(1e38)


@pytest.mark.parametrize(
    "call",
    [
        '"stablehlo.dot_general"(%a, %b) {dot_dimension_numbers = '
        "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}",
        '"stablehlo.convolution"(%a, %b) {batch_group_count = 1 : i64, feature_group_count = 1 : i64, '
        "dimension_numbers = #stablehlo.conv<[b, f]x[i, o]->[b, f]>}",
    ],
    ids=["dot_general", "convolution"],
)
def test_products_may_be_wider_than_their_factors(call: str) -> None:
    a, b = (sample("f32", n)[:6].reshape(shape) for n, shape in ((3, (2, 3)), (4, (3, 2))))
    a, b = (np.where(np.abs(z) < 1e6, z, 1 + 2j).astype("c8") for z in (a, b))
    first, second, whole = (
        f"tensor<{shape}xcomplex<{part}>>" for shape, part in (("2x3", "f32"), ("3x2", "f32"), ("2x2", "f64"))
    )
    program = OpProgram(
        "dot_general",
        "c128",
        f"func.func @main(%a: {first}, %b: {second}) -> {whole} {{\n"
        f"  %0 = {call} : ({first}, {second}) -> {whole}\n  return %0 : {whole}\n}}\n",
        [a.tobytes(), b.tobytes()],
        ["c128"],
    )
    [got] = execute(program, 2, "default")
    np.testing.assert_allclose(np.frombuffer(got, "c16").reshape(2, 2), a.astype("c16") @ b, rtol=1e-13)

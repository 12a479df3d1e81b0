"""Quantized programs: the specification's formulas, one key with integer programs, types at the boundary."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import CompileOptions, Quantization
from kcache_grpc.model.target import host_target
from tests.ops.generated.drive import cases
from tests.ops.generated.quantized.catalog import pairs
from tests.ops.harness.native import run

_CHILD = "tests.ops.generated.quantized.child"
#: Shares of all pairs of operation and dtype; CI has one of them.
_SHARES = 48
_Q = "!quant.uniform<i8:f32, 0.5:3>"
_ROWS = [0.1, 0.3, 0.05, 0.007]
_ZEROS = [3, 0, -5, 7]


def _rows(zeros: list[int]) -> str:
    """A type along the first axis."""
    numbers = ", ".join(f"{scale}:{zero}" for scale, zero in zip(_ROWS, zeros, strict=True))
    return f"!quant.uniform<i8:f32:0, {{{numbers}}}>"


_P = _rows(_ZEROS)


def _run(
    text: str, *inputs: npt.NDArray[np.generic], numerics: str = "strict", dims: tuple[int, ...] = ()
) -> list[bytes]:
    form = canonicalize(text.encode(), "stablehlo", numerics)
    options = CompileOptions(numerics=numerics)
    kernel = compile_spec(form.spec_text, form.arg_spec, host_target().isa, options, lambda _: None)
    return run(
        kernel, [array.tobytes() for array in inputs], [constant.content for constant in form.constants], dims
    )


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, _SHARES))]
)
def test_generated_programs_are_right_or_rejected(share: int) -> None:
    chosen = pairs()[share::_SHARES]
    results = list(cases(chosen, len(chosen), seed=2, module=_CHILD))
    assert len(results) == len(chosen)
    bad = [case for case in results if case.outcome in ("wrong", "crash", "error")]
    assert not bad, bad[0]
    assert sum(case.outcome == "right" for case in results) >= 0.95 * len(results)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize("zeros", [_ZEROS, [-5] * 4])
def test_quotients_at_a_tie_are_rounded_to_even(numerics: str, zeros: list[int]) -> None:
    scales, points = np.array(_ROWS, "f4")[:, None], np.array(zeros, "f4")[:, None]
    steps = np.random.default_rng(1).integers(-130, 130, (4, 512)) + np.float32(0.5)
    inputs = (steps.astype("f4") * scales).astype("f4")
    type = f"tensor<4x512x{_rows(zeros)}>"
    text = (
        f"func.func @main(%x: tensor<4x512xf32>) -> {type} {{\n"
        f"%q = stablehlo.uniform_quantize %x : (tensor<4x512xf32>) -> {type}\nreturn %q : {type}\n}}"
    )
    (got,) = _run(text, inputs, numerics=numerics)
    wanted = np.rint(np.clip(inputs / scales + points, np.float32(-128), np.float32(127))).astype("i1")
    np.testing.assert_array_equal(np.frombuffer(got, "i1").reshape(4, 512), wanted)


def test_a_program_of_integers_has_the_key_of_the_quantized_one() -> None:
    quantized = f"""
func.func @main(%a: tensor<6x{_Q}>) -> tensor<6xf32> {{
  %0 = stablehlo.uniform_dequantize %a : (tensor<6x{_Q}>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}}"""
    integers = """
func.func @main(%a: tensor<6xi8>) -> tensor<6xf32> {
  %zero = stablehlo.constant dense<3> : tensor<6xi32>
  %scale = stablehlo.constant dense<0.5> : tensor<6xf32>
  %0 = stablehlo.convert %a : (tensor<6xi8>) -> tensor<6xi32>
  %1 = stablehlo.subtract %0, %zero : tensor<6xi32>
  %2 = stablehlo.convert %1 : (tensor<6xi32>) -> tensor<6xf32>
  %3 = stablehlo.multiply %2, %scale : tensor<6xf32>
  return %3 : tensor<6xf32>
}"""
    other = quantized.replace("0.5:3", "0.5:4")
    digests = [canonicalize(text.encode(), "stablehlo").spec_digest for text in (quantized, integers, other)]
    assert digests[0] == digests[1] != digests[2]


def test_what_integers_stand_for_is_told_of_each_buffer() -> None:
    text = (
        f"func.func @main(%a: tensor<4x{_P}>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4x{_P}>) {{\n"
        f"return %b, %a : tensor<4xf32>, tensor<4x{_P}>\n}}"
    )
    form = canonicalize(text.encode(), "stablehlo")
    assert [str(type) for type in form.arg_spec.args] == ["i8[4]", "f32[4]"]
    rows = Quantization("f32", -128, 127, tuple(_ROWS), tuple(_ZEROS), 0)
    assert form.quantized_args == (rows, None)
    assert form.quantized_results == (None, rows)
    plain = canonicalize(
        b"func.func @main(%a: tensor<4xi8>) -> tensor<4xi8> { return %a : tensor<4xi8> }", "stablehlo"
    )
    assert plain.quantized_args == plain.quantized_results == ()


def test_one_value_may_stand_for_several_numbers() -> None:
    """A value keeps what it stands for beside what its bits are cast to."""
    other = "!quant.uniform<i8:f32, 0.25>"
    text = f"""
func.func @main(%a: tensor<4x{_Q}>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi8>) {{
  %b = stablehlo.bitcast_convert %a : (tensor<4x{_Q}>) -> tensor<4x{other}>
  %i = stablehlo.bitcast_convert %a : (tensor<4x{_Q}>) -> tensor<4xi8>
  %0 = stablehlo.uniform_dequantize %a : (tensor<4x{_Q}>) -> tensor<4xf32>
  %1 = stablehlo.uniform_dequantize %b : (tensor<4x{other}>) -> tensor<4xf32>
  %2 = stablehlo.add %i, %i : tensor<4xi8>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xi8>
}}"""
    inputs = np.array([5, 7, -20, 60], "i1")
    first, second, whole = _run(text, inputs)
    assert np.frombuffer(first, "f4").tolist() == [1.0, 2.0, -11.5, 28.5]
    assert np.frombuffer(second, "f4").tolist() == [1.25, 1.75, -5.0, 15.0]
    assert np.frombuffer(whole, "i1").tolist() == (inputs + inputs).tolist()


def test_floats_made_after_a_quantization_are_floats() -> None:
    """The memory of an operation that was replaced is taken by a later one."""
    unit = "!quant.uniform<i8:f32, 1.0>"
    text = f"""
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4x{_Q}>) {{
  %u = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x{unit}>
  %q = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x{_Q}>
  %f = stablehlo.uniform_dequantize %u : (tensor<4x{unit}>) -> tensor<4xf32>
  %0 = stablehlo.add %f, %f : tensor<4xf32>
  return %0, %q : tensor<4xf32>, tensor<4x{_Q}>
}}"""
    twice, _ = _run(text, np.array([1, 2, 10, -7], "f4"))
    assert np.frombuffer(twice, "f4").tolist() == [2.0, 4.0, 20.0, -14.0]


def test_a_portable_artifact_has_quantized_types_too() -> None:
    from torch_mlir._mlir_libs import _stablehlo  # type: ignore[attr-defined]

    text = (
        f"func.func @main(%a: tensor<6x{_Q}>) -> tensor<6x{_Q}> {{\n"
        f"%0 = stablehlo.add %a, %a : tensor<6x{_Q}>\nreturn %0 : tensor<6x{_Q}>\n}}"
    )
    artifact: bytes = _stablehlo.serialize_portable_artifact_str(text, _stablehlo.get_current_version())
    assert b"quant" not in artifact
    assert canonicalize(artifact, "stablehlo") == canonicalize(text.encode(), "stablehlo")


def test_a_portable_artifact_with_quantized_types_inside_alone_is_its_text() -> None:
    from torch_mlir._mlir_libs import _stablehlo  # type: ignore[attr-defined]

    text = f"""
func.func @main(%a: tensor<6xi8>) -> tensor<6xi8> {{
  %0 = stablehlo.bitcast_convert %a : (tensor<6xi8>) -> tensor<6x{_Q}>
  %1 = stablehlo.add %0, %0 : tensor<6x{_Q}>
  %2 = stablehlo.bitcast_convert %1 : (tensor<6x{_Q}>) -> tensor<6xi8>
  return %2 : tensor<6xi8>
}}"""
    artifact: bytes = _stablehlo.serialize_portable_artifact_str(text, _stablehlo.get_current_version())
    assert canonicalize(artifact, "stablehlo") == canonicalize(text.encode(), "stablehlo")


def test_a_quantized_program_of_open_sizes_runs_at_every_size() -> None:
    text = (
        f"func.func @main(%a: tensor<?x4x{_Q}>) -> tensor<?x4xf32> {{\n"
        f"%0 = stablehlo.multiply %a, %a : tensor<?x4x{_Q}>\n"
        f"%1 = stablehlo.uniform_dequantize %0 : (tensor<?x4x{_Q}>) -> tensor<?x4xf32>\n"
        "return %1 : tensor<?x4xf32>\n}"
    )
    for rows in (1, 3):
        inputs = np.random.default_rng(rows).integers(-128, 128, (rows, 4)).astype("i1")
        (got,) = _run(text, inputs, dims=(rows,))
        real = (inputs.astype("f4") - 3) * np.float32(0.5)
        wanted = (np.rint(np.clip(real * real / np.float32(0.5) + 3, -128, 127)) - 3) * np.float32(0.5)
        np.testing.assert_array_equal(np.frombuffer(got, "f4").reshape(rows, 4), wanted.astype("f4"))


def test_numbers_that_no_float_type_of_ours_expresses_are_rejected() -> None:
    narrow = "!quant.uniform<i4:f8E4M3FN, 0.5>"
    text = (
        f"func.func @main(%a: tensor<6x{narrow}>) -> tensor<6x{narrow}> {{ return %a : tensor<6x{narrow}> }}"
    )
    with pytest.raises(UnsupportedOp, match="use f16, bf16, f32 or f64"):
        canonicalize(text.encode(), "stablehlo")

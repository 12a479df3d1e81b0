"""ONNX operators of elements that do not hold what is computed: wide on the way, rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kcache_compiler.errors import UnsupportedOp
from tests.conformance.onnx_models.generated.draw import Draw, Made, data_type, dtype_of
from tests.conformance.onnx_models.generated.judge import judge, kernel_results
from tests.conformance.onnx_models.generated.nodes.control import Body


def _of(op: str, opset: int, *arrays: Any, **attributes: Any) -> Made:
    return _drawn(op, opset, *arrays, **attributes).model()


def _drawn(op: str, opset: int, *arrays: Any, **attributes: Any) -> Draw:
    draw = Draw(op, opset, np.random.default_rng(1))
    for array in arrays:
        draw.add(array, constant=False)
    draw.attributes = attributes
    return draw


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scale", ["float16", "bfloat16"])
@pytest.mark.parametrize("x", ["int32", "int16", "uint16"])
def test_integers_beyond_a_half_are_dequantized(x: str, scale: str) -> None:
    """66,624 is infinite in f16, and 30,003 no number of it."""
    numbers = np.array([66_624, -70_001] if x == "int32" else [30_003, 29_999]).astype(x)
    draw = _drawn("DequantizeLinear", 23, numbers, np.array(1e-3).astype(dtype_of(scale)))
    draw.bind("T3", scale)
    (result,) = kernel_results(draw.model())
    wanted = (numbers * np.float32(draw.given(1))).astype(dtype_of(scale))
    np.testing.assert_array_equal(result, wanted)


def test_a_product_that_is_dequantized_has_the_precision_of_its_result() -> None:
    draw = _drawn("DequantizeLinear", 23, np.array([101, 3], np.int8), np.array(0.1, np.float16))
    draw.attributes["output_dtype"] = data_type("float")
    draw.bind("T3", "float")
    (result,) = kernel_results(draw.model())
    np.testing.assert_array_equal(result, np.array([101, 3], np.float32) * np.float32(np.float16(0.1)))


def test_halves_are_quantized_by_a_scale_of_f32() -> None:
    """1e-8 is 0 in f16, which would make all infinite."""
    x = np.array([1e-6, -2e-6, 5e-7], np.float16)
    draw = _of("QuantizeLinear", 23, x, np.array(1e-8, np.float32), np.array(0, np.int16))
    assert judge(draw).outcome == "right"


def test_a_zero_point_is_no_half() -> None:
    x = np.array([1, 2, 3], np.float16)
    draw = _of("QuantizeLinear", 21, x, np.array(1, np.float16), np.array(3001, np.uint16))
    np.testing.assert_array_equal(kernel_results(draw)[0], np.array([3002, 3003, 3004], np.uint16))


@pytest.mark.parametrize("x", [60_000.0, np.inf])
def test_what_is_quantized_ends_where_16_bits_do(x: float) -> None:
    """65,535 is infinite in f16."""
    numbers = np.array([x, -x], np.float16)
    draw = _of("QuantizeLinear", 21, numbers, np.array(0.5, np.float16), np.array(0, np.uint16))
    np.testing.assert_array_equal(kernel_results(draw)[0], np.array([65_535, 0], np.uint16))


def test_integers_are_quantized_by_integers() -> None:
    x = np.array([7, 5, -9], np.int32)
    draw = _of("QuantizeLinear", 21, x, np.array(2, np.int32), np.array(0, np.int8))
    np.testing.assert_array_equal(kernel_results(draw)[0], np.array([4, 2, -4], np.int8))


def test_sums_of_quantized_products_leave_the_range_of_halves() -> None:
    x, y = np.full((1, 1000), 255, np.uint8), np.full((1000, 1), 255, np.uint8)
    scale, zero = np.array(0.001, np.float16), np.array(0, np.uint8)
    draw = _of("QLinearMatMul", 21, x, scale, zero, y, scale, zero, np.array(1, np.float16), zero)
    wanted = round(255 * 255 * 1000 * float(scale) ** 2)
    assert kernel_results(draw)[0].item() == wanted


@pytest.mark.parametrize("element", [np.int32, np.uint32])
def test_a_mean_of_integers_is_within_them(element: type) -> None:
    greatest = np.iinfo(element).max
    draw = _of("ReduceMean", 13, np.array([greatest, greatest - 2], element), axes=[0])
    assert kernel_results(draw)[0].item() == greatest - 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("x", "exponent", "wanted"),
    [
        (np.array([-1, -1], np.float16), np.array([2049, 2050], np.int32), [-1, 1]),
        (np.array([-1], ml_dtypes.bfloat16), np.array([257], np.int16), [-1]),
        (np.array([-1], np.float32), np.array([16_777_217], np.int64), [-1]),
        (np.array([0, 3], np.int32), np.array([2**32, 2**32 + 1], np.int64), [0, 3]),
        (np.array([2, 1], np.int32), np.array([2**32 - 1, 2**32 - 1], np.uint32), [0, 1]),
        (np.array([-1], np.int64), np.array([2**64 - 1], np.uint64), [-1]),
        (np.array([0.999], np.float32), np.array([3000.0001], np.float64), [0.999**3000]),
    ],
)
def test_exponents_are_not_rounded_to_the_base(x: Any, exponent: Any, wanted: list[float]) -> None:
    (power,) = kernel_results(_of("Pow", 15, x, exponent))
    assert power.dtype == x.dtype
    np.testing.assert_allclose(power.astype(np.float64), wanted, rtol=1e-4)


@pytest.mark.parametrize("bounds", [{}, {"min": 0.0}, {"max": 2.0}])
def test_clip_of_old_opsets_bounds_infinities(bounds: dict[str, float]) -> None:
    """Its attributes have defaults, which are numbers."""
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert judge(_of("Clip", 7, x, **bounds)).outcome == "right"


def test_a_loop_of_no_turns_stacks_nothing() -> None:
    draw = Draw("Loop", 13, np.random.default_rng(1))
    draw.add(np.asarray(0, np.int64), True)
    draw.skip()
    x = draw.add(np.ones((2, 3), np.float32), False)
    body = Body(draw, "l")
    results = [(body.emit("Identity", "go"), "bool"), *((body.emit("Neg", "c"), "float") for _ in range(2))]
    draw.attributes["body"] = body.graph(
        [("turn", "int64", ()), ("go", "bool", ()), ("c", "float", (2, 3))], results
    )
    draw.outputs = 2
    draw.bind("V", "float")
    last, stacked = kernel_results(draw.model())
    np.testing.assert_array_equal(last, x)
    assert stacked.shape == (0, 2, 3)


def _loop_without_condition(go_on: str, turns: int | None) -> Made:
    draw = Draw("Loop", 13, np.random.default_rng(1))
    if turns is None:
        draw.skip()
    else:
        draw.add(np.asarray(turns, np.int64), False)
    draw.skip()
    draw.add(np.full((2,), 3, np.float32), False)
    body = Body(draw, "l")
    small = body.emit("Not", body.emit("Cast", "turn", to=data_type("bool")))
    on = {"same": body.emit("Identity", "go"), "turns": small}[go_on]
    draw.attributes["body"] = body.graph(
        [("turn", "int64", ()), ("go", "bool", ()), ("c", "float", (2,))],
        [(on, "bool"), (body.emit("Neg", "c"), "float")],
    )
    draw.outputs = 1
    draw.bind("V", "float")
    return draw.model()


def test_a_loop_without_a_condition_turns_as_often_as_it_counts() -> None:
    (last,) = kernel_results(_loop_without_condition("same", 3))
    np.testing.assert_array_equal(last, np.full((2,), -3, np.float32))


@pytest.mark.parametrize(
    ("go_on", "turns", "said"), [("turns", 3, "its body ends it"), ("same", None, "never ends")]
)
def test_a_loop_without_a_condition_has_none_in_its_body(go_on: str, turns: int | None, said: str) -> None:
    """The standard ignores it, and its reference does not."""
    with pytest.raises(UnsupportedOp, match=said):
        kernel_results(_loop_without_condition(go_on, turns))


def test_statistics_of_training_have_an_element_of_their_own() -> None:
    x = np.arange(12, dtype=np.float64).reshape(2, 2, 3)
    ones = np.ones(2)
    draw = _of("BatchNormalization", 14, x, ones, ones, ones.astype("f4"), ones.astype("f4"), training_mode=1)
    assert judge(draw).outcome == "right"


def test_statistics_of_halves_in_training_are_made_in_f32() -> None:
    """Four numbers of 40,000 have a sum beyond f16, and their variance is, too."""
    x = np.array([[[40_000, 20_000]], [[40_000, 60_000]]], np.float16)
    ones = np.ones(1, np.float16)
    draw = _of("BatchNormalization", 15, x, ones, ones * 0, ones, ones, training_mode=1)
    np.testing.assert_allclose(kernel_results(draw)[0].reshape(-1), [0, -1.41421, 0, 1.41421], atol=1e-3)


def test_values_of_another_element_are_rejected_where_the_definition_multiplies() -> None:
    parts = [np.ones((1, 2, 3, 2), np.float16)] * 2
    draw = _of("Attention", 24, *parts, np.ones((1, 2, 3, 2), np.float32), softmax_precision=1)
    verdict = judge(draw)
    assert (verdict.outcome, "onnx.Attention" in verdict.reason) == ("rejected", True)


@pytest.mark.parametrize("element", ["float16", "float"])
def test_a_scale_that_has_no_root_is_rejected(element: str) -> None:
    parts = [np.ones((1, 2, 3, 2), dtype_of(element))] * 3
    assert judge(_of("Attention", 23, *parts, scale=-0.5)).outcome == "rejected"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("element", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_attention_of_halves_is_rounded_once_but_for_its_weights(element: str, unit: float) -> None:
    """Scores of a hundred and more have errors of a tenth and more in halves, and weights as many."""
    generator = np.random.default_rng(3)
    q, k, v = (generator.uniform(0.5, 4, (1, 2, 6, 64)).astype(dtype_of(element)) for _ in range(3))
    (result,) = kernel_results(_of("Attention", 23, q, k, v))
    scores = (q.astype("f8") @ k.astype("f8").swapaxes(2, 3)) / 8
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = powers / powers.sum(-1, keepdims=True) @ v.astype("f8")
    np.testing.assert_allclose(result.astype("f8"), wanted, rtol=2.5 * unit)

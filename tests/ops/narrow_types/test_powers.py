"""Products and quotients of powers of two in 8 bits: each pair, among them those below all f32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import compile_text
from tests.ops.harness import native

_EVERY = np.arange(255, dtype=np.uint8)  # 255 is NaN


def _run(text: str, *operands: np.ndarray) -> np.ndarray:
    (content,) = native.run(compile_text(text), [array.tobytes() for array in operands], [])
    return np.frombuffer(content, np.uint8)


@pytest.mark.parametrize(("op", "sign"), [("multiply", 1), ("divide", -1)])
def test_what_is_below_all_powers_is_the_least(op: str, sign: int) -> None:
    """f32 ends 22 powers below: a zero there is no zero here, where zero would be NaN."""
    kind = "tensor<65025xf8E8M0FNU>"
    text = (
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n"
        f"  %0 = stablehlo.{op} %a, %b : {kind}\n  return %0 : {kind}\n}}\n"
    )
    a, b = np.repeat(_EVERY, 255), np.tile(_EVERY, 255)
    power = (a.astype(np.int64) - 127) + sign * (b.astype(np.int64) - 127)
    result = _run(text, a, b)
    wanted = np.where(power > 127, 0xFF, np.maximum(power, -127) + 127).astype(np.uint8)
    np.testing.assert_array_equal(result, wanted)


def test_products_in_bodies_too() -> None:
    text = (
        "func.func @main(%a: tensor<3xf8E8M0FNU>, %b: tensor<f8E8M0FNU>) -> tensor<f8E8M0FNU> {\n"
        "  %0 = stablehlo.reduce(%a init: %b) applies stablehlo.multiply across dimensions = [0] : "
        "(tensor<3xf8E8M0FNU>, tensor<f8E8M0FNU>) -> tensor<f8E8M0FNU>\n"
        "  return %0 : tensor<f8E8M0FNU>\n}\n"
    )
    result = _run(text, np.array([10, 10, 10], np.uint8), np.array(127, np.uint8))
    assert result.item() == 0

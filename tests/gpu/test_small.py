"""Elements of 8 bits and fewer on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.harness.run import run_gpu
from tests.gpu.test_narrow import compiled


@pytest.mark.parametrize(("op", "sign"), [("multiply", 1), ("divide", -1)])
def test_products_of_powers_of_two_below_all_f32_are_the_least(op: str, sign: int) -> None:
    """Zero is no number of this element, and would be NaN."""
    kind = "tensor<260xf8E8M0FNU>"
    text = (
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n"
        f"  %0 = stablehlo.{op} %a, %b : {kind}\n  return %0 : {kind}\n}}\n"
    )
    few = np.array([0, 1, 3, 20, 52, 53, 54, 100, 126, 127, 128, 200, 254], np.uint8)
    a, b = np.repeat(few, 20), np.resize(few, 260)
    (result,) = run_gpu(compiled(text, "default"), [a, b])
    power = (a.astype(np.int64) - 127) + sign * (b.astype(np.int64) - 127)
    wanted = np.where(power > 127, 0xFF, np.maximum(power, -127) + 127)
    np.testing.assert_array_equal(result.view(np.uint8), wanted)

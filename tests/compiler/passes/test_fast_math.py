"""Numerics ``fast``: within its bounds, with the special values that it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel
from tests.compiler.schedule.test_masked_remainder import arrays, rows
from tests.math.harness import ulp_distance

HOST = host_target().isa
SAMPLE = np.arange(0, 1 << 32, 40_009, dtype=np.int64).astype(np.uint32).view(np.float32)


def lowered(text: str, numerics: str, inputs: int = 1) -> Kernel:
    return Kernel(lower_module(text, inputs, HOST, CompileOptions(numerics=numerics), lambda _: None))


def elementwise(name: str, size: int) -> str:
    kind = f"tensor<{size}xf32>"
    return f"""
    func.func @main(%a: {kind}) -> {kind} {{
      %0 = stablehlo.{name} %a : {kind}
      return %0 : {kind}
    }}"""


@pytest.mark.parametrize(("name", "claim"), [("exponential", 8), ("logistic", 12)])
def test_functions_of_exp(name: str, claim: int) -> None:
    x = np.concatenate([SAMPLE, np.linspace(-110, 95, 300_001, dtype=np.float32)])
    text = elementwise(name, x.size)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        want = np.exp(wide) if name == "exponential" else 1 / (1 + np.exp(-wide))
        [fast], [default] = lowered(text, "fast")(x), lowered(text, "default")(x)
        distance = ulp_distance(fast, want.astype(np.float32))
    worst = int(np.argmax(distance))
    assert distance[worst] <= claim, (x[worst], fast[worst])
    special = np.isnan(default) | np.isinf(default) | (default == 0)
    np.testing.assert_array_equal(fast[special], default[special])
    assert fast.tobytes() != default.tobytes()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_numbers(name: str) -> None:
    """A row with NaN may give anything; the others are exact."""
    kind = "tensor<7x100xf32>"
    text = f"""
    func.func @main(%a: {kind}) -> tensor<7xf32> {{
      %start = stablehlo.constant dense<0x{"FF" if name == "maximum" else "7F"}800000> : tensor<f32>
      %0 = stablehlo.reduce(%a init: %start) applies stablehlo.{name} across dimensions = [1]
        : ({kind}, tensor<f32>) -> tensor<7xf32>
      return %0 : tensor<7xf32>
    }}"""
    x = np.random.default_rng(3).normal(size=(7, 100)).astype(np.float32)
    x[2, 4], x[3, 5], x[6, 1] = np.inf, -np.inf, np.nan
    fast, default = lowered(text, "fast"), lowered(text, "default")
    np.testing.assert_array_equal(fast(x)[0][:6], default(x)[0][:6])
    if HOST.startswith("x86-64"):
        assert b"cmpunord" in default.compiled.artifacts["asm"]
        assert b"cmpunord" not in fast.compiled.artifacts["asm"]


@pytest.mark.parametrize("columns", [64, 100])
def test_softmax_of_a_row_with_nan_is_nan(columns: int) -> None:
    inputs = arrays(columns)
    fast = lowered(rows(columns), "fast", 2)(*inputs)[0]
    default = lowered(rows(columns), "default", 2)(*inputs)[0]
    assert np.isnan(default[1]).all()
    np.testing.assert_allclose(fast, default, rtol=2e-6)

"""Divisions by constants under ``default``: values close to those of a division, without a common error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.passes.constant_divisors import inverse_parts
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, runs_here

SIZE = 4099
TARGETS = [target for target in ("x86-64-v2", "x86-64-v3") if runs_here(target)]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, -3e38, 1e-42]


def _text(kind: str, divisor: float) -> str:
    x = f"tensor<{SIZE}x{kind}>"
    return f"""func.func @main(%x: {x}) -> {x} {{
      %c = stablehlo.constant dense<{divisor:e}> : {x}
      %y = stablehlo.divide %x, %c : {x}
      return %y : {x}
    }}"""


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    divisor=st.floats(2.0**-100, 2.0**100, width=32),
    negative=st.booleans(),
    kind=st.sampled_from(["f32", "f64"]),
)
def test_parts_of_the_inverse(divisor: float, negative: bool, kind: str) -> None:
    divisor = -divisor if negative else divisor
    parts = inverse_parts(divisor, kind)
    inverse, bits = 1 / Fraction(divisor), {"f32": 24, "f64": 53}[kind]
    if parts is None:
        assert Fraction(float(NUMPY[kind](float(inverse)))) == inverse
        return
    assert abs(sum(map(Fraction, parts)) - inverse) <= abs(inverse) / 2 ** (2 * bits - 1)
    assert all(float(NUMPY[kind](part)) == part and (part < 0) == negative for part in parts)


@pytest.mark.parametrize("divisor", [0.0, np.inf, np.nan, 1e-38, 8.0, -0.25])
def test_divisors_without_two_parts(divisor: float) -> None:
    assert inverse_parts(divisor, "f32") is None
    assert inverse_parts(6.0, "f16") is None


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("divisor", [6.0, -7.0, 0.1])
def test_quotients(kind: str, divisor: float, target: str) -> None:
    """Nearly always those of a division."""
    kernel = Kernel(lower_module(_text(kind, divisor), 1, target, CompileOptions(), lambda _: None))
    x = np.random.default_rng(7).standard_normal(SIZE).astype(NUMPY[kind])
    x[: len(SPECIAL)] = SPECIAL
    with np.errstate(over="ignore"):
        expected = x / NUMPY[kind](divisor)
    (got,) = kernel(x)
    special, rest = slice(len(SPECIAL)), slice(len(SPECIAL), None)
    np.testing.assert_array_equal(np.signbit(got[special]), np.signbit(expected[special]))
    np.testing.assert_allclose(got[special], expected[special], rtol=1e-6, atol=2e-45)
    units = np.abs(got[rest] - expected[rest]) / np.spacing(np.abs(expected[rest]))
    assert units.max() <= 1
    assert units.mean() < 0.01
    # The inverse of 6 alone would make all of them larger by a quarter of the precision.
    errors = got[rest].astype("g") * NUMPY[kind](divisor) / x[rest] - 1
    assert abs(float(errors.mean())) < 0.03 * np.finfo(NUMPY[kind]).eps


@pytest.mark.parametrize(
    ("target", "numerics", "divides"),
    [("x86-64-v3", "strict", True), ("x86-64-v2", "default", True), ("x86-64-v3", "default", False)],
)
def test_divisions_stay_under_strict_and_where_sums_are_not_fused(
    target: str, numerics: str, divides: bool
) -> None:
    with lower_until(_text("f32", 6.0), 1, target, "launches", CompileOptions(numerics)) as module:
        assert ("arith.divf" in str(module)) == divides

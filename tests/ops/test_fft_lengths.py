"""Lengths of Fourier transforms: their factors, and which are rejected."""

from __future__ import annotations

import math

import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.passes.legalize.expansions.fourier import LARGEST_PRIME, factors
from kcache_compiler.types import CompileOptions


@pytest.mark.parametrize("length", [1, 2, 17, 4093, 6144, 2 * 4093, 2**61 - 1, 4099 * 4111])
def test_factors_are_of_the_length_and_found_at_once(length: int) -> None:
    result = factors(length)
    assert math.prod(result) == length
    assert (max(result, default=1) <= LARGEST_PRIME) == (length < 10000)


def test_a_length_without_small_factors_is_rejected() -> None:
    kind = f"tensor<{2**31 - 1}xcomplex<f32>>"
    text = f"""
func.func @main(%x: {kind}) -> {kind} {{
  %r = stablehlo.fft %x, type = FFT, length = [{2**31 - 1}] : ({kind}) -> {kind}
  return %r : {kind}
}}"""
    with pytest.raises(UnsupportedOp, match="prime factor 2147483647"):
        lower_module(text, 1, "x86-64-v3", CompileOptions(), lambda _: None)

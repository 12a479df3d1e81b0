"""Values of small elements, and how results of them differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from kcache_compiler.types import SMALL_FLOATS, SMALL_INTEGERS
from kcache_grpc.runtime.dtypes import limits_of, numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]
POWERS = "f8E8M0FNU"
#: Formats without NaN: what is no number has no code that anyone agrees on.
FINITE = ("f6E2M3FN", "f6E3M2FN", "f4E2M1FN")


def codes(rng: np.random.Generator, dtype: str, count: int, kind: str) -> Array:
    """So many codes. ``kind``: "any", "positive" numbers but zero, "few" ones among zeros so that sums of
    products are exact, "ones" of any sign or zero, "zero", "some" numbers without NaN and infinities.
    """
    if kind == "zero":
        return np.zeros(count, np.uint8)
    if dtype in SMALL_INTEGERS:
        span = limits_of(dtype)[1] - limits_of(dtype)[0] + 1
        low = 1 if kind == "positive" else 0
        return rng.integers(low, span, count).astype(np.uint8)
    bits = int(dtype[1])
    whole = rng.integers(0, 1 << bits, count).astype(np.uint8)
    if kind in ("few", "ones"):
        ones = rng.choice(np.array([-1.0, 0.0, 1.0]), count)
        if kind == "few":
            ones[rng.permutation(count)[3:]] = 0
        return encode(dtype, np.where(ones == 0, 1, ones) if dtype == POWERS else ones)
    near = encode(
        dtype, np.abs(rng.standard_normal(count)) * 3 * (1 if dtype == POWERS else _sign(rng, count))
    )
    drawn = np.where(rng.random(count) < 0.5, whole, near)
    if kind == "any":
        return drawn
    numbers = decode(dtype, drawn)
    bad = ~np.isfinite(numbers) | ((numbers <= 0) if kind == "positive" else False)
    return np.where(bad, encode(dtype, np.ones(count)), drawn)


def _sign(rng: np.random.Generator, count: int) -> Array:
    return np.where(rng.random(count) < 0.5, -1.0, 1.0)


def encode(dtype: str, numbers: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(numbers, np.float32).astype(numpy_dtype(dtype)).view(np.uint8)


def decode(dtype: str, content: Array) -> Array:
    return content.view(numpy_dtype(dtype)).astype(np.float64)


def difference(dtype: str, got: bytes, expected: bytes, ulps: float) -> str:
    """What differs, in words; all NaN are equal."""
    left, right = np.frombuffer(got, np.uint8), np.frombuffer(expected, np.uint8)
    if left.size != right.size:
        return f"{left.size} bytes instead of {right.size}"
    wrong = left != right
    if dtype in SMALL_FLOATS:
        a, b = decode(dtype, left), decode(dtype, right)
        wrong &= ~(np.isnan(a) & np.isnan(b))
        if ulps > 0:
            apart = np.abs(_places(dtype, left) - _places(dtype, right))
            wrong &= (apart > ulps) | np.isnan(a) | np.isnan(b)
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    shown = f"0x{left[first]:x} is not 0x{right[first]:x}"
    return f"{int(wrong.sum())} of {left.size} values differ, first at {first}: {shown}"


def _places(dtype: str, content: Array) -> Array:
    """Integers in the order of the numbers."""
    if dtype == POWERS:
        return content.astype(np.int64)
    sign = 1 << (int(dtype[1]) - 1)
    size = (content & (sign - 1)).astype(np.int64)
    return np.where(content & sign != 0, -size, size)

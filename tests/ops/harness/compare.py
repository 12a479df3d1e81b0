"""Comparison of results with the oracle's: bit for bit, or in units in the last place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kcache_compiler.types import SMALL
from tests.ops.harness.values import COMPLEX, DTYPES, FLOATS, decode
from tests.ops.narrow_types.values import difference as small_difference

#: As ``ulps``: what is a NaN keeps its sign and its content too.
BITS = -1.0


def difference(dtype: str, got: bytes, expected: bytes, ulps: float, absolute: float = 0.0) -> str:
    """What differs, in words; empty when nothing does. All NaN are equal; ``ulps=0`` is bit for bit, as is
    ``BITS``, for NaN too.

    Complex numbers agree by their parts or by their length.
    """
    if len(got) != len(expected):
        return f"{len(got)} bytes instead of {len(expected)}"
    if dtype in SMALL:
        return small_difference(dtype, got, expected, ulps)
    part = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    storage = DTYPES[part][1]
    left, right = np.frombuffer(got, storage), np.frombuffer(expected, storage)
    if dtype not in FLOATS + COMPLEX or ulps == BITS:
        wrong = left != right
    else:
        wrong = _float_difference(part, left, right, ulps, absolute)
    if dtype in COMPLEX and ulps > 0:
        wrong &= ~_near_by_length(part, left, right, ulps)
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    values = f"{_show(part, left[first])} is not {_show(part, right[first])}"
    return f"{int(wrong.sum())} of {left.size} values differ, first at {first}: {values}"


def _float_difference(
    dtype: str, left: npt.NDArray[np.generic], right: npt.NDArray[np.generic], ulps: float, absolute: float
) -> npt.NDArray[np.bool_]:
    a, b = decode(dtype, left), decode(dtype, right)
    both_nan = np.isnan(a) & np.isnan(b)
    if ulps == 0 and absolute == 0:
        return (left != right) & ~both_nan
    distance = np.abs(_ordered(dtype, left) - _ordered(dtype, right))
    with np.errstate(invalid="ignore"):
        near = (distance <= ulps) | (np.abs(a - b) <= absolute)
    return ~(near | both_nan) | (np.isnan(a) != np.isnan(b))


def _near_by_length(
    dtype: str, left: npt.NDArray[np.generic], right: npt.NDArray[np.generic], ulps: float
) -> npt.NDArray[np.bool_]:
    """Both parts of each complex number: whether it is off by so many units of its length."""
    a, b = (decode(dtype, data).reshape(-1, 2).astype(np.longdouble) for data in (left, right))
    unit = 2.0**-23 if dtype == "f32" else 2.0**-52
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.hypot(*(a - b).T) <= ulps * unit * np.hypot(*b.T)
    return np.repeat(near, 2)


def _ordered(dtype: str, bits: npt.NDArray[np.generic]) -> npt.NDArray[np.longdouble]:
    """Integers in the order of the floats, as a type in which their differences are exact."""
    width = bits.dtype.itemsize * 8
    signed = bits.astype(np.int64) if width < 64 else bits.view(np.int64)
    sign = np.int64(-(2**63)) if width == 64 else np.int64(1 << (width - 1))
    magnitude = signed & ~sign if width == 64 else signed & (sign - 1)
    return np.where(signed & sign != 0, -magnitude, magnitude).astype(np.longdouble)


def _show(dtype: str, bits: np.generic) -> str:
    if dtype not in FLOATS:
        return str(bits)
    return f"{decode(dtype, np.array([bits]))[0]!r} (0x{int(bits):x})"

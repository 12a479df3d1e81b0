"""Whether results are what JAX gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Largest difference that counts as right, by the bytes of a real number: relative to the number, and to the
#: result's largest number. NaN and infinities are in the same places, integers and truth values are equal.
TOLERANCES: dict[int, tuple[float, float]] = {2: (8e-3, 2e-3), 4: (2e-5, 5e-6), 8: (1e-11, 1e-12)}

#: The smallest normal numbers: XLA gives 0 for what is smaller.
_SMALLEST = {2: 6.1e-5, 4: 1.2e-38, 8: 2.3e-308}


def apart(
    got: Sequence[np.ndarray], expected: Sequence[np.ndarray], singly: bool = False, widest: int = 8
) -> str:
    """What the first result that differs has, and should have; nothing where all agree.

    ``singly``: each element is compared by its own size alone, whatever the largest one is. ``widest``: the
    bytes of the numbers that results were computed with, where those are fewer than their own.
    """
    if len(got) != len(expected):
        return f"{len(got)} results, should be {len(expected)}"
    pairs = zip(got, expected, strict=True)
    return next((why for x, y in pairs if (why := _apart(x, y, singly, widest))), "")


def _apart(got: np.ndarray, expected: np.ndarray, singly: bool, widest: int) -> str:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape} should be {expected.dtype}{expected.shape}"
    if got.dtype.kind in "iub":
        return _where(got != expected, got, expected)
    if got.dtype.kind == "c":
        real = min(got.real.dtype.itemsize, widest)
        scale = 0.0 if singly else _largest(np.stack([expected.real, expected.imag]))
        off = _far(got.real, expected.real, real, scale) | _far(got.imag, expected.imag, real, scale)
        return _where(off, got, expected)
    scale = 0.0 if singly else _largest(expected)
    return _where(_far(got, expected, min(got.dtype.itemsize, widest), scale), got, expected)


def _far(got: np.ndarray, expected: np.ndarray, width: int, scale: float) -> np.ndarray:
    relative, of_largest = TOLERANCES[width]
    x, y = got.astype(np.float64), expected.astype(np.float64)
    return ~np.isclose(x, y, rtol=relative, atol=max(of_largest * scale, _SMALLEST[width]), equal_nan=True)


def _largest(numbers: np.ndarray) -> float:
    wide = np.abs(numbers.astype(np.float64))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 0.0


def _where(off: np.ndarray, got: np.ndarray, expected: np.ndarray) -> str:
    count = int(np.count_nonzero(off))
    if not count:
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(off)))
    was, should = np.atleast_1d(got)[at], np.atleast_1d(expected)[at]
    return f"{count} of {off.size} differ, at {at}: {was} should be {should}"

"""How far f32 results are from the same in f64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Error that is allowed: so much of the value, and so much of the largest value of the result, or of 1.
RELATIVE, OF_LARGEST = 1e-4, 1e-5

Array = Any


def largest_share(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest error of all results."""
    return max(_share(result, other) for result, other in zip(got, wanted, strict=True))


def _share(got: Array, wanted: Array) -> float:
    """The largest error as a share of what is allowed; infinite where shape, type or what is not finite
    differs, or an integer.
    """
    if got.shape != wanted.shape or got.dtype.kind != wanted.dtype.kind:
        return float("inf")
    if got.dtype.kind != "f":
        return 0.0 if np.array_equal(got, wanted) else float("inf")
    finite = np.isfinite(wanted)
    if not np.array_equal(got[~finite], wanted[~finite].astype(got.dtype), equal_nan=True):
        return float("inf")
    got, wanted = got[finite].astype(np.float64), wanted[finite]
    largest = float(np.max(np.abs(wanted), initial=1.0))
    allowed = RELATIVE * np.abs(wanted) + OF_LARGEST * largest
    error = np.abs(got - wanted)
    return float(np.max(np.where(np.isfinite(got), error / allowed, np.inf), initial=0.0))

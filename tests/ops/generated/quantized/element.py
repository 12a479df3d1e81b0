"""Quantized element types, their integers as floats and back: the specification's formulas in NumPy.

Floats of every expressed type are held as doubles, each rounded to that type after each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
#: Distance from 1 to the next number.
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


def rounded(expressed: str, values: Reals) -> Reals:
    """The nearest numbers of a float type, ties to even."""
    with np.errstate(over="ignore", invalid="ignore"):
        if expressed == "f64":
            return values
        if expressed in ("f32", "f16"):
            return values.astype(np.float32 if expressed == "f32" else np.float16).astype(np.float64)
        mantissa, exponent = np.frexp(values)
        whole = np.rint(np.ldexp(np.where(np.isfinite(values), mantissa, 0.0), 8))
        near = np.ldexp(whole, exponent - 8)
        return np.where(np.isfinite(values), near, values)


@dataclass(frozen=True)
class Element:
    """A quantized element type; ``axis`` is None where it has one scale."""

    storage: str
    low: int
    high: int
    expressed: str
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int | None = None

    @property
    def width(self) -> int:
        """Bits of the storage type."""
        return int(self.storage[1:])

    @property
    def text(self) -> str:
        """As MLIR writes it."""
        axis = "" if self.axis is None else f":{self.axis}"
        numbers = [f"{scale:.17e}:{zero}" for scale, zero in zip(self.scales, self.zeros, strict=True)]
        written = numbers[0] if self.axis is None else f"{{{', '.join(numbers)}}}"
        return f"!quant.uniform<{self.storage}<{self.low}:{self.high}>:{self.expressed}{axis}, {written}>"

    def tensor(self, shape: tuple[int, ...]) -> str:
        """A tensor type."""
        return f"tensor<{''.join(f'{size}x' for size in shape)}{self.text}>"

    def along(self, axis: int | None) -> Element:
        """The same along another axis."""
        return Element(self.storage, self.low, self.high, self.expressed, self.scales, self.zeros, axis)

    def spread(self, numbers: tuple[float, ...], shape: tuple[int, ...]) -> Reals:
        """One number for every element of a tensor of this type."""
        if self.axis is None:
            return np.full(shape, float(numbers[0]))
        sizes = [1] * len(shape)
        sizes[self.axis] = len(numbers)
        return np.broadcast_to(np.array(numbers, np.float64).reshape(sizes), shape)

    def dequantized(self, integers: Ints) -> Reals:
        """(integer - zero point) * scale."""
        difference = integers - self.spread(self.zeros, integers.shape).astype(np.int64)
        scaled = rounded(self.expressed, difference.astype(np.float64))
        with np.errstate(over="ignore", invalid="ignore"):
            scales = rounded(self.expressed, self.spread(self.scales, integers.shape))
            return rounded(self.expressed, scaled * scales)

    def quantized(self, values: Reals, error: Reals | float = 0.0) -> tuple[Ints, Ints]:
        """Least and greatest integer of ``values`` that are known within ``error``; anything of NaN."""
        low, _ = self._integers(values - error, error)
        _, high = self._integers(values + error, error)
        unknown = np.isnan(values)
        return np.where(unknown, self.low, low), np.where(unknown, self.high, high)

    def _integers(self, values: Reals, error: Reals | float) -> tuple[Ints, Ints]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scales = rounded(self.expressed, self.spread(self.scales, values.shape))
            scaled = rounded(self.expressed, values / scales)
            zeros = rounded(self.expressed, self.spread(self.zeros, values.shape))
            moved = rounded(self.expressed, scaled + zeros)
            bounds = rounded(self.expressed, np.array([self.low, self.high], np.float64))
            # What is off before is off by as much again after each rounding.
            slack = np.where(
                np.asarray(error) != 0, EPSILON[self.expressed] * (np.abs(scaled) + np.abs(moved)), 0
            )
            ends = [np.rint(np.clip(end, bounds[0], bounds[1])) for end in (moved - slack, moved + slack)]
        whole = [np.where(np.isnan(end), 0, end) for end in ends]
        low, high = (np.clip(end, float(self.low), float(self.high)).astype(np.int64) for end in whole)
        return low, high

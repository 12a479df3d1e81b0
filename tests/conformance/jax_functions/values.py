"""Arguments for functions, the same in every run."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np


class Given(NamedTuple):
    """An argument to be made: its dtype, shape, and the range of its numbers."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str = "float32"


def f(*shape: int) -> Given:
    """Floats on both sides of zero."""
    return Given(shape)


def p(*shape: int) -> Given:
    """Positive floats."""
    return Given(shape, 0.3, 3.0)


def u(*shape: int) -> Given:
    """Floats within (-1, 1)."""
    return Given(shape, -0.9, 0.9)


def q(*shape: int) -> Given:
    """Floats within (0, 1)."""
    return Given(shape, 0.05, 0.95)


def i(*shape: int) -> Given:
    """Integers, some below zero."""
    return Given(shape, -9, 10, "int32")


def n(*shape: int, below: int = 3) -> Given:
    """Integers from 0, as indices are."""
    return Given(shape, 0, below, "int32")


def w(*shape: int) -> Given:
    """Unsigned integers."""
    return Given(shape, 0, 60, "uint32")


def b(*shape: int) -> Given:
    """Truth values."""
    return Given(shape, 0, 2, "bool")


def c(*shape: int) -> Given:
    """Complex numbers."""
    return Given(shape, -2.0, 2.0, "complex64")


#: The dtypes of 64 bits in the place of those of 32.
_WIDE = {"float32": "float64", "int32": "int64", "uint32": "uint64", "complex64": "complex128"}
#: What stands among the numbers in the mode ``edges``. No subnormal numbers: XLA takes them for 0 on CPUs.
_EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-30)


def argument(name: str, index: int, spec: Given, mode: str = "f32") -> Any:
    """The argument, from a seed that the function's name gives."""
    random = np.random.default_rng([zlib.crc32(name.encode()), index])
    low, high, shape = spec.low, spec.high, spec.shape
    dtype = _WIDE.get(spec.dtype, spec.dtype) if mode == "x64" else spec.dtype
    if spec.dtype == "complex64":
        return (random.uniform(low, high, shape) + 1j * random.uniform(low, high, shape)).astype(dtype)
    if spec.dtype == "float32":
        numbers = random.uniform(low, high, shape).astype(dtype)
        return _with_edges(random, numbers) if mode == "edges" else numbers
    return random.integers(int(low), int(high), shape).astype(dtype)


def _with_edges(random: np.random.Generator, numbers: Any) -> Any:
    """A third of the numbers replaced."""
    chosen = random.choice(_EDGES, numbers.shape).astype("float32")
    return np.where(random.random(numbers.shape) < 1 / 3, chosen, numbers)


def words(text: str) -> list[str]:
    """The names in a text."""
    return text.split()

"""A kernel of the benchmark: one function, in JAX and in PyTorch, and the arrays that it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: As in ``f32[64,128]``: normal numbers; ``f32+`` positive ones, ``f32*0.05`` scaled ones, ``i32<9`` indices.
_ARGUMENT = re.compile(r"(f64|f32|f16|bf16|i32)(\+|\*[\d.]+|<\d+)?\[([\d,]*)\]")
_DTYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
}
_ALIGNMENT = 64


@dataclass(frozen=True)
class Case:
    """``jax`` and ``torch`` take the arrays in order and return one array or a tuple of them.

    ``numpy`` is the same where NumPy has it in a few calls; ``out`` takes a list of output arrays that are
    used again. ``tolerance`` is of the largest error, relative to an element and the root mean square of its
    array. ``traffic`` are the bytes that must move where that is not all arguments and results, ``flops``
    the operations where XLA counts more than there need be.
    """

    name: str
    group: str
    args: tuple[str, ...]
    jax: Callable[..., Any]
    torch: Callable[..., Any]
    numpy: Callable[..., Any] | None = None
    tolerance: float = 1e-5
    quick: bool = False
    traffic: int | None = None
    flops: float | None = None

    def inputs(self) -> list[Array]:
        """The same arrays every time, aligned to 64 bytes, as PyTorch's and JAX's own are."""
        rng = np.random.default_rng(7)
        return [_aligned(_made(text, rng)) for text in self.args]


def shape_of(text: str) -> tuple[int, ...]:
    """The shape in ``f32[64,128]``."""
    sizes = _parsed(text)[2]
    return tuple(int(size) for size in sizes.split(",")) if sizes else ()


def _parsed(text: str) -> tuple[str, str, str]:
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no argument like f32[64,128]")
    return match[1], match[2] or "", match[3]


def _made(text: str, rng: np.random.Generator) -> Array:
    dtype, how, _ = _parsed(text)
    shape = shape_of(text)
    if how.startswith("<"):
        return rng.integers(0, int(how[1:]), shape).astype(_DTYPES[dtype])
    values = rng.standard_normal(shape, np.float32)
    if how == "+":
        values = np.abs(values)
    elif how:
        values *= float(how[1:])
    return values.astype(_DTYPES[dtype])


def _aligned(array: Array) -> Array:
    empty = aligned_empty(array.shape, array.dtype)
    empty[...] = array
    return empty


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of undefined numbers at an aligned address."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def flat(results: Any) -> list[Any]:
    """One result or several as a list."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def error_of(got: Array, expected: Array) -> float:
    """The largest error, relative to the element and the root mean square of its array; NaN where none is due
    is infinite.
    """
    if got.shape != expected.shape:
        return float("inf")
    difference = np.abs(got.astype(np.float64) - expected)
    scale = np.abs(expected) + np.sqrt(np.mean(np.square(expected))) + np.finfo(np.float64).tiny
    worst = float(np.max(difference / scale, initial=0.0))
    return worst if np.isfinite(worst) else float("inf")

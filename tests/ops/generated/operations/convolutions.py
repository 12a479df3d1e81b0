"""Convolution by its definition, in NumPy: the interpreter ends its process over some layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ops.harness.values import COMPLEX, DTYPES, FLOATS, decode, encode

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Windows:
    """Numbers an axis of space, padding before and behind among them, and counts of groups."""

    strides: Sequence[int]
    padding: Sequence[tuple[int, int]]
    left: Sequence[int]
    right: Sequence[int]
    reversal: Sequence[bool]
    features: int
    batches: int


def numbers(dtype: str, content: bytes, shape: Sequence[int]) -> Array:
    """As a type whose sums are exact for small values, and wrap as those of the integers do."""
    if dtype in COMPLEX:
        return np.frombuffer(content, "<c8" if dtype == "c64" else "<c16").astype("<c16").reshape(shape)
    stored = np.frombuffer(content, DTYPES[dtype][1])
    wide = decode(dtype, stored) if dtype in FLOATS else stored.astype(np.int64)
    return wide.reshape(shape)


def stored(dtype: str, values: Array) -> bytes:
    """The bytes of a result."""
    if dtype in COMPLEX:
        return values.astype("<c8" if dtype == "c64" else "<c16").tobytes()
    if dtype in FLOATS:
        return encode(dtype, np.ascontiguousarray(values, np.float64)).tobytes()
    return values.astype(DTYPES[dtype][1]).tobytes()


def convolve(image: Array, kernel: Array, windows: Windows) -> Array:
    """``image`` (batch, feature, space) with ``kernel`` (output, input, space)."""
    kernel = np.flip(kernel, tuple(2 + axis for axis, turned in enumerate(windows.reversal) if turned))
    image = _padded(image, windows)
    if windows.batches > 1:
        parts = zip(np.split(image, windows.batches, 0), np.split(kernel, windows.batches, 0), strict=True)
    else:
        split = np.split(image, windows.features, 1), np.split(kernel, windows.features, 0)
        parts = zip(*split, strict=True)
    return np.concatenate([_summed(*part, windows) for part in parts], 1)


def _padded(image: Array, windows: Windows) -> Array:
    for axis, (step, (low, high)) in enumerate(zip(windows.left, windows.padding, strict=True), 2):
        size = image.shape[axis]
        spaced = (size - 1) * step + 1
        shape = list(image.shape)
        shape[axis] = spaced + low + high
        padded = np.zeros(shape, image.dtype)
        moved, source = np.moveaxis(padded, axis, 0), np.moveaxis(image, axis, 0)
        for place in range(size):
            if 0 <= place * step + low < shape[axis]:
                moved[place * step + low] = source[place]
        image = padded
    return image


def _summed(image: Array, kernel: Array, windows: Windows) -> Array:
    reach = [(size - 1) * step + 1 for size, step in zip(kernel.shape[2:], windows.right, strict=True)]
    sizes = [
        (size - far) // step + 1
        for size, far, step in zip(image.shape[2:], reach, windows.strides, strict=True)
    ]
    total = np.zeros((image.shape[0], kernel.shape[0], *sizes), image.dtype)
    for tap in np.ndindex(*kernel.shape[2:]):
        cuts = [
            slice(place * gap, place * gap + (size - 1) * step + 1, step)
            for place, gap, size, step in zip(tap, windows.right, sizes, windows.strides, strict=True)
        ]
        flat = image[(slice(None), slice(None), *cuts)].reshape(
            image.shape[0], image.shape[1], math.prod(sizes)
        )
        product = np.einsum("bix,oi->box", flat, kernel[(slice(None), slice(None), *tap)])
        total = total + product.reshape(total.shape)
    return total

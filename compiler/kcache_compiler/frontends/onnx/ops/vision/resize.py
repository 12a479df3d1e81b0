"""Resize and Upsample: along each axis a product with a matrix of weights, which the sizes decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import FLOATS, Array, Value, astype, known
from kcache_compiler.frontends.onnx.ops.indexing import taken
from kcache_compiler.frontends.onnx.site import Site, legalizes

#: How far a size of scales in f32 is from the number that they mean.
_WHOLE = 1e-5


@legalizes(Upsample=10)
def upsample(n: Site) -> Value:
    x = n[0]
    scales = [float(s) for s in (n.attributes["scales"] if n.has("scales") else n.known(1, "scales"))]
    mode = n.text("mode", "nearest")
    for axis, scale in enumerate(scales):
        size = math.floor(x.dims[axis] * scale)
        _check(n, x, axis, size)
        places = np.arange(size) / scale
        kind = "linear" if mode != "nearest" else "nearest"
        x = _interpolated(n, x, axis, places, kind, "floor", False, scale)
    return x


@legalizes(Resize=19)
def resize(n: Site) -> Value:
    x = n[0]
    first = 1 if n.version < 11 else 2
    axes = [n.axis(a, x.rank) for a in n.ints("axes")] if n.has("axes") else list(range(x.rank))
    sizes = n.get(3)
    scales = n.get(first)
    if sizes is not None and sizes.dims != (0,):
        wanted, factors = _by_sizes(n, x, axes, n.numbers(3, "sizes"))
    elif scales is not None:
        factors = [float(s) for s in n.known(first, "scales").reshape(-1)]
        wanted = [math.floor(x.dims[a] * f) for a, f in zip(axes, factors, strict=True)]
    else:
        n.invalid("it has neither scales nor sizes")
    mode = n.text("mode", "nearest")
    rounding = n.text("nearest_mode", "round_prefer_floor" if n.version >= 11 else "floor")
    if n.int("antialias", 0) and mode == "nearest":
        n.invalid("antialias = 1 of the mode 'nearest'")
    outside: list[tuple[int, Array]] = []
    for axis, size, factor, roi in zip(axes, wanted, factors, _regions(n, len(axes)), strict=True):
        _check(n, x, axis, size)
        if size == x.dims[axis] and factor == 1 and roi == (0, 1):
            continue
        places = _places(n, x.dims[axis], size, factor, roi)
        if n.text("coordinate_transformation_mode", "") == "tf_crop_and_resize":
            outside.append((axis, (places < 0) | (places > x.dims[axis] - 1)))
        # Opset 10 does not say; its own test goes up where there are fewer elements than before.
        nearest = "ceil" if n.version < 11 and factor < 1 else rounding
        x = _interpolated(n, x, axis, places, mode, nearest, bool(n.int("exclude_outside", 0)), factor)
    return _extrapolated(n, x, outside)


def _regions(n: Site, count: int) -> list[tuple[float, float]]:
    """Return where each axis starts and ends, of ``tf_crop_and_resize``; all of it for other modes."""
    if n.text("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return [(0, 1)] * count
    if n.get(1) is None:
        n.invalid("tf_crop_and_resize without a roi")
    roi = [float(each) for each in n.known(1, "roi").reshape(-1)]
    if len(roi) != 2 * count:
        n.invalid(f"a roi of {len(roi)} numbers for {count} axes")
    return list(zip(roi[:count], roi[count:], strict=True))


def _extrapolated(n: Site, x: Value, outside: list[tuple[int, Array]]) -> Value:
    """Put the value of the attribute where an axis is read beyond its ends."""
    for axis, beyond in outside:
        if not beyond.any():
            continue
        if x.element not in FLOATS:
            n.unsupported(f"a region beyond the ends of an input of {x.element}")
        shown = n.b.broadcast_in_dim(known(beyond), [axis], x.dims)
        value = n.b.full(n.float("extrapolation_value", 0.0), x.element, x.dims)
        x = n.b.select(shown, value, x)
    return x


def _check(n: Site, x: Value, axis: int, size: int) -> None:
    """Raise where the weights of an axis are more than constants may be."""
    if size < 0 or not x.dims[axis]:
        n.invalid(f"axis {axis} of shape {list(x.dims)} does not become {size}")
    check("bytes of constants", 8 * size * x.dims[axis], n.b.limits.constant_bytes)


def _by_sizes(n: Site, x: Value, axes: Sequence[int], sizes: list[int]) -> tuple[list[int], list[float]]:
    factors = [size / x.dims[axis] if x.dims[axis] else 1.0 for axis, size in zip(axes, sizes, strict=True)]
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        factor = min(factors) if policy == "not_larger" else max(factors)
        factors = [factor] * len(factors)
        sizes = [math.floor(factor * x.dims[axis] + 0.5) for axis in axes]
    return sizes, factors


def _places(n: Site, size: int, wanted: int, factor: float, roi: tuple[float, float]) -> Array:
    """Return where each result lies among the elements."""
    mode = n.text("coordinate_transformation_mode", "half_pixel" if n.version >= 11 else "asymmetric")
    index = np.arange(wanted, dtype=np.float64)
    whole = abs(factor * size - wanted) < _WHOLE * wanted
    if mode == "asymmetric":
        return index / factor
    if mode == "align_corners":
        length = factor * size
        return index * (size - 1) / (length - 1) if length > 1 else index * 0
    if mode == "pytorch_half_pixel" and wanted == 1:
        if not whole or n.int("antialias", 0) or n.text("mode", "nearest") == "cubic":
            n.unsupported("pytorch_half_pixel to one element, whose place the standard says in two ways")
        return np.zeros(1)
    if mode == "half_pixel_symmetric":
        adjustment = wanted / (factor * size)
        return size / 2 * (1 - adjustment) + (index + 0.5) / factor - 0.5
    if mode == "tf_crop_and_resize":
        start, stop = roi
        if not whole:
            n.unsupported(f"tf_crop_and_resize to {factor * size} elements: give it sizes, not scales")
        if wanted == 1:
            return np.full(1, (start + stop) * (size - 1) / 2)
        return index * (stop - start) * (size - 1) / (wanted - 1) + start * (size - 1)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        n.unsupported(f"coordinate_transformation_mode = {mode!r}")
    return (index + 0.5) / factor - 0.5


def _interpolated(
    n: Site, x: Value, axis: int, places: Array, mode: str, rounding: str, inside: bool, factor: float
) -> Value:
    size = x.dims[axis]
    if mode == "nearest":
        return _picked(n, x, axis, _nearest(n, places, rounding).clip(0, size - 1).astype(np.int64))
    if x.element not in FLOATS:
        n.unsupported(f"mode {mode!r} of {x.element}")
    narrow = min(1.0, factor) if n.int("antialias", 0) else 1.0
    matrix = _weights(n, places, size, mode, inside, narrow)
    weights = known(astype(matrix, x.element))
    wide = n.b.dot(x, weights, ([], []), ([axis], [1]))
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return n.b.transpose(wide, order)


def _nearest(n: Site, places: Array, rounding: str) -> Array:
    found: dict[str, Array] = {
        "floor": np.floor(places),
        "ceil": np.ceil(places),
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
    }
    if rounding not in found:
        n.invalid(f"nearest_mode {rounding!r} is none")
    return found[rounding]


def _picked(n: Site, x: Value, axis: int, source: Array) -> Value:
    """Take elements along an axis by known indices: repeated ones as a broadcast where that is all."""
    b, size = n.b, x.dims[axis]
    times = len(source) // size if size else 0
    if times and np.array_equal(source, np.repeat(np.arange(size), times)):
        wide = (*x.dims[: axis + 1], times, *x.dims[axis + 1 :])
        spread = b.broadcast_in_dim(x, [i for i in range(x.rank + 1) if i != axis + 1], wide)
        return b.reshape(spread, (*x.dims[:axis], size * times, *x.dims[axis + 1 :]))
    return taken(n, x, axis, source)


def _weights(n: Site, places: Array, size: int, mode: str, inside: bool, narrow: float) -> Array:
    """Return the (result, source) matrix; sources beyond the edges count for the edge.

    ``narrow`` below 1 reads so much more of the sources: what antialiasing does for smaller results.
    """
    reach = math.ceil((1 if mode == "linear" else 2) / narrow)
    matrix = np.zeros((len(places), size))
    for row, place in enumerate(places):
        floor = math.floor(place)
        sources = cast(Array, np.arange(floor - reach + 1, floor + reach + 1))
        distance = np.abs(place - sources) * narrow
        if mode == "linear":
            weights = np.maximum(0, 1 - distance)
        else:
            weights = _cubic(distance, n.float("cubic_coeff_a", -0.75))
        if narrow < 1:
            weights = weights / weights.sum()
        if inside:
            weights = np.where((sources < 0) | (sources >= size), 0, weights)
            weights = weights / (weights.sum() or 1)
        np.add.at(matrix[row], sources.clip(0, size - 1), weights)
    return matrix


def _cubic(d: Array, a: float) -> Array:
    """Keys' cubic convolution."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return cast(Array, np.where(d <= 1, near, np.where(d < 2, far, 0)))

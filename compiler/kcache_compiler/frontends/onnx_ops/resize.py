"""Resize and Upsample: along each axis a product with a matrix of weights, which the sizes decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx_ops.emit import FLOATS, Array, Value, astype, known
from kcache_compiler.frontends.onnx_ops.site import Site, legalizes


@legalizes(Upsample=10)
def upsample(n: Site) -> Value:
    x = n[0]
    scales = [float(s) for s in (n.attributes["scales"] if n.has("scales") else n.known(1, "scales"))]
    mode = n.text("mode", "nearest")
    for axis, scale in enumerate(scales):
        size = math.floor(x.dims[axis] * scale)
        _check(n, x, axis, size)
        places = np.arange(size) / scale
        x = _interpolated(n, x, axis, places, "linear" if mode != "nearest" else "nearest", "floor", False)
    return x


@legalizes(Resize=19)
def resize(n: Site) -> Value:
    x = n[0]
    first = 1 if n.version < 11 else 2
    axes = [n.axis(a, x.rank) for a in n.ints("axes")] if n.has("axes") else list(range(x.rank))
    sizes = n.get(3)
    scales = n.get(first)
    if n.int("antialias", 0):
        n.unsupported("antialias = 1")
    if sizes is not None and sizes.dims != (0,):
        wanted, factors = _by_sizes(n, x, axes, n.numbers(3, "sizes"))
    elif scales is not None:
        factors = [float(s) for s in n.known(first, "scales").reshape(-1)]
        wanted = [math.floor(x.dims[a] * f) for a, f in zip(axes, factors, strict=True)]
    else:
        n.invalid("it has neither scales nor sizes")
    mode = n.text("mode", "nearest")
    rounding = n.text("nearest_mode", "round_prefer_floor" if n.version >= 11 else "floor")
    for axis, size, factor in zip(axes, wanted, factors, strict=True):
        _check(n, x, axis, size)
        if size == x.dims[axis] and factor == 1:
            continue
        places = _places(n, x.dims[axis], size, factor)
        x = _interpolated(n, x, axis, places, mode, rounding, bool(n.int("exclude_outside", 0)))
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


def _places(n: Site, size: int, wanted: int, factor: float) -> Array:
    """Return where each result lies among the elements."""
    mode = n.text("coordinate_transformation_mode", "half_pixel" if n.version >= 11 else "asymmetric")
    index = np.arange(wanted, dtype=np.float64)
    if mode == "asymmetric":
        return index / factor
    if mode == "align_corners":
        length = factor * size
        return index * (size - 1) / (length - 1) if length > 1 else index * 0
    if mode == "pytorch_half_pixel" and wanted == 1:
        return np.full(1, -0.5)
    if mode == "half_pixel_symmetric":
        adjustment = wanted / (factor * size)
        return size / 2 * (1 - adjustment) + (index + 0.5) / factor - 0.5
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        n.unsupported(f"coordinate_transformation_mode = {mode!r}")
    return (index + 0.5) / factor - 0.5


def _interpolated(
    n: Site, x: Value, axis: int, places: Array, mode: str, rounding: str, inside: bool
) -> Value:
    size = x.dims[axis]
    if mode == "nearest":
        return _picked(n, x, axis, _nearest(n, places, rounding).clip(0, size - 1).astype(np.int64))
    if x.element not in FLOATS:
        n.unsupported(f"mode {mode!r} of {x.element}")
    matrix = _weights(n, places, size, mode, inside)
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
    numbers = (
        f"offset_dims = {[i for i in range(x.rank) if i != axis]}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1"
    )
    dims = (*x.dims[:axis], len(source), *x.dims[axis + 1 :])
    sizes = ", ".join(str(1 if i == axis else d) for i, d in enumerate(x.dims))
    properties = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = array<i64: {sizes}>"
    )
    return b.emit("stablehlo.gather", [x, known(source)], x.element, dims, properties)


def _weights(n: Site, places: Array, size: int, mode: str, inside: bool) -> Array:
    """Return the (result, source) matrix; sources beyond the edges count for the edge."""
    reach = 1 if mode == "linear" else 2
    matrix = np.zeros((len(places), size))
    for row, place in enumerate(places):
        floor = math.floor(place)
        sources = cast(Array, np.arange(floor - reach + 1, floor + reach + 1))
        distance = np.abs(place - sources)
        weights = 1 - distance if mode == "linear" else _cubic(distance, n.float("cubic_coeff_a", -0.75))
        if inside:
            weights = np.where((sources < 0) | (sources >= size), 0, weights)
            weights = weights / weights.sum()
        np.add.at(matrix[row], sources.clip(0, size - 1), weights)
    return matrix


def _cubic(d: Array, a: float) -> Array:
    """Keys' cubic convolution."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return cast(Array, np.where(d <= 1, near, far))

"""Resize and Upsample: along each axis a product with a constant matrix of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import FLOATS, Array, Value, astype, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.indexing import take_constant

#: Relative tolerance of a size that is computed from scales in f32.
_SCALE_TOLERANCE = 1e-5


@legalize(Upsample=10)
def upsample(n: OnnxNode) -> Value:
    x = n[0]
    scales = [float(s) for s in (n.attributes["scales"] if n.has("scales") else n.constant(1, "scales"))]
    mode = n.text("mode", "nearest")
    for axis, scale in enumerate(scales):
        size = math.floor(x.dims[axis] * scale)
        _check_weights_size(n, x, axis, size)
        coordinates = np.arange(size) / scale
        interpolation = "linear" if mode != "nearest" else "nearest"
        x = _interpolate(n, x, axis, coordinates, interpolation, "floor", False, scale)
    return x


@legalize(Resize=19)
def resize(n: OnnxNode) -> Value:
    """Lower ``Resize``: interpolation of each axis to a constant size or by a constant scale.

    Axes are interpolated one after another, by matrices of weights; axes that keep their size are skipped.
    """
    x = n[0]
    scales_input = 1 if n.version < 11 else 2
    axes = [n.axis(a, x.rank) for a in n.ints("axes")] if n.has("axes") else list(range(x.rank))
    sizes = n.get(3)
    scales = n.get(scales_input)
    if sizes is not None and sizes.dims != (0,):
        targets, factors = _scales_from_sizes(n, x, axes, n.numbers(3, "sizes"))
    elif scales is not None:
        factors = [float(s) for s in n.constant(scales_input, "scales").reshape(-1)]
        targets = [math.floor(x.dims[a] * f) for a, f in zip(axes, factors, strict=True)]
    else:
        n.invalid("it has neither scales nor sizes")
    mode = n.text("mode", "nearest")
    rounding = n.text("nearest_mode", "round_prefer_floor" if n.version >= 11 else "floor")
    if n.int("antialias", 0) and mode == "nearest":
        n.invalid("antialias = 1 with the mode 'nearest'")
    outside: list[tuple[int, Array]] = []
    for axis, size, factor, roi in zip(axes, targets, factors, _regions(n, len(axes)), strict=True):
        _check_weights_size(n, x, axis, size)
        if size == x.dims[axis] and factor == 1 and roi == (0, 1):
            continue
        coordinates = _coordinates(n, x.dims[axis], size, factor, roi)
        if n.text("coordinate_transformation_mode", "") == "tf_crop_and_resize":
            outside.append((axis, (coordinates < 0) | (coordinates > x.dims[axis] - 1)))
        # Opset 10 does not specify it; its own test rounds up when downsampling.
        nearest = "ceil" if n.version < 11 and factor < 1 else rounding
        x = _interpolate(n, x, axis, coordinates, mode, nearest, bool(n.int("exclude_outside", 0)), factor)
    return _fill_outside(n, x, outside)


def _regions(n: OnnxNode, count: int) -> list[tuple[float, float]]:
    """Return the start and end of each axis for ``tf_crop_and_resize``, the whole axis for other modes."""
    if n.text("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return [(0, 1)] * count
    if n.get(1) is None:
        n.invalid("tf_crop_and_resize without a roi")
    roi = [float(bound) for bound in n.constant(1, "roi").reshape(-1)]
    if len(roi) != 2 * count:
        n.invalid(f"a roi of {len(roi)} elements for {count} axes")
    return list(zip(roi[:count], roi[count:], strict=True))


def _fill_outside(n: OnnxNode, x: Value, outside: list[tuple[int, Array]]) -> Value:
    """Fill positions beyond the ends of an axis with the extrapolation value."""
    for axis, is_outside in outside:
        if not is_outside.any():
            continue
        if x.element not in FLOATS:
            n.unsupported(f"a region beyond the ends of an input of {x.element}")
        mask = n.b.broadcast_in_dim(constant_value(is_outside), [axis], x.dims)
        value = n.b.full(n.float("extrapolation_value", 0.0), x.element, x.dims)
        x = n.b.select(mask, value, x)
    return x


def _check_weights_size(n: OnnxNode, x: Value, axis: int, size: int) -> None:
    """Raise if the weights of an axis exceed the limit on constants."""
    if size < 0 or not x.dims[axis]:
        n.invalid(f"axis {axis} of shape {list(x.dims)} cannot be resized to {size}")
    check("bytes of constants", 8 * size * x.dims[axis], n.b.limits.constant_bytes)


def _scales_from_sizes(
    n: OnnxNode, x: Value, axes: Sequence[int], sizes: list[int]
) -> tuple[list[int], list[float]]:
    factors = [size / x.dims[axis] if x.dims[axis] else 1.0 for axis, size in zip(axes, sizes, strict=True)]
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        factor = min(factors) if policy == "not_larger" else max(factors)
        factors = [factor] * len(factors)
        sizes = [math.floor(factor * x.dims[axis] + 0.5) for axis in axes]
    return sizes, factors


def _coordinates(n: OnnxNode, size: int, target: int, factor: float, roi: tuple[float, float]) -> Array:
    """Return the coordinate of each result among the elements."""
    mode = n.text("coordinate_transformation_mode", "half_pixel" if n.version >= 11 else "asymmetric")
    index = np.arange(target, dtype=np.float64)
    is_exact = abs(factor * size - target) < _SCALE_TOLERANCE * target
    if mode == "asymmetric":
        return index / factor
    if mode == "align_corners":
        length = factor * size
        return index * (size - 1) / (length - 1) if length > 1 else index * 0
    if mode == "pytorch_half_pixel" and target == 1:
        if not is_exact or n.int("antialias", 0) or n.text("mode", "nearest") == "cubic":
            n.unsupported(
                "pytorch_half_pixel to one element, whose coordinate the standard defines in two ways"
            )
        return np.zeros(1)
    if mode == "half_pixel_symmetric":
        adjustment = target / (factor * size)
        return size / 2 * (1 - adjustment) + (index + 0.5) / factor - 0.5
    if mode == "tf_crop_and_resize":
        start, stop = roi
        if not is_exact:
            n.unsupported(f"tf_crop_and_resize to {factor * size} elements: give it sizes, not scales")
        if target == 1:
            return np.full(1, (start + stop) * (size - 1) / 2)
        return index * (stop - start) * (size - 1) / (target - 1) + start * (size - 1)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        n.unsupported(f"coordinate_transformation_mode = {mode!r}")
    return (index + 0.5) / factor - 0.5


def _interpolate(
    n: OnnxNode,
    x: Value,
    axis: int,
    coordinates: Array,
    mode: str,
    rounding: str,
    exclude_outside: bool,
    factor: float,
) -> Value:
    """Interpolate one axis at ``coordinates``."""
    size = x.dims[axis]
    if mode == "nearest":
        return _repeat_or_take(
            n, x, axis, _nearest_indices(n, coordinates, rounding).clip(0, size - 1).astype(np.int64)
        )
    if x.element not in FLOATS:
        n.unsupported(f"mode {mode!r} of {x.element}")
    kernel_scale = min(1.0, factor) if n.int("antialias", 0) else 1.0
    matrix = _weights(n, coordinates, size, mode, exclude_outside, kernel_scale)
    weights = constant_value(astype(matrix, x.element))
    product = n.b.dot(x, weights, ([], []), ([axis], [1]))
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return n.b.transpose(product, order)


def _nearest_indices(n: OnnxNode, coordinates: Array, rounding: str) -> Array:
    rounded: dict[str, Array] = {
        "floor": np.floor(coordinates),
        "ceil": np.ceil(coordinates),
        "round_prefer_floor": np.ceil(coordinates - 0.5),
        "round_prefer_ceil": np.floor(coordinates + 0.5),
    }
    if rounding not in rounded:
        n.invalid(f"nearest_mode {rounding!r} does not exist")
    return rounded[rounding]


def _repeat_or_take(n: OnnxNode, x: Value, axis: int, source: Array) -> Value:
    """Take elements along an axis by constant indices; a plain repetition becomes a broadcast."""
    b, size = n.b, x.dims[axis]
    repeats = len(source) // size if size else 0
    if repeats and np.array_equal(source, np.repeat(np.arange(size), repeats)):
        repeated_dims = (*x.dims[: axis + 1], repeats, *x.dims[axis + 1 :])
        repeated = b.broadcast_in_dim(x, [i for i in range(x.rank + 1) if i != axis + 1], repeated_dims)
        return b.reshape(repeated, (*x.dims[:axis], size * repeats, *x.dims[axis + 1 :]))
    return take_constant(n, x, axis, source)


def _weights(
    n: OnnxNode, coordinates: Array, size: int, mode: str, exclude_outside: bool, kernel_scale: float
) -> Array:
    """Return the (result, source) matrix; sources outside count for the edge, or not at all.

    ``kernel_scale`` below 1 widens the kernel for antialiasing.
    """
    radius = math.ceil((1 if mode == "linear" else 2) / kernel_scale)
    matrix = np.zeros((len(coordinates), size))
    for row, coordinate in enumerate(coordinates):
        base = math.floor(coordinate)
        sources = cast(Array, np.arange(base - radius + 1, base + radius + 1))
        distance = np.abs(coordinate - sources) * kernel_scale
        if mode == "linear":
            weights = np.maximum(0, 1 - distance)
        else:
            weights = _cubic(distance, n.float("cubic_coeff_a", -0.75))
        if kernel_scale < 1:
            weights = weights / weights.sum()
        if exclude_outside:
            weights = np.where((sources < 0) | (sources >= size), 0, weights)
            weights = weights / (weights.sum() or 1)
        np.add.at(matrix[row], sources.clip(0, size - 1), weights)
    return matrix


def _cubic(d: Array, a: float) -> Array:
    """Return the weights of Keys' cubic convolution at the distances ``d``."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return cast(Array, np.where(d <= 1, near, np.where(d < 2, far, 0)))

"""GridSample and AffineGrid, and the interpolation that GridSample, DeformConv and RoiAlign share.

One gather reads the elements around a position, which are summed with their weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, i64_array
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize

_CUBIC_COEFFICIENT = -0.75


class Taps(NamedTuple):
    """Elements of one axis that each position reads, (batch, position, tap): indices, validity, weights."""

    indices: Value
    inside: Value | None
    weight: Value | None


def gather_last_axis(b: Builder, x: Value, index: Value, images: Value | None = None) -> Value:
    """Return (batch, channel, position): elements of (batch, channel, element) by (batch, position) indices.

    With ``images``, row i of the indices is of batch ``images[i]``.
    """
    channels = x.dims[1]
    dimension_numbers = (
        "offset_dims = [1], collapsed_slice_dims = [2], operand_batching_dims = [0], "
        "start_indices_batching_dims = [0], start_index_map = [2], index_vector_dim = 2"
    )
    if images is not None:
        dimension_numbers = (
            "offset_dims = [1], collapsed_slice_dims = [0, 2], start_index_map = [0, 2], index_vector_dim = 2"
        )
    properties = (
        f"dimension_numbers = #stablehlo.gather<{dimension_numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64_array([1, channels, 1])}"
    )
    start_indices = b.reshape(index, (*index.dims, 1))
    if images is not None:
        start_indices = b.concatenate([b.broadcast_in_dim(images, [0], start_indices.dims), start_indices], 2)
    dims = (index.dims[0], channels, index.dims[1])
    return b.emit("stablehlo.gather", [x, start_indices], x.element, dims, properties)


def interpolate_taps(
    b: Builder, x: Value, axes: Sequence[Taps], images: Value | None = None, op: str = "add"
) -> Value:
    """Return (batch, channel, position) of (batch, channel, spatial...): the combined weighted taps."""
    channels, *spatial = x.dims[1:]
    batch, count, _ = axes[0].indices.dims
    tap_counts = [axis_taps.indices.dims[2] for axis_taps in axes]
    dims = (batch, count, *tap_counts)
    flat_index: Value | None = None
    is_valid: Value | None = None
    weight: Value | None = None
    for i, axis_taps in enumerate(axes):
        axes_of_taps = [0, 1, 2 + i]
        stride = math.prod(spatial[i + 1 :])
        offset = axis_taps.indices if stride == 1 else b.scalar("multiply", axis_taps.indices, stride)
        broadcast = b.broadcast_in_dim(offset, axes_of_taps, dims)
        flat_index = broadcast if flat_index is None else b.binary("add", flat_index, broadcast)
        if axis_taps.inside is not None:
            broadcast = b.broadcast_in_dim(axis_taps.inside, axes_of_taps, dims)
            is_valid = broadcast if is_valid is None else b.binary("and", is_valid, broadcast)
        if axis_taps.weight is not None:
            broadcast = b.broadcast_in_dim(axis_taps.weight, axes_of_taps, dims)
            weight = broadcast if weight is None else b.binary("multiply", weight, broadcast)
    assert flat_index is not None
    tap_count = math.prod(tap_counts)
    rows = b.reshape(x, (x.dims[0], channels, math.prod(spatial)))
    values = gather_last_axis(b, rows, b.reshape(flat_index, (batch, count * tap_count)), images)
    values = b.reshape(values, (batch, channels, count, tap_count))
    if is_valid is not None:
        is_valid = b.broadcast_in_dim(b.reshape(is_valid, (batch, count, tap_count)), [0, 2, 3], values.dims)
        values = b.select(is_valid, values, b.full(0, x.element, values.dims))
    if weight is None:
        return b.reshape(values, values.dims[:3])
    weight = b.broadcast_in_dim(b.reshape(weight, (batch, count, tap_count)), [0, 2, 3], values.dims)
    return b.reduce(op, b.binary("multiply", values, weight), [3])


def linear_taps(b: Builder, position: Value, size: int, padding: str, corners: bool) -> Taps:
    """Return the two neighbors of each position (batch, position)."""
    low = b.unary("floor", position)
    upper_weight = b.binary("subtract", position, low)
    lower_weight = b.binary("subtract", b.full(1, upper_weight.element, upper_weight.dims), upper_weight)
    return _make_taps(b, low, [0, 1], [lower_weight, upper_weight], size, padding, corners)


def _cubic_taps(b: Builder, position: Value, size: int, padding: str, corners: bool) -> Taps:
    """Return four neighbors with the weights of Keys' cubic convolution."""
    low = b.unary("floor", position)
    fraction = b.binary("subtract", position, low)
    complement = b.binary("subtract", b.full(1, fraction.element, fraction.dims), fraction)
    weights = [
        _far_weight(b, fraction),
        _near_weight(b, fraction),
        _near_weight(b, complement),
        _far_weight(b, complement),
    ]
    return _make_taps(b, low, [-1, 0, 1, 2], weights, size, padding, corners)


def _near_weight(b: Builder, d: Value) -> Value:
    """Return the cubic weight at a distance ``d`` of at most 1."""
    term = b.scalar("subtract", b.scalar("multiply", d, _CUBIC_COEFFICIENT + 2), _CUBIC_COEFFICIENT + 3)
    return b.scalar("add", b.binary("multiply", b.binary("multiply", term, d), d), 1)


def _far_weight(b: Builder, d: Value) -> Value:
    """Return the cubic weight at a distance of ``d`` + 1."""
    d = b.scalar("add", d, 1)
    term = b.scalar("subtract", b.scalar("multiply", d, _CUBIC_COEFFICIENT), 5 * _CUBIC_COEFFICIENT)
    term = b.scalar("add", b.binary("multiply", term, d), 8 * _CUBIC_COEFFICIENT)
    return b.scalar("subtract", b.binary("multiply", term, d), 4 * _CUBIC_COEFFICIENT)


def _make_taps(
    b: Builder,
    low: Value,
    offsets: Sequence[int],
    weights: Sequence[Value],
    size: int,
    padding: str,
    corners: bool,
) -> Taps:
    column_dims = (*low.dims, 1)
    # Positions beyond are outside in any case, but must be representable in i64.
    first = b.convert(_clamp(b, low, -(2.0**31), 2.0**31), "i64")
    columns = [b.reshape(b.scalar("add", first, offset), column_dims) for offset in offsets]
    index = b.concatenate(columns, 2)
    weight = b.concatenate([b.reshape(w, column_dims) for w in weights], 2) if weights else None
    index, inside = _valid_indices(b, index, size, padding, corners)
    return Taps(index, inside, weight)


def _valid_indices(
    b: Builder, index: Value, size: int, padding: str, corners: bool
) -> tuple[Value, Value | None]:
    """Return indices within the axis, and for zero padding which ones were."""
    if padding == "reflection":
        return _reflect_indices(b, index, size, corners), None
    valid = b.binary("and", b.compare_to("GE", index, 0), b.compare_to("LT", index, size))
    return _clamp(b, index, 0, size - 1), valid if padding == "zeros" else None


def _reflect_indices(b: Builder, index: Value, size: int, corners: bool) -> Value:
    """Reflect indices at the centers of the first and last element, or at their outer edges."""
    if size == 1:
        return b.full(0, "i64", index.dims)
    period = 2 * size - 2 if corners else 2 * size
    remainder = b.scalar("remainder", index, period)
    remainder = b.select(b.compare_to("LT", remainder, 0), b.scalar("add", remainder, period), remainder)
    reflected = b.binary(
        "subtract", b.full(period if corners else period - 1, "i64", remainder.dims), remainder
    )
    return b.select(b.compare_to("LT", remainder, size), remainder, reflected)


def _clamp(b: Builder, x: Value, low: float, high: float) -> Value:
    return b.scalar("minimum", b.scalar("maximum", x, low), high)


def _fold_positions(b: Builder, position: Value, size: int, padding: str, corners: bool) -> Value:
    """Move positions outside of the borders inside, for border and reflection padding."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    if padding == "border":
        is_outside = b.binary("or", b.compare_to("LT", position, low), b.compare_to("GT", position, high))
        return b.select(is_outside, _clamp(b, position, 0, size - 1), position)
    if padding != "reflection" or high == low:
        return position
    length = high - low
    is_below, is_above = b.compare_to("LT", position, low), b.compare_to("GT", position, high)
    start = b.full(low, position.element, position.dims)
    end = b.full(high, position.element, position.dims)
    excess = b.select(is_below, b.binary("subtract", start, position), b.binary("subtract", position, end))
    periods = b.unary("floor", b.scalar("divide", excess, length))
    remainder = b.binary("subtract", excess, b.scalar("multiply", periods, length))
    half_periods = b.scalar("multiply", periods, 0.5)
    is_even = b.compare("EQ", half_periods, b.unary("floor", half_periods))
    from_start = b.compare("EQ", is_even, is_below)
    folded = b.select(from_start, b.binary("add", start, remainder), b.binary("subtract", end, remainder))
    return b.select(b.binary("or", is_below, is_above), folded, position)


@legalize(GridSample=22)
def grid_sample(n: OnnxNode) -> Value:
    """Lower ``GridSample``: the input (batch, channels, ...) interpolated at the positions of a grid.

    The grid has shape (batch, ..., spatial rank), with coordinates from -1 to 1 of which the first is that of
    the last axis. The result has the spatial shape of the grid.
    """
    b, x, grid = n.b, n[0], n[1]
    spatial, mode = x.rank - 2, n.text("mode", "linear" if n.version >= 20 else "bilinear")
    padding, corners = n.text("padding_mode", "zeros"), bool(n.int("align_corners", 0))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        n.invalid(f"mode = {mode!r} and padding_mode = {padding!r}")
    if spatial < 1 or grid.rank != x.rank or (grid.dims[0], grid.dims[-1]) != (x.dims[0], spatial):
        n.invalid(f"a grid of shape {list(grid.dims)} for an input of shape {list(x.dims)}")
    if grid.element not in FLOATS or (mode != "nearest" and x.element not in FLOATS):
        n.unsupported(f"mode {mode!r} of {x.element} with a grid of {grid.element}")
    if mode == "cubic" and padding == "border":
        n.unsupported(
            "cubic weights at the border, which the standard's reference and PyTorch define differently"
        )
    dims = (*x.dims[:2], *grid.dims[1:-1])
    if 0 in dims:
        return b.full(0, x.element, dims)
    if 0 in x.dims:
        n.invalid(f"it reads elements of the empty shape {list(x.dims)}")
    element = "f64" if "f64" in (grid.element, x.element) else "f32"
    grid = b.convert(b.reshape(grid, (x.dims[0], math.prod(dims[2:]), spatial)), element)
    axes = [
        _axis_taps(b, _grid_positions(b, grid, spatial - 1 - i, size, corners), size, mode, padding, corners)
        for i, size in enumerate(x.dims[2:])
    ]
    if mode == "nearest":
        return b.reshape(interpolate_taps(b, x, axes), dims)
    return b.convert(b.reshape(interpolate_taps(b, b.convert(x, element), axes), dims), x.element)


def _grid_positions(b: Builder, grid: Value, axis: int, size: int, corners: bool) -> Value:
    """Map grid coordinates from -1 to 1 to positions (batch, position) along an axis."""
    coordinates = b.reshape(b.slice_axis(grid, 2, axis, axis + 1), grid.dims[:2])
    coordinates = b.scalar("add", coordinates, 1)
    if corners:
        return b.scalar("multiply", b.scalar("multiply", coordinates, 0.5), size - 1)
    return b.scalar("multiply", b.scalar("subtract", b.scalar("multiply", coordinates, size), 1), 0.5)


def _axis_taps(b: Builder, position: Value, size: int, mode: str, padding: str, corners: bool) -> Taps:
    if mode == "nearest":
        return _make_taps(b, b.unary("round_nearest_even", position), [0], [], size, padding, corners)
    position = _fold_positions(b, position, size, padding, corners)
    make_taps = linear_taps if mode == "linear" else _cubic_taps
    return make_taps(b, position, size, padding, corners)


@legalize(AffineGrid=20)
def affine_grid(n: OnnxNode) -> Value:
    """Return a regular grid transformed by a matrix for each image.

    The standard's function body is not used: it rejects a single image, and rounds to the matrices' type.
    """
    b, theta = n.b, n[0]
    sizes = n.numbers(1, "its size")
    images, spatial = sizes[:1], sizes[2:]
    rank = len(spatial)
    if rank not in (2, 3) or theta.dims != (*images, rank, rank + 1):
        n.invalid(f"matrices of shape {list(theta.dims)} do not match a grid of size {sizes}")
    aligned = bool(n.int("align_corners", 0))
    if aligned and 1 in spatial:
        n.unsupported("align_corners along an axis of one element, which runtimes define differently")
    element = "f64" if theta.element == "f64" else "f32"
    matrices = b.convert(theta, element)
    dims = (*images, *spatial, rank)

    def column(index: int) -> Value:
        numbers = b.reshape(b.slice_axis(matrices, 2, index, index + 1), (*images, rank))
        return b.broadcast_in_dim(numbers, [0, rank + 1], dims)

    grid = column(rank)
    for index, size in enumerate(reversed(spatial)):
        coordinates = b.broadcast_in_dim(_grid_coordinates(n, size, aligned, element), [rank - index], dims)
        grid = b.binary("add", grid, b.binary("multiply", column(index), coordinates))
    return b.convert(grid, theta.element)


def _grid_coordinates(n: OnnxNode, size: int, aligned: bool, element: str) -> Value:
    """Return coordinates from -1 to 1: of the centers, or if ``aligned`` with the outer ones at the ends."""
    twice = n.b.scalar("multiply", n.b.iota(element, (size,), 0), 2)
    return n.b.scalar("divide", n.b.scalar("add", twice, 1 - size), size - 1 if aligned else size)

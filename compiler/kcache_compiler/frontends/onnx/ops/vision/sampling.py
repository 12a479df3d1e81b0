"""Tensors read between their elements: what GridSample, DeformConv and RoiAlign share, and the first two.

The elements around a place are taken by one gather, and summed with their weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, i64s
from kcache_compiler.frontends.onnx.site import Site, legalizes

_CUBIC = -0.75


class Taps(NamedTuple):
    """Elements of one axis that each place reads, (batch, place, tap): where, whether it is one, weight."""

    at: Value
    inside: Value | None
    weight: Value | None


def gathered(b: Build, x: Value, index: Value, images: Value | None = None) -> Value:
    """Return (batch, channel, place): elements of (batch, channel, element) by (batch, place) indices.

    With ``images``, row i of the indices is of batch ``images[i]``.
    """
    channels = x.dims[1]
    numbers = (
        "offset_dims = [1], collapsed_slice_dims = [2], operand_batching_dims = [0], "
        "start_indices_batching_dims = [0], start_index_map = [2], index_vector_dim = 2"
    )
    if images is not None:
        numbers = (
            "offset_dims = [1], collapsed_slice_dims = [0, 2], start_index_map = [0, 2], index_vector_dim = 2"
        )
    properties = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64s([1, channels, 1])}"
    )
    places = b.reshape(index, (*index.dims, 1))
    if images is not None:
        places = b.concatenate([b.broadcast_in_dim(images, [0], places.dims), places], 2)
    dims = (index.dims[0], channels, index.dims[1])
    return b.emit("stablehlo.gather", [x, places], x.element, dims, properties)


def sampled(b: Build, x: Value, axes: Sequence[Taps], images: Value | None = None, op: str = "add") -> Value:
    """Return (batch, channel, place) of (batch, channel, spatial...): the weighted taps, combined."""
    channels, *spatial = x.dims[1:]
    batch, count, _ = axes[0].at.dims
    taps = [each.at.dims[2] for each in axes]
    dims = (batch, count, *taps)
    flat: Value | None = None
    inside: Value | None = None
    weight: Value | None = None
    for i, each in enumerate(axes):
        where = [0, 1, 2 + i]
        stride = math.prod(spatial[i + 1 :])
        step = each.at if stride == 1 else b.scalar("multiply", each.at, stride)
        wide = b.broadcast_in_dim(step, where, dims)
        flat = wide if flat is None else b.binary("add", flat, wide)
        if each.inside is not None:
            wide = b.broadcast_in_dim(each.inside, where, dims)
            inside = wide if inside is None else b.binary("and", inside, wide)
        if each.weight is not None:
            wide = b.broadcast_in_dim(each.weight, where, dims)
            weight = wide if weight is None else b.binary("multiply", weight, wide)
    assert flat is not None
    total = math.prod(taps)
    rows = b.reshape(x, (x.dims[0], channels, math.prod(spatial)))
    values = gathered(b, rows, b.reshape(flat, (batch, count * total)), images)
    values = b.reshape(values, (batch, channels, count, total))
    if inside is not None:
        inside = b.broadcast_in_dim(b.reshape(inside, (batch, count, total)), [0, 2, 3], values.dims)
        values = b.select(inside, values, b.full(0, x.element, values.dims))
    if weight is None:
        return b.reshape(values, values.dims[:3])
    weight = b.broadcast_in_dim(b.reshape(weight, (batch, count, total)), [0, 2, 3], values.dims)
    return b.reduce(op, b.binary("multiply", values, weight), [3])


def linear_taps(b: Build, place: Value, size: int, padding: str, corners: bool) -> Taps:
    """Return the two neighbours of each place (batch, place)."""
    low = b.unary("floor", place)
    above = b.binary("subtract", place, low)
    below = b.binary("subtract", b.full(1, above.element, above.dims), above)
    return _taps(b, low, [0, 1], [below, above], size, padding, corners)


def _cubic_taps(b: Build, place: Value, size: int, padding: str, corners: bool) -> Taps:
    """Keys' convolution over four neighbours."""
    low = b.unary("floor", place)
    t = b.binary("subtract", place, low)
    back = b.binary("subtract", b.full(1, t.element, t.dims), t)
    weights = [_far(b, t), _near(b, t), _near(b, back), _far(b, back)]
    return _taps(b, low, [-1, 0, 1, 2], weights, size, padding, corners)


def _near(b: Build, d: Value) -> Value:
    """Weigh an element at a distance of at most 1."""
    inner = b.scalar("subtract", b.scalar("multiply", d, _CUBIC + 2), _CUBIC + 3)
    return b.scalar("add", b.binary("multiply", b.binary("multiply", inner, d), d), 1)


def _far(b: Build, d: Value) -> Value:
    """Weigh an element at a distance of ``d`` + 1."""
    d = b.scalar("add", d, 1)
    inner = b.scalar("subtract", b.scalar("multiply", d, _CUBIC), 5 * _CUBIC)
    inner = b.scalar("add", b.binary("multiply", inner, d), 8 * _CUBIC)
    return b.scalar("subtract", b.binary("multiply", inner, d), 4 * _CUBIC)


def _taps(
    b: Build,
    low: Value,
    offsets: Sequence[int],
    weights: Sequence[Value],
    size: int,
    padding: str,
    corners: bool,
) -> Taps:
    column = (*low.dims, 1)
    # Beyond, a place is outside whatever it is: its number must be one that i64 has.
    first = b.convert(_clamped(b, low, -(2.0**31), 2.0**31), "i64")
    parts = [b.reshape(b.scalar("add", first, offset), column) for offset in offsets]
    index = b.concatenate(parts, 2)
    weight = b.concatenate([b.reshape(w, column) for w in weights], 2) if weights else None
    index, inside = _inside(b, index, size, padding, corners)
    return Taps(index, inside, weight)


def _inside(b: Build, index: Value, size: int, padding: str, corners: bool) -> tuple[Value, Value | None]:
    """Return indices that are elements, and for padding by zeros which ones were."""
    if padding == "reflection":
        return _mirrored(b, index, size, corners), None
    valid = b.binary("and", b.compare_to("GE", index, 0), b.compare_to("LT", index, size))
    return _clamped(b, index, 0, size - 1), valid if padding == "zeros" else None


def _mirrored(b: Build, index: Value, size: int, corners: bool) -> Value:
    """Fold indices back at the edges: at the centers of the first and last element, or around them."""
    if size == 1:
        return b.full(0, "i64", index.dims)
    period = 2 * size - 2 if corners else 2 * size
    rest = b.scalar("remainder", index, period)
    rest = b.select(b.compare_to("LT", rest, 0), b.scalar("add", rest, period), rest)
    turned = b.binary("subtract", b.full(period if corners else period - 1, "i64", rest.dims), rest)
    return b.select(b.compare_to("LT", rest, size), rest, turned)


def _clamped(b: Build, x: Value, low: float, high: float) -> Value:
    return b.scalar("minimum", b.scalar("maximum", x, low), high)


def _folded(b: Build, place: Value, size: int, padding: str, corners: bool) -> Value:
    """Bring places outside the borders in, where the padding is by what is inside."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    if padding == "border":
        out = b.binary("or", b.compare_to("LT", place, low), b.compare_to("GT", place, high))
        return b.select(out, _clamped(b, place, 0, size - 1), place)
    if padding != "reflection" or high == low:
        return place
    length = high - low
    below, above = b.compare_to("LT", place, low), b.compare_to("GT", place, high)
    start = b.full(low, place.element, place.dims)
    end = b.full(high, place.element, place.dims)
    beyond = b.select(below, b.binary("subtract", start, place), b.binary("subtract", place, end))
    turns = b.unary("floor", b.scalar("divide", beyond, length))
    rest = b.binary("subtract", beyond, b.scalar("multiply", turns, length))
    half = b.scalar("multiply", turns, 0.5)
    even = b.compare("EQ", half, b.unary("floor", half))
    from_start = b.compare("EQ", even, below)
    folded = b.select(from_start, b.binary("add", start, rest), b.binary("subtract", end, rest))
    return b.select(b.binary("or", below, above), folded, place)


@legalizes(GridSample=22)
def grid_sample(n: Site) -> Value:
    b, x, grid = n.b, n[0], n[1]
    spatial, mode = x.rank - 2, n.text("mode", "linear" if n.version >= 20 else "bilinear")
    padding, corners = n.text("padding_mode", "zeros"), bool(n.int("align_corners", 0))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        n.invalid(f"mode = {mode!r} and padding_mode = {padding!r}")
    if spatial < 1 or grid.rank != x.rank or (grid.dims[0], grid.dims[-1]) != (x.dims[0], spatial):
        n.invalid(f"a grid of shape {list(grid.dims)} for an input of shape {list(x.dims)}")
    if grid.element not in FLOATS or (mode != "nearest" and x.element not in FLOATS):
        n.unsupported(f"mode {mode!r} of {x.element} at places of {grid.element}")
    if mode == "cubic" and padding == "border":
        n.unsupported(
            "cubic weights at the border: the standard's reference and PyTorch place them differently"
        )
    dims = (*x.dims[:2], *grid.dims[1:-1])
    if 0 in dims:
        return b.full(0, x.element, dims)
    if 0 in x.dims:
        n.invalid(f"it reads elements of shape {list(x.dims)}, which has none")
    wide = "f64" if "f64" in (grid.element, x.element) else "f32"
    grid = b.convert(b.reshape(grid, (x.dims[0], math.prod(dims[2:]), spatial)), wide)
    axes = [
        _axis_taps(b, _place(b, grid, spatial - 1 - i, size, corners), size, mode, padding, corners)
        for i, size in enumerate(x.dims[2:])
    ]
    if mode == "nearest":
        return b.reshape(sampled(b, x, axes), dims)
    return b.convert(b.reshape(sampled(b, b.convert(x, wide), axes), dims), x.element)


def _place(b: Build, grid: Value, axis: int, size: int, corners: bool) -> Value:
    """Return (batch, place): where -1 to 1 lie among the elements of an axis."""
    given = b.reshape(b.along(grid, 2, axis, axis + 1), grid.dims[:2])
    given = b.scalar("add", given, 1)
    if corners:
        return b.scalar("multiply", b.scalar("multiply", given, 0.5), size - 1)
    return b.scalar("multiply", b.scalar("subtract", b.scalar("multiply", given, size), 1), 0.5)


def _axis_taps(b: Build, place: Value, size: int, mode: str, padding: str, corners: bool) -> Taps:
    if mode == "nearest":
        return _taps(b, b.unary("round_nearest_even", place), [0], [], size, padding, corners)
    place = _folded(b, place, size, padding, corners)
    make = linear_taps if mode == "linear" else _cubic_taps
    return make(b, place, size, padding, corners)

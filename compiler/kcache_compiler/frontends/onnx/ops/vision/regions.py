"""RoiAlign and DeformConv: elements between elements, at places that an input says."""

from __future__ import annotations

import math

from kcache_compiler.frontends.onnx.builder import Build, Window
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value
from kcache_compiler.frontends.onnx.ops.vision.sampling import Taps, linear_taps, sampled
from kcache_compiler.frontends.onnx.site import Site, legalizes


@legalizes(RoiAlign=22)
def roi_align(n: Site) -> Value:
    b, x, rois, images = n.b, n[0], n[1], n[2]
    if x.rank != 4 or images.rank != 1 or rois.dims != (*images.dims, 4) or rois.element != x.element:
        n.invalid(f"inputs are {x.type}, {rois.type} and {images.type}")
    if x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, not of floats")
    ratio, mode = n.int("sampling_ratio", 0), n.text("mode", "avg")
    if ratio < 1:
        n.unsupported("sampling_ratio = 0: how many places it reads depends on the regions")
    halves = (
        n.text("coordinate_transformation_mode", "half_pixel") if n.version >= 16 else "output_half_pixel"
    )
    if mode not in ("avg", "max") or halves not in ("half_pixel", "output_half_pixel"):
        n.invalid(f"mode = {mode!r} and coordinate_transformation_mode = {halves!r}")
    sizes = (n.int("output_height", 1), n.int("output_width", 1))
    dims = (rois.dims[0], x.dims[1], *sizes)
    if 0 in dims:
        return b.full(0, x.element, dims)
    if min(dims) < 0 or 0 in x.dims:
        n.invalid(f"regions of {list(sizes)} of an input of shape {list(x.dims)}")
    wide = "f64" if x.element == "f64" else "f32"
    rois = b.scalar("multiply", b.convert(rois, wide), n.float("spatial_scale", 1.0))
    if halves == "half_pixel":
        rois = b.scalar("subtract", rois, 0.5)
    axes = [
        _spread(b, _region_taps(b, rois, 1 - i, size, ratio, x.dims[2 + i], halves != "half_pixel"), i, sizes)
        for i, size in enumerate(sizes)
    ]
    op = "add" if mode == "avg" else "maximum"
    y = sampled(b, b.convert(x, wide), axes, b.convert(images, "i64"), op)
    y = b.scalar("divide", y, ratio * ratio) if mode == "avg" else y
    return b.convert(b.reshape(y, dims), x.element)


def _region_taps(
    b: Build, rois: Value, column: int, size: int, ratio: int, length: int, at_least_one: bool
) -> Taps:
    """Return (region, bin, two for each sample) along one axis of an image."""
    dims = (rois.dims[0], size, ratio)
    start, stop = (b.reshape(b.along(rois, 1, i, i + 1), rois.dims[:1]) for i in (column, column + 2))
    width = b.binary("subtract", stop, start)
    if at_least_one:
        width = b.scalar("maximum", width, 1)
    step = b.broadcast_in_dim(b.scalar("divide", width, size), [0], dims)
    within = b.scalar("add", b.iota(rois.element, dims, 2), 0.5)
    within = b.scalar("divide", b.binary("multiply", within, step), ratio)
    place = b.binary("multiply", b.iota(rois.element, dims, 1), step)
    place = b.binary("add", b.broadcast_in_dim(start, [0], dims), place)
    place = b.binary("add", place, within)
    valid = b.binary("and", b.compare_to("GE", place, -1), b.compare_to("LE", place, length))
    place = b.scalar("minimum", b.scalar("maximum", place, 0), length - 1)
    flat = b.reshape(place, (dims[0], size * ratio))
    taps = linear_taps(b, flat, length, "border", corners=True)
    both = (*dims, 2)
    every = (dims[0], size, 2 * ratio)
    inside = b.reshape(b.broadcast_in_dim(valid, [0, 1, 2], both), every)
    assert taps.weight is not None
    return Taps(b.reshape(taps.at, every), inside, b.reshape(taps.weight, every))


def _spread(b: Build, taps: Taps, axis: int, sizes: tuple[int, int]) -> Taps:
    """Show the bins of an axis as those of both."""

    def wide(value: Value) -> Value:
        rows, _, count = value.dims
        shown = b.broadcast_in_dim(value, [0, 1 + axis, 3], (rows, *sizes, count))
        return b.reshape(shown, (rows, math.prod(sizes), count))

    assert taps.inside is not None
    assert taps.weight is not None
    return Taps(wide(taps.at), wide(taps.inside), wide(taps.weight))


@legalizes(DeformConv=22)
def deform_conv(n: Site) -> Value:
    b, x, w, offset = n.b, n[0], n[1], n[2]
    if x.rank < 3 or w.rank != x.rank or offset.rank != x.rank or x.element not in FLOATS:
        n.invalid(f"input, weight and offset are {x.type}, {w.type} and {offset.type}")
    spatial, kernel, out = x.rank - 2, w.dims[2:], offset.dims[2:]
    count, groups, offsets = math.prod(kernel), n.int("group", 1), n.int("offset_group", 1)
    _check(n, groups, offsets, count)
    places = math.prod(out)
    dims = (x.dims[0], w.dims[0], *out)
    if 0 in dims or 0 in x.dims or not count:
        n.unsupported(f"an input of shape {list(x.dims)} and a weight of shape {list(w.dims)}")
    wide = "f64" if x.element == "f64" else "f32"
    batch, each = x.dims[0] * offsets, x.dims[1] // offsets
    offset = b.reshape(b.convert(offset, wide), (batch, count, spatial, places))
    axes: list[Taps] = []
    for i, size in enumerate(x.dims[2:]):
        moved = b.reshape(b.along(offset, 2, i, i + 1), (batch, count, places))
        moved = b.binary("add", moved, _plain_places(n, i, wide))
        axes.append(linear_taps(b, b.reshape(moved, (batch, count * places)), size, "zeros", corners=True))
    grouped = b.reshape(b.convert(x, wide), (batch, each, *x.dims[2:]))
    values = b.reshape(sampled(b, grouped, axes), (batch, each, count, places))
    mask = n.get(4)
    if mask is not None:
        shown = b.reshape(b.convert(mask, wide), (batch, count, places))
        values = b.binary("multiply", values, b.broadcast_in_dim(shown, [0, 2, 3], values.dims))
    inner = w.dims[1] * count
    values = b.reshape(values, (x.dims[0], groups, inner, places))
    weights = b.reshape(b.convert(w, wide), (groups, w.dims[0] // groups, inner))
    y = b.dot(weights, values, ([0], [1]), ([2], [2]))
    y = b.reshape(b.transpose(y, [2, 0, 1, 3]), dims)
    if n.get(3) is not None:
        y = b.binary("add", y, b.broadcast_in_dim(b.convert(n[3], wide), [1], dims))
    return b.convert(y, x.element)


def _geometry(n: Site) -> tuple[list[int], list[int], list[int]]:
    spatial = n[0].rank - 2
    strides, dilations = n.ints("strides", [1] * spatial), n.ints("dilations", [1] * spatial)
    pads = n.ints("pads", [0] * (2 * spatial))
    if (len(strides), len(dilations), len(pads)) != (spatial, spatial, 2 * spatial):
        n.invalid(f"strides, dilations or pads do not fit {spatial} spatial dims")
    return strides, dilations, pads


def _check(n: Site, groups: int, offsets: int, count: int) -> None:
    x, w, offset, bias, mask = n[0], n[1], n[2], n.get(3), n.get(4)
    spatial = x.rank - 2
    strides, dilations, pads = _geometry(n)
    if min(*strides, *dilations, groups, offsets) < 1:
        n.invalid(f"strides = {strides}, dilations = {dilations}, {groups} and {offsets} groups")
    window = Window(w.dims[2:], strides, dilations, list(zip(pads[:spatial], pads[spatial:], strict=True)))
    if n.has("kernel_shape") and tuple(n.ints("kernel_shape")) != w.dims[2:]:
        n.invalid(f"kernel_shape does not fit a weight of shape {list(w.dims)}")
    if x.dims[1] != w.dims[1] * groups or w.dims[0] % groups or x.dims[1] % offsets:
        n.invalid(f"{groups} and {offsets} groups of shapes {list(x.dims)} and {list(w.dims)}")
    out = (x.dims[0], offsets * count * spatial, *window.results(x.dims[2:]))
    if offset.dims != out:
        n.invalid(f"its offset has shape {list(offset.dims)}, not {list(out)}")
    if mask is not None and mask.dims != (out[0], offsets * count, *out[2:]):
        n.invalid(f"its mask has shape {list(mask.dims)}")
    if bias is not None and bias.dims != w.dims[:1]:
        n.invalid(f"its bias has shape {list(bias.dims)}")


def _plain_places(n: Site, axis: int, element: str) -> Value:
    """Return (kernel element, place) without offsets: where a convolution reads along an axis."""
    b, kernel, out = n.b, n[1].dims[2:], n[2].dims[2:]
    strides, dilations, pads = _geometry(n)
    dims = (*kernel, *out)
    within = b.scalar("multiply", b.iota("i64", dims, axis), dilations[axis])
    place = b.scalar("multiply", b.iota("i64", dims, len(kernel) + axis), strides[axis])
    whole = b.scalar("subtract", b.binary("add", within, place), pads[axis])
    return b.reshape(b.convert(whole, element), (math.prod(kernel), math.prod(out)))

"""RoiAlign and DeformConv: interpolation at positions that an input gives."""

from __future__ import annotations

import math

from kcache_compiler.frontends.onnx.builder import Builder, Window
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.vision.sampling import Taps, interpolate_taps, linear_taps


@legalize(RoiAlign=22)
def roi_align(n: OnnxNode) -> Value:
    """Lower ``RoiAlign``: the average or maximum of bilinear samples in each bin of each region.

    The input has shape (images, channels, height, width), regions (regions, 4); the result has shape
    (regions, channels, ``output_height``, ``output_width``). ``sampling_ratio`` must be positive.
    """
    b, x, rois, images = n.b, n[0], n[1], n[2]
    if x.rank != 4 or images.rank != 1 or rois.dims != (*images.dims, 4) or rois.element != x.element:
        n.invalid(f"inputs are {x.type}, {rois.type} and {images.type}")
    if x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, not of floats")
    samples, mode = n.int("sampling_ratio", 0), n.text("mode", "avg")
    if samples < 1:
        n.unsupported("sampling_ratio = 0: the number of samples depends on the regions")
    coordinate_mode = (
        n.text("coordinate_transformation_mode", "half_pixel") if n.version >= 16 else "output_half_pixel"
    )
    if mode not in ("avg", "max") or coordinate_mode not in ("half_pixel", "output_half_pixel"):
        n.invalid(f"mode = {mode!r} and coordinate_transformation_mode = {coordinate_mode!r}")
    sizes = (n.int("output_height", 1), n.int("output_width", 1))
    dims = (rois.dims[0], x.dims[1], *sizes)
    if 0 in dims:
        return b.full(0, x.element, dims)
    if min(dims) < 0 or 0 in x.dims:
        n.invalid(f"regions of size {list(sizes)} of an input of shape {list(x.dims)}")
    element = "f64" if x.element == "f64" else "f32"
    rois = b.scalar("multiply", b.convert(rois, element), n.float("spatial_scale", 1.0))
    if coordinate_mode == "half_pixel":
        rois = b.scalar("subtract", rois, 0.5)
    axes = [
        _broadcast_bins(
            b,
            _region_taps(b, rois, 1 - i, size, samples, x.dims[2 + i], coordinate_mode != "half_pixel"),
            i,
            sizes,
        )
        for i, size in enumerate(sizes)
    ]
    op = "add" if mode == "avg" else "maximum"
    y = interpolate_taps(b, b.convert(x, element), axes, b.convert(images, "i64"), op)
    y = b.scalar("divide", y, samples * samples) if mode == "avg" else y
    return b.convert(b.reshape(y, dims), x.element)


def _region_taps(
    b: Builder, rois: Value, column: int, size: int, samples: int, length: int, at_least_one: bool
) -> Taps:
    """Return the taps (region, bin, two per sample) along one axis of an image."""
    dims = (rois.dims[0], size, samples)
    start, stop = (b.reshape(b.slice_axis(rois, 1, i, i + 1), rois.dims[:1]) for i in (column, column + 2))
    width = b.binary("subtract", stop, start)
    if at_least_one:
        width = b.scalar("maximum", width, 1)
    step = b.broadcast_in_dim(b.scalar("divide", width, size), [0], dims)
    offset = b.scalar("add", b.iota(rois.element, dims, 2), 0.5)
    offset = b.scalar("divide", b.binary("multiply", offset, step), samples)
    position = b.binary("multiply", b.iota(rois.element, dims, 1), step)
    position = b.binary("add", b.broadcast_in_dim(start, [0], dims), position)
    position = b.binary("add", position, offset)
    valid = b.binary("and", b.compare_to("GE", position, -1), b.compare_to("LE", position, length))
    position = b.scalar("minimum", b.scalar("maximum", position, 0), length - 1)
    flat = b.reshape(position, (dims[0], size * samples))
    taps = linear_taps(b, flat, length, "border", corners=True)
    tap_dims = (*dims, 2)
    flat_dims = (dims[0], size, 2 * samples)
    inside = b.reshape(b.broadcast_in_dim(valid, [0, 1, 2], tap_dims), flat_dims)
    assert taps.weight is not None
    return Taps(b.reshape(taps.indices, flat_dims), inside, b.reshape(taps.weight, flat_dims))


def _broadcast_bins(b: Builder, taps: Taps, axis: int, sizes: tuple[int, int]) -> Taps:
    """Broadcast the bins of one axis to those of both axes."""

    def broadcast(value: Value) -> Value:
        rows, _, count = value.dims
        repeated = b.broadcast_in_dim(value, [0, 1 + axis, 3], (rows, *sizes, count))
        return b.reshape(repeated, (rows, math.prod(sizes), count))

    assert taps.inside is not None
    assert taps.weight is not None
    return Taps(broadcast(taps.indices), broadcast(taps.inside), broadcast(taps.weight))


@legalize(DeformConv=22)
def deform_conv(n: OnnxNode) -> Value:
    """Lower ``DeformConv``: a convolution that reads its input at positions moved by offsets.

    It interpolates linearly at each position, optionally multiplies by a mask, and computes one product per
    group.
    """
    b, x, w, offset = n.b, n[0], n[1], n[2]
    if x.rank < 3 or w.rank != x.rank or offset.rank != x.rank or x.element not in FLOATS:
        n.invalid(f"input, weight and offset are {x.type}, {w.type} and {offset.type}")
    spatial, kernel, output_dims = x.rank - 2, w.dims[2:], offset.dims[2:]
    count, groups, offsets = math.prod(kernel), n.int("group", 1), n.int("offset_group", 1)
    _check_deform_conv(n, groups, offsets, count)
    positions = math.prod(output_dims)
    dims = (x.dims[0], w.dims[0], *output_dims)
    if 0 in dims or 0 in x.dims or not count:
        n.unsupported(f"an input of shape {list(x.dims)} and a weight of shape {list(w.dims)}")
    element = "f64" if x.element == "f64" else "f32"
    batch, group_channels = x.dims[0] * offsets, x.dims[1] // offsets
    offset = b.reshape(b.convert(offset, element), (batch, count, spatial, positions))
    axes: list[Taps] = []
    for i, size in enumerate(x.dims[2:]):
        coordinates = b.reshape(b.slice_axis(offset, 2, i, i + 1), (batch, count, positions))
        coordinates = b.binary("add", coordinates, _regular_positions(n, i, element))
        axes.append(
            linear_taps(b, b.reshape(coordinates, (batch, count * positions)), size, "zeros", corners=True)
        )
    grouped = b.reshape(b.convert(x, element), (batch, group_channels, *x.dims[2:]))
    values = b.reshape(interpolate_taps(b, grouped, axes), (batch, group_channels, count, positions))
    mask = n.get(4)
    if mask is not None:
        weights_mask = b.reshape(b.convert(mask, element), (batch, count, positions))
        values = b.binary("multiply", values, b.broadcast_in_dim(weights_mask, [0, 2, 3], values.dims))
    inner_size = w.dims[1] * count
    values = b.reshape(values, (x.dims[0], groups, inner_size, positions))
    weights = b.reshape(b.convert(w, element), (groups, w.dims[0] // groups, inner_size))
    y = b.dot(weights, values, ([0], [1]), ([2], [2]))
    y = b.reshape(b.transpose(y, [2, 0, 1, 3]), dims)
    if n.get(3) is not None:
        y = b.binary("add", y, b.broadcast_in_dim(b.convert(n[3], element), [1], dims))
    return b.convert(y, x.element)


def _geometry(n: OnnxNode) -> tuple[list[int], list[int], list[int]]:
    spatial = n[0].rank - 2
    strides, dilations = n.ints("strides", [1] * spatial), n.ints("dilations", [1] * spatial)
    pads = n.ints("pads", [0] * (2 * spatial))
    if (len(strides), len(dilations), len(pads)) != (spatial, spatial, 2 * spatial):
        n.invalid(f"strides, dilations or pads do not fit {spatial} spatial dims")
    return strides, dilations, pads


def _check_deform_conv(n: OnnxNode, groups: int, offsets: int, count: int) -> None:
    x, w, offset, bias, mask = n[0], n[1], n[2], n.get(3), n.get(4)
    spatial = x.rank - 2
    strides, dilations, pads = _geometry(n)
    if min(*strides, *dilations, groups, offsets) < 1:
        n.invalid(f"strides = {strides}, dilations = {dilations}, {groups} groups or {offsets} offset groups")
    window = Window(w.dims[2:], strides, dilations, list(zip(pads[:spatial], pads[spatial:], strict=True)))
    if n.has("kernel_shape") and tuple(n.ints("kernel_shape")) != w.dims[2:]:
        n.invalid(f"kernel_shape does not fit a weight of shape {list(w.dims)}")
    if x.dims[1] != w.dims[1] * groups or w.dims[0] % groups or x.dims[1] % offsets:
        n.invalid(
            f"{groups} groups and {offsets} offset groups do not divide the shapes {list(x.dims)} and "
            f"{list(w.dims)}"
        )
    out = (x.dims[0], offsets * count * spatial, *window.output_dims(x.dims[2:]))
    if offset.dims != out:
        n.invalid(f"its offset has shape {list(offset.dims)}, not {list(out)}")
    if mask is not None and mask.dims != (out[0], offsets * count, *out[2:]):
        n.invalid(f"its mask has shape {list(mask.dims)}")
    if bias is not None and bias.dims != w.dims[:1]:
        n.invalid(f"its bias has shape {list(bias.dims)}")


def _regular_positions(n: OnnxNode, axis: int, element: str) -> Value:
    """Return (kernel element, position) without offsets, as a convolution reads along an axis."""
    b, kernel, output_dims = n.b, n[1].dims[2:], n[2].dims[2:]
    strides, dilations, pads = _geometry(n)
    dims = (*kernel, *output_dims)
    kernel_offset = b.scalar("multiply", b.iota("i64", dims, axis), dilations[axis])
    start = b.scalar("multiply", b.iota("i64", dims, len(kernel) + axis), strides[axis])
    position = b.scalar("subtract", b.binary("add", kernel_offset, start), pads[axis])
    return b.reshape(b.convert(position, element), (math.prod(kernel), math.prod(output_dims)))

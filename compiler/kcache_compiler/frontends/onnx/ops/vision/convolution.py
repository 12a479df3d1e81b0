"""Convolutions, transposed convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kcache_compiler.frontends.onnx.builder import Builder, Window, padding
from kcache_compiler.frontends.onnx.emitter import HALF_PRECISION, Dims, Value, i64_array
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.vision.max_pool import max_pool_with_indices

Pads = list[tuple[int, int]]
#: Operators whose ``auto_pad`` formula may be negative, where other runtimes crop, do not pad or fail.
_POOLING = ("MaxPool", "AveragePool", "LpPool")


@legalize(Conv=22)
def conv(n: OnnxNode) -> Value:
    y = convolve(n, n[0], n[1])
    return _with_bias(n, y, n.get(2))


def _with_bias(n: OnnxNode, y: Value, bias: Value | None) -> Value:
    return y if bias is None else n.b.binary("add", y, n.b.broadcast_in_dim(bias, [1], y.dims))


def convolve(n: OnnxNode, x: Value, w: Value) -> Value:
    """Convolve with the attributes of ``Conv``."""
    spatial = _spatial_rank(n, x, w)
    strides, dilations = (
        _spatial_attribute(n, "strides", spatial),
        _spatial_attribute(n, "dilations", spatial),
    )
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(w.dims[2:], dilations, strict=True)]
    pads = _pads(n, x.dims[2:], kernel, strides)
    return _convolve(n.b, x, w, strides, pads, [1] * spatial, dilations, n.int("group", 1))


def _spatial_rank(n: OnnxNode, x: Value, w: Value) -> int:
    if x.rank < 3 or w.rank != x.rank:
        n.invalid(f"input and weight have shapes {list(x.dims)} and {list(w.dims)}")
    if x.element != w.element:
        n.invalid(f"input and weight have types {x.type} and {w.type}")
    return x.rank - 2


def _spatial_attribute(n: OnnxNode, name: str, spatial: int) -> list[int]:
    values = n.ints(name, [1] * spatial)
    if len(values) != spatial or min(values) < 1:
        n.invalid(f"{name} = {values} does not fit {spatial} spatial dims")
    return values


def _pads(n: OnnxNode, dims: Dims, kernel: Sequence[int], strides: Sequence[int]) -> Pads:
    """Return the explicit pads, or those of ``auto_pad`` at these sizes."""
    auto = n.text("auto_pad", "NOTSET")
    spatial = len(dims)
    if auto == "VALID":
        return [(0, 0)] * spatial
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads: Pads = []
        for size, window, stride in zip(dims, kernel, strides, strict=True):
            needed = (-(-size // stride) - 1) * stride + window - size
            if needed < 0 and n.op in _POOLING:
                n.unsupported(
                    f"auto_pad {auto} at size {size} with windows of {window} and stride {stride}: the "
                    f"standard's formula gives the negative pad {needed}; use explicit pads"
                )
            total = max(0, needed)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return pads
    values = n.ints("pads", [0] * (2 * spatial))
    if len(values) != 2 * spatial:
        n.invalid(f"pads = {values} does not fit {spatial} spatial dims")
    return list(zip(values[:spatial], values[spatial:], strict=True))


def _convolve(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    pads: Pads,
    spread: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    spatial = x.rank - 2
    wide = tuple((size - 1) * s + 1 if size else 0 for size, s in zip(x.dims[2:], spread, strict=True))
    dims = Window(w.dims[2:], strides, dilations, pads).output_dims(wide)
    axes = ", ".join(map(str, range(spatial)))
    properties = (
        "batch_group_count = 1 : i64, "
        f"dimension_numbers = #stablehlo.conv<[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]>, "
        f"feature_group_count = {groups} : i64, lhs_dilation = {i64_array(spread)}, "
        f"padding = {padding(pads)}, rhs_dilation = {i64_array(dilations)}, window_strides = "
        f"{i64_array(strides)}"
    )
    shape = (x.dims[0], w.dims[0], *dims)
    total = "f32" if x.element in HALF_PRECISION else x.element  # rounded once
    return b.convert(b.emit("stablehlo.convolution", [x, w], total, shape, properties), x.element)


@legalize(ConvTranspose=22)
def conv_transpose(n: OnnxNode) -> Value:
    x, w = n[0], n[1]
    spatial, groups, b = _spatial_rank(n, x, w), n.int("group", 1), n.b
    strides, dilations = (
        _spatial_attribute(n, "strides", spatial),
        _spatial_attribute(n, "dilations", spatial),
    )
    extra_pads = n.ints("output_padding", [0] * spatial)
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(w.dims[2:], dilations, strict=True)]
    full_dims = [
        stride * (size - 1) + extra + window
        for size, stride, extra, window in zip(x.dims[2:], strides, extra_pads, kernel, strict=True)
    ]
    crop = _transposed_crop(n, x.dims[2:], strides, full_dims)
    pads = [
        (window - 1 - low, window - 1 - high + extra)
        for window, (low, high), extra in zip(kernel, crop, extra_pads, strict=True)
    ]
    # The weight is (in, out / groups, ...): flip it, and exchange in and out within each group.
    w = b.reverse(w, range(2, w.rank))
    group_inputs, group_outputs = w.dims[0] // groups, w.dims[1]
    if group_inputs * groups != w.dims[0]:
        n.invalid(f"{groups} groups do not divide a weight of shape {list(w.dims)}")
    w = b.reshape(w, (groups, group_inputs, group_outputs, *w.dims[2:]))
    w = b.transpose(w, [0, 2, 1, *range(3, w.rank)])
    w = b.reshape(w, (groups * group_outputs, group_inputs, *w.dims[3:]))
    y = _convolve(b, x, w, [1] * spatial, pads, strides, dilations, groups)
    return _with_bias(n, y, n.get(2))


def _transposed_crop(n: OnnxNode, dims: Dims, strides: Sequence[int], full_dims: Sequence[int]) -> Pads:
    """Return the (low, high) elements to crop from the full result."""
    auto = n.text("auto_pad", "NOTSET")
    if n.has("output_shape"):
        target = n.ints("output_shape")[-len(dims) :]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        target = [size * stride for size, stride in zip(dims, strides, strict=True)]
    else:
        return _pads(n, dims, [1] * len(dims), strides)
    crop: Pads = []
    for full, size in zip(full_dims, target, strict=True):
        total = full - size
        small, large = total // 2, total - total // 2
        crop.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return crop


@legalize(MaxPool=22, AveragePool=22, LpPool=22)
def pool(n: OnnxNode) -> LegalizationResult:
    x, b = n[0], n.b
    window, counted_pads = _pool_window(n, x)
    if n.op == "MaxPool":
        if n.has_output(1):
            return max_pool_with_indices(n, x, window)
        return b.window("maximum", x, window)
    if n.op == "LpPool":
        p = n.int("p", 2)
        total = b.window("add", b.scalar("power", b.unary("abs", x), p), window)
        return b.scalar("power", total, 1 / p)
    total = b.window("add", x, window)
    if not any(map(sum, window.pads)):
        return b.scalar("divide", total, math.prod(window.sizes))
    # The count differs at the edges: sum ones over the elements that count.
    ones = b.full(1, x.element, x.dims[2:])
    low, high = zip(*counted_pads, strict=True)
    ones = b.pad(ones, b.full(1, x.element), low, high)
    other_pads = [(p - c, q - d) for (p, q), (c, d) in zip(window.pads[2:], counted_pads, strict=True)]
    count_window = Window(window.sizes[2:], window.strides[2:], window.dilations[2:], other_pads)
    return b.binary("divide", total, b.window("add", ones, count_window))


def _pool_window(n: OnnxNode, x: Value) -> tuple[Window, Pads]:
    """Return the windows, and the pads that an average counts."""
    spatial = x.rank - 2
    sizes = n.ints("kernel_shape")
    if spatial < 1 or len(sizes) != spatial:
        n.invalid(f"kernel_shape = {sizes} does not fit an input of shape {list(x.dims)}")
    strides, dilations = (
        _spatial_attribute(n, "strides", spatial),
        _spatial_attribute(n, "dilations", spatial),
    )
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    pads = _pads(n, x.dims[2:], kernel, strides)
    counted_pads = list(pads) if n.int("count_include_pad", 0) else [(0, 0)] * spatial
    if n.int("ceil_mode", 0):
        pads = [_ceil_pads(*geometry) for geometry in zip(x.dims[2:], kernel, strides, pads, strict=True)]
    leading_ones = [1, 1]
    return Window(
        leading_ones + sizes, leading_ones + strides, leading_ones + dilations, [(0, 0), (0, 0), *pads]
    ), counted_pads


def _ceil_pads(size: int, window: int, stride: int, pad: tuple[int, int]) -> tuple[int, int]:
    """Extend the high pad so that a last window that starts inside the input fits."""
    low, high = pad
    count = -(-(size + low + high - window) // stride) + 1
    if (count - 1) * stride >= size + low:
        count -= 1
    return low, max(high, (count - 1) * stride + window - size - low)


@legalize(GlobalAveragePool=22, GlobalMaxPool=22, GlobalLpPool=22)
def global_pool(n: OnnxNode) -> Value:
    x, b = n[0], n.b
    axes = list(range(2, x.rank))
    if n.op == "GlobalAveragePool":
        return b.mean(x, axes, keep=True)
    if n.op == "GlobalMaxPool":
        return b.reduce("maximum", x, axes, keep=True)
    p = n.int("p", 2)
    total = b.reduce("add", b.scalar("power", b.unary("abs", x), p), axes, keep=True)
    return b.scalar("power", total, 1 / p)

"""Convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kcache_compiler.frontends.onnx.builder import Build, Window, padding
from kcache_compiler.frontends.onnx.emitter import HALVES, Dims, Value, i64s
from kcache_compiler.frontends.onnx.ops.vision.max_pool import pooled_with_places
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes

Pads = list[tuple[int, int]]
#: Their formula for ``auto_pad`` may give less than 0, where other runtimes cut, pad by nothing or fail.
_POOLS = ("MaxPool", "AveragePool", "LpPool")


@legalizes(Conv=22)
def conv(n: Site) -> Value:
    y = convolved(n, n[0], n[1])
    return _with_bias(n, y, n.get(2))


def _with_bias(n: Site, y: Value, bias: Value | None) -> Value:
    return y if bias is None else n.b.binary("add", y, n.b.broadcast_in_dim(bias, [1], y.dims))


def convolved(n: Site, x: Value, w: Value) -> Value:
    """Convolve as the attributes of ``Conv`` say."""
    spatial = _spatial(n, x, w)
    strides, dilations = _each(n, "strides", spatial), _each(n, "dilations", spatial)
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(w.dims[2:], dilations, strict=True)]
    pads = _pads(n, x.dims[2:], kernel, strides)
    return _convolve(n.b, x, w, strides, pads, [1] * spatial, dilations, n.int("group", 1))


def _spatial(n: Site, x: Value, w: Value) -> int:
    if x.rank < 3 or w.rank != x.rank:
        n.invalid(f"input and weight have shapes {list(x.dims)} and {list(w.dims)}")
    if x.element != w.element:
        n.invalid(f"input and weight have types {x.type} and {w.type}")
    return x.rank - 2


def _each(n: Site, name: str, spatial: int) -> list[int]:
    given = n.ints(name, [1] * spatial)
    if len(given) != spatial or min(given) < 1:
        n.invalid(f"{name} = {given} does not fit {spatial} spatial dims")
    return given


def _pads(n: Site, dims: Dims, kernel: Sequence[int], strides: Sequence[int]) -> Pads:
    """Return explicit pads, or those that ``auto_pad`` means at these sizes."""
    auto = n.text("auto_pad", "NOTSET")
    spatial = len(dims)
    if auto == "VALID":
        return [(0, 0)] * spatial
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads: Pads = []
        for size, window, stride in zip(dims, kernel, strides, strict=True):
            needed = (-(-size // stride) - 1) * stride + window - size
            if needed < 0 and n.op in _POOLS:
                n.unsupported(
                    f"auto_pad {auto} at size {size} with windows of {window} that are {stride} apart: the "
                    f"standard's formula pads by {needed}, which pads may not be; give pads instead"
                )
            total = max(0, needed)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return pads
    given = n.ints("pads", [0] * (2 * spatial))
    if len(given) != 2 * spatial:
        n.invalid(f"pads = {given} does not fit {spatial} spatial dims")
    return list(zip(given[:spatial], given[spatial:], strict=True))


def _convolve(
    b: Build,
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
    dims = Window(w.dims[2:], strides, dilations, pads).results(wide)
    axes = ", ".join(map(str, range(spatial)))
    properties = (
        "batch_group_count = 1 : i64, "
        f"dimension_numbers = #stablehlo.conv<[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]>, "
        f"feature_group_count = {groups} : i64, lhs_dilation = {i64s(spread)}, "
        f"padding = {padding(pads)}, rhs_dilation = {i64s(dilations)}, window_strides = {i64s(strides)}"
    )
    shape = (x.dims[0], w.dims[0], *dims)
    total = "f32" if x.element in HALVES else x.element  # rounded once
    return b.convert(b.emit("stablehlo.convolution", [x, w], total, shape, properties), x.element)


@legalizes(ConvTranspose=22)
def conv_transpose(n: Site) -> Value:
    x, w = n[0], n[1]
    spatial, groups, b = _spatial(n, x, w), n.int("group", 1), n.b
    strides, dilations = _each(n, "strides", spatial), _each(n, "dilations", spatial)
    more = n.ints("output_padding", [0] * spatial)
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(w.dims[2:], dilations, strict=True)]
    whole = [
        stride * (size - 1) + extra + window
        for size, stride, extra, window in zip(x.dims[2:], strides, more, kernel, strict=True)
    ]
    cut = _transposed_pads(n, x.dims[2:], strides, whole)
    pads = [
        (window - 1 - low, window - 1 - high + extra)
        for window, (low, high), extra in zip(kernel, cut, more, strict=True)
    ]
    # The weight is (in, out / groups, ...): turned around, and in and out exchanged within each group.
    w = b.reverse(w, range(2, w.rank))
    inner, outer = w.dims[0] // groups, w.dims[1]
    if inner * groups != w.dims[0]:
        n.invalid(f"{groups} groups do not divide a weight of shape {list(w.dims)}")
    w = b.reshape(w, (groups, inner, outer, *w.dims[2:]))
    w = b.transpose(w, [0, 2, 1, *range(3, w.rank)])
    w = b.reshape(w, (groups * outer, inner, *w.dims[3:]))
    y = _convolve(b, x, w, [1] * spatial, pads, strides, dilations, groups)
    return _with_bias(n, y, n.get(2))


def _transposed_pads(n: Site, dims: Dims, strides: Sequence[int], whole: Sequence[int]) -> Pads:
    """Return what is cut from the whole result."""
    auto = n.text("auto_pad", "NOTSET")
    if n.has("output_shape"):
        wanted = n.ints("output_shape")[-len(dims) :]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(dims, strides, strict=True)]
    else:
        return _pads(n, dims, [1] * len(dims), strides)
    cut: Pads = []
    for have, want in zip(whole, wanted, strict=True):
        total = have - want
        small, large = total // 2, total - total // 2
        cut.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return cut


@legalizes(MaxPool=22, AveragePool=22, LpPool=22)
def pool(n: Site) -> Results:
    x, b = n[0], n.b
    window, counted = _pool_window(n, x)
    if n.op == "MaxPool":
        if n.wants(1):
            return pooled_with_places(n, x, window)
        return b.window("maximum", x, window)
    if n.op == "LpPool":
        p = n.int("p", 2)
        total = b.window("add", b.scalar("power", b.unary("abs", x), p), window)
        return b.scalar("power", total, 1 / p)
    total = b.window("add", x, window)
    if not any(map(sum, window.pads)):
        return b.scalar("divide", total, math.prod(window.sizes))
    # The count differs at the edges: a sum of ones over what counts.
    ones = b.full(1, x.element, x.dims[2:])
    low, high = zip(*counted, strict=True)
    ones = b.pad(ones, b.full(1, x.element), low, high)
    rest = [(p - c, q - d) for (p, q), (c, d) in zip(window.pads[2:], counted, strict=True)]
    inner = Window(window.sizes[2:], window.strides[2:], window.dilations[2:], rest)
    return b.binary("divide", total, b.window("add", ones, inner))


def _pool_window(n: Site, x: Value) -> tuple[Window, Pads]:
    """Return the windows, and the pads that an average counts."""
    spatial = x.rank - 2
    sizes = n.ints("kernel_shape")
    if spatial < 1 or len(sizes) != spatial:
        n.invalid(f"kernel_shape = {sizes} does not fit an input of shape {list(x.dims)}")
    strides, dilations = _each(n, "strides", spatial), _each(n, "dilations", spatial)
    kernel = [dilation * (size - 1) + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    pads = _pads(n, x.dims[2:], kernel, strides)
    counted = list(pads) if n.int("count_include_pad", 0) else [(0, 0)] * spatial
    if n.int("ceil_mode", 0):
        pads = [_rounded_up(*each) for each in zip(x.dims[2:], kernel, strides, pads, strict=True)]
    one = [1, 1]
    return Window(one + sizes, one + strides, one + dilations, [(0, 0), (0, 0), *pads]), counted


def _rounded_up(size: int, window: int, stride: int, pad: tuple[int, int]) -> tuple[int, int]:
    """Pad the end so that a last window that starts inside fits."""
    low, high = pad
    count = -(-(size + low + high - window) // stride) + 1
    if (count - 1) * stride >= size + low:
        count -= 1
    return low, max(high, (count - 1) * stride + window - size - low)


@legalizes(GlobalAveragePool=22, GlobalMaxPool=22, GlobalLpPool=22)
def global_pool(n: Site) -> Value:
    x, b = n[0], n.b
    axes = list(range(2, x.rank))
    if n.op == "GlobalAveragePool":
        return b.mean(x, axes, keep=True)
    if n.op == "GlobalMaxPool":
        return b.reduce("maximum", x, axes, keep=True)
    p = n.int("p", 2)
    total = b.reduce("add", b.scalar("power", b.unary("abs", x), p), axes, keep=True)
    return b.scalar("power", total, 1 / p)

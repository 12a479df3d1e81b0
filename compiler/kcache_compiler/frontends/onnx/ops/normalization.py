"""Normalizations. Means and variances are computed in the float type that ONNX specifies."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.onnx.builder import Builder, Window
from kcache_compiler.frontends.onnx.emitter import Value
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.elementwise import element_of


def _centered(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """Return ``x`` minus its mean, the mean, and the inverse of the standard deviation."""
    mean = b.mean(x, axes, keep=True)
    centered = b.binary("subtract", x, mean)
    variance = b.mean(b.binary("multiply", centered, centered), axes, keep=True)
    return centered, mean, b.unary("rsqrt", b.scalar("add", variance, epsilon))


@legalize(LayerNormalization=17)
def layer_normalization(n: OnnxNode) -> LegalizationResult:
    b, x, element = n.b, n[0], n[0].element
    axes = range(n.axis(n.int("axis", -1), x.rank), x.rank)
    wide = b.convert(x, element_of(n, n.int("stash_type", 1)))
    centered, mean, inverse = _centered(b, wide, axes, n.float("epsilon", 1e-5))
    y = b.binary("multiply", b.convert(b.binary("multiply", centered, inverse), element), n[1])
    bias = n.get(2)
    return [y if bias is None else b.binary("add", y, bias), mean, inverse]


@legalize(RMSNormalization=23)
def rms_normalization(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    axes = range(n.axis(n.int("axis", -1), x.rank), x.rank)
    wide = b.convert(x, element_of(n, n.int("stash_type", 1)))
    square = b.mean(b.binary("multiply", wide, wide), axes, keep=True)
    inverse = b.unary("rsqrt", b.scalar("add", square, n.float("epsilon", 1e-5)))
    normalized = b.convert(b.binary("multiply", wide, inverse), x.element)
    return b.binary(
        "multiply", b.convert(normalized, n[1].element), n[1]
    )  # the result has the type of the scale


@legalize(BatchNormalization=15)
def batch_normalization(n: OnnxNode) -> LegalizationResult:
    """Lower ``BatchNormalization`` of (batch, channels, ...) by the given mean and variance of each channel.

    In training mode it uses those of the batch, which it computes in f32 for elements of 16 bits, and also
    returns the updated running mean and variance.
    """
    b, x = n.b, n[0]
    element = x.element
    epsilon, momentum = n.float("epsilon", 1e-5), n.float("momentum", 0.9)
    mean, variance = n[3], n[4]
    running: list[Value] = []
    if n.int("training_mode", 0):
        x = b.convert(x, "f32") if element in ("f16", "bf16") else x  # sums exceed the range of f16
        axes = [axis for axis in range(x.rank) if axis != 1]
        old_statistics = mean, variance  # may have another element type
        mean = b.mean(x, axes)
        centered = b.binary("subtract", x, b.broadcast_in_dim(mean, [1], x.dims))
        variance = b.mean(b.binary("multiply", centered, centered), axes)
        new_weight = 1 - momentum
        running = [
            b.binary(
                "add",
                b.scalar("multiply", old_value, momentum),
                _scaled_update(b, new_value, new_weight, old_value.element),
            )
            for old_value, new_value in zip(old_statistics, (mean, variance), strict=True)
        ]
    elif any(map(n.has_output, range(1, 5))) and n.version < 14:
        n.unsupported("its outputs beyond the first, those of training, are not supported in this opset")
    inverse = b.unary("rsqrt", b.scalar("add", variance, epsilon))

    def channel(value: Value) -> Value:
        if x.rank < 2 or value.dims != (x.dims[1],):
            n.invalid(f"the shape {list(value.dims)} does not match the channels of {list(x.dims)}")
        return b.broadcast_in_dim(b.convert(value, x.element), [1], x.dims)

    y = b.binary("multiply", b.binary("subtract", x, channel(mean)), channel(inverse))
    y = b.binary("add", b.binary("multiply", y, channel(n[1])), channel(n[2]))
    return [b.convert(y, element), *running]


def _scaled_update(b: Builder, x: Value, factor: float, element: str) -> Value:
    return b.scalar("multiply", b.convert(x, element), factor)


@legalize(InstanceNormalization=22)
def instance_normalization(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    centered, _, inverse = _centered(b, x, range(2, x.rank), n.float("epsilon", 1e-5))
    y = b.binary("multiply", centered, inverse)
    scale, bias = (b.broadcast_in_dim(n[i], [1], x.dims) for i in (1, 2))
    return b.binary("add", b.binary("multiply", y, scale), bias)


@legalize(GroupNormalization=21)
def group_normalization(n: OnnxNode) -> Value:
    """Lower ``GroupNormalization`` of (batch, channels, ...): mean 0 and variance 1 in each group.

    Scale and bias have one element per group before opset 21, and one per channel since.
    """
    b, x, groups = n.b, n[0], n.int("num_groups")
    if x.rank < 2 or groups < 1 or x.dims[1] % groups:
        n.invalid(f"{groups} groups do not divide shape {list(x.dims)}")
    split = (x.dims[0], groups, x.dims[1] // groups, *x.dims[2:])
    wide = x if n.version < 21 else b.convert(x, element_of(n, n.int("stash_type", 1)))
    grouped = b.reshape(wide, split)
    centered, _, inverse = _centered(b, grouped, range(2, grouped.rank), n.float("epsilon", 1e-5))
    y = b.convert(b.binary("multiply", centered, inverse), x.element)
    if n.version < 21:
        # One scale per group; since opset 21 one per channel.
        scale, bias = (b.broadcast_in_dim(n[i], [1], split) for i in (1, 2))
        return b.reshape(b.binary("add", b.binary("multiply", y, scale), bias), x.dims)
    y = b.reshape(y, x.dims)
    scale, bias = (b.broadcast_in_dim(n[i], [1], x.dims) for i in (1, 2))
    return b.binary("add", b.binary("multiply", y, scale), bias)


@legalize(LRN=13)
def local_response_normalization(n: OnnxNode) -> Value:
    b, x, size = n.b, n[0], n.int("size")
    ones, sizes, pads = [1] * x.rank, [1] * x.rank, [(0, 0)] * x.rank
    sizes[1], pads[1] = size, ((size - 1) // 2, size // 2)
    total = b.window("add", b.binary("multiply", x, x), Window(sizes, ones, ones, pads))
    scaled = b.scalar("multiply", total, n.float("alpha", 1e-4) / size)
    base = b.scalar("add", scaled, n.float("bias", 1.0))
    return b.binary("divide", x, b.scalar("power", base, n.float("beta", 0.75)))


@legalize(LpNormalization=22)
def lp_normalization(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    axis = n.axis(n.int("axis", -1), x.rank)
    if n.int("p", 2) == 1:
        norm = b.reduce("add", b.unary("abs", x), [axis], keep=True)
    else:
        norm = b.unary("sqrt", b.reduce("add", b.binary("multiply", x, x), [axis], keep=True))
    zero = b.full(0, x.element, x.dims)
    wide = b.broadcast(norm, x.dims)
    return b.select(b.compare_to("EQ", wide, 0), zero, b.binary("divide", x, wide))


@legalize(MeanVarianceNormalization=13)
def mean_variance_normalization(n: OnnxNode) -> Value:
    b, x = n.b, n[0]
    axes = n.axes(x.rank) or [0, 2, 3]
    mean = b.mean(x, axes, keep=True)
    centered = b.binary("subtract", x, mean)
    deviation = b.unary("sqrt", b.mean(b.binary("multiply", centered, centered), axes, keep=True))
    return b.binary("divide", centered, b.scalar("add", deviation, 1e-9))

"""Convolutions and pooling. JAX's graphs have channels last."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as f


def first(x: Tensor) -> Tensor:
    """Channels first."""
    return x.permute(0, 3, 1, 2)


def last(x: Tensor) -> Tensor:
    """Channels last."""
    return x.permute(0, 2, 3, 1)


def filters(w: Tensor) -> Tensor:
    """Filters with output features first, from output features last."""
    return w.permute(3, 2, 0, 1)


def conv2d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, groups: int = 1
) -> Tensor:
    """PyTorch's, and what it rejects: sums over no channels, and results without elements."""
    if x.shape[1] and w.shape[0] and x.shape[2] and x.shape[3]:
        return f.conv2d(x, w, bias, stride, padding, groups=groups)
    rows, columns = (
        max(0, (size + 2 * padding - window) // stride + 1) if size else 0
        for size, window in zip(x.shape[2:], w.shape[2:], strict=True)
    )
    nothing = torch.zeros(x.shape[0], w.shape[0], rows, columns, dtype=x.dtype)
    return nothing if bias is None else nothing + bias[:, None, None]


def conv_block(x: Tensor, w: Tensor, gain: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    y = f.relu(last(conv2d(first(x), filters(w), padding=1)) * gain + bias)
    pairs = y.reshape(y.shape[0], y.shape[1] // 2, 2, y.shape[2] // 2, 2, y.shape[3])
    pooled = pairs.amax((2, 4))
    return pooled, pooled.mean((1, 2))


def depthwise_conv(x: Tensor, w: Tensor, p: Tensor, bias: Tensor) -> Tensor:
    """JAX's "SAME" with stride 2 over an even size is one row of zeros at the end."""
    y = conv2d(f.pad(first(x), (0, 1, 0, 1)), filters(w), stride=2, groups=x.shape[3])
    return f.relu6(last(conv2d(y, filters(p))) + bias)


@cache
def _filters(width: int) -> tuple[Tensor, Tensor]:
    """The weights that the exporter drew."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        spatial, pointwise = (torch.nn.Conv2d(width, width, 3, bias=False).weight.detach() for _ in "12")
    return spatial, pointwise


def resnet_block(x: Tensor) -> Tensor:
    """Its norms have statistics of 0 and 1, and neither gain nor bias."""
    w1, w2 = (w.to(x.dtype) for w in _filters(x.shape[1]))
    norm = (1 + 1e-5) ** -0.5
    return f.relu(x + norm * conv2d(f.relu(norm * conv2d(x, w1, padding=1)), w2, padding=1))


def onnx_convolutions(
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    w3: Tensor,
    b3: Tensor,
) -> Tensor:
    y = conv2d(x, w1, b1, stride=2, padding=1)
    y = f.relu(f.batch_norm(y, mean, variance, scale, bias))
    y = f.hardswish(f.conv2d(y, w2, padding=1, groups=6))
    return f.max_pool2d(y, 2).mean((2, 3)) @ w3.T + b3


def global_average_pool(x: Tensor, w: Tensor) -> Tensor:
    return x.mean((2, 3)) @ w


GRAPHS = {
    "conv_block": conv_block,
    "depthwise_conv": lambda *a: (depthwise_conv(*a),),
    "resnet_block": lambda x: (resnet_block(x),),
    "onnx_convolutions": lambda *a: (onnx_convolutions(*a),),
    "global_average_pool": lambda *a: (global_average_pool(*a),),
}

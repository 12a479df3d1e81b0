"""Normalizations and moments."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as f

Axes = int | tuple[int, ...]


def moments(x: Tensor, axes: Axes) -> tuple[Tensor, Tensor]:
    """Mean and variance, axes kept."""
    mean = x.mean(axes, keepdim=True)
    return mean, ((x - mean) ** 2).mean(axes, keepdim=True)


def standardized(x: Tensor, axes: Axes, epsilon: float = 1e-5) -> Tensor:
    mean, variance = moments(x, axes)
    return (x - mean) / (variance + epsilon).sqrt()


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return standardized(x, -1) * gain + bias


def rms_norm(x: Tensor, gain: Tensor, epsilon: float = 1e-6) -> Tensor:
    return x / ((x * x).mean(-1, keepdim=True) + epsilon).sqrt() * gain


def layer_norm_gradient(x: Tensor, gain: Tensor, bias: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
    arguments = [argument.clone().requires_grad_() for argument in (x, gain, bias)]
    value = layer_norm(*arguments)
    return value, *torch.autograd.grad(value, arguments, cotangent)


def batch_norm_training(
    x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> tuple[Tensor, ...]:
    now, spread = moments(x, (0, 1, 2))
    y = standardized(x, (0, 1, 2)) * gain + bias
    return y, 0.9 * mean + 0.1 * now.reshape(-1), 0.9 * variance + 0.1 * spread.reshape(-1)


def batch_norm_inference(x: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    mean, variance, gain, bias = (vector[:, None, None] for vector in (mean, variance, gain, bias))
    return f.relu((x - mean) / (variance + 1e-5).sqrt() * gain + bias)


def mean_variance(x: Tensor) -> tuple[Tensor, ...]:
    mean, variance = moments(x, (0, 1))
    squares = ((x - x.mean(-1, keepdim=True)) ** 2).sum(-1)
    return mean.reshape(-1), variance.reshape(-1), (squares / (x.shape[-1] - 1)).sqrt()


def onnx_normalizations(
    x: Tensor, i: Tensor, j: Tensor, g: Tensor, b: Tensor, s: Tensor, t: Tensor
) -> tuple[Tensor, ...]:
    mean, variance = moments(x, -1)
    instances = standardized(i, -1) * s[:, None] + t[:, None]
    grouped = standardized(i.reshape(i.shape[0], 2, 3, i.shape[2]), (2, 3)).reshape(i.shape)
    squares = f.pad(j * j, (0, 0, 0, 0, 1, 1))
    around = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    return (
        layer_norm(x, g, b),
        mean,
        1 / (variance + 1e-5).sqrt(),
        rms_norm(x, g, 1e-5),
        instances,
        grouped * s[:, None] + t[:, None],
        x / (x * x).sum(1, keepdim=True).sqrt(),
        j / (1 + 1e-4 / 3 * around) ** 0.75,
    )


GRAPHS = {
    "rms_norm_graph": lambda *a: (rms_norm(*a),),
    "layer_norm": lambda *a: (layer_norm(*a),),
    "layer_norm_gradient": layer_norm_gradient,
    "batch_norm_training": batch_norm_training,
    "batch_norm_inference": lambda *a: (batch_norm_inference(*a),),
    "mean_variance": mean_variance,
    "onnx_normalizations": onnx_normalizations,
}

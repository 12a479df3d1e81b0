"""The functions in PyTorch: its own where it has one, through torch.export and torch-mlir, to StableHLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as f
from torch_mlir import fx

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]

X, ROW, SCALAR = (6, 10), (10,), ()
HEADS, IMAGE, CHANNEL = (2, 3, 6, 8), (2, 5, 6, 8), (5,)


def rms_norm(x, g):
    return x * torch.rsqrt(torch.mean(x * x, -1, keepdim=True) + 1e-5) * g


def rms_norm_square(x, g):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * g


def adam_single_tensor(p, g, m, v, t):
    """``torch.optim.adam._single_tensor_adam``, of a step that is a tensor."""
    m = torch.lerp(m, g, 1 - 0.9)
    v = v * 0.999 + (1 - 0.999) * g * g
    size = 1e-3 / (1 - 0.9**t)
    denominator = v.sqrt() / (1 - 0.999**t).sqrt() + 1e-8
    return p - size * (m / denominator), m, v


def adam_written_out(p, g, m, v, t):
    m = 0.9 * m + (1 - 0.9) * g
    v = 0.999 * v + (1 - 0.999) * g**2
    return p - 1e-3 * (m / (1 - 0.9**t)) / (torch.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def adam_captured(p, g, m, v, t):
    """The same with ``capturable=True``: the step is part of the denominator."""
    m = m.lerp(g, 1 - 0.9)
    v = v.mul(0.999).addcmul(g, g, value=1 - 0.999)
    negative = (1e-3 / (1 - 0.9**t)).neg()
    denominator = (v.sqrt() / ((1 - 0.999**t).sqrt() * negative)).add(1e-8 / negative)
    return p.addcdiv(m, denominator), m, v


CASES: dict[str, Case] = {
    "bias_relu": (lambda x, b: f.relu(x + b), (X, ROW)),
    "matmul_bias_relu": (lambda x, w, b: f.relu(x @ w + b), (X, (10, 14), (14,))),
    "matmul_bias_relu.addmm": (lambda x, w, b: f.relu(torch.addmm(b, x, w)), (X, (10, 14), (14,))),
    "softmax": (lambda x: f.softmax(x, -1), (X,)),
    "sigmoid_gate": (lambda x, g: x * torch.sigmoid(g), (X, X)),
    "silu": (f.silu, (X,)),
    "residual_add": (lambda x, y: x + f.relu(y), (X, X)),
    "attention_scores": (lambda q, k: f.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1), (HEADS, HEADS)),
    "mean_squared_error": (f.mse_loss, (X, X)),
    "rms_norm": (rms_norm, (X, ROW)),
    "rms_norm.square": (rms_norm_square, (X, ROW)),
    "rms_norm.own": (lambda x, g: f.rms_norm(x, (10,), g, 1e-5), (X, ROW)),
    "gelu_tanh": (lambda x: f.gelu(x, approximate="tanh"), (X,)),
    "gelu_erf": (f.gelu, (X,)),
    "layer_norm": (lambda x, g, b: f.layer_norm(x, (10,), g, b), (X, ROW, ROW)),
    "standardize": (lambda x: f.layer_norm(x, (10,)), (X,)),
    "variance": (lambda x: torch.var(x, -1, correction=0), (X,)),
    "variance_unbiased": (lambda x: torch.var(x, -1), (X,)),
    "batch_norm": (
        lambda x, g, b, m, v: f.batch_norm(x, m, v, g, b, False),
        (IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL),
    ),
    "log_softmax": (lambda x: f.log_softmax(x, -1), (X,)),
    "cross_entropy": (f.cross_entropy, (X, X)),
    "cross_entropy_labels": (f.cross_entropy, (X, (-6,))),
    "adam": (adam_single_tensor, (X, X, X, X, SCALAR)),
    "adam.captured": (adam_captured, (X, X, X, X, SCALAR)),
    "adam.written": (adam_written_out, (X, X, X, X, SCALAR)),
}


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: torch.Tensor) -> Any:
        return self.function(*arguments)


def text_of(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> str:
    """A negative size stands for labels."""
    arguments = [
        torch.randint(0, 10, (-shape[0],)) if shape and shape[0] < 0 else torch.rand(shape)
        for shape in shapes
    ]
    return str(
        fx.export_and_import(Function(function), *arguments, output_type="stablehlo", func_name="main")
    )


def texts() -> dict[str, str]:
    return {name: text_of(function, shapes) for name, (function, shapes) in CASES.items()}

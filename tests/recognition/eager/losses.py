"""Losses, optimizers and small functions."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as f

from tests.recognition.eager.step import value_and_gradients


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    return value_and_gradients(lambda logits: f.cross_entropy(logits, labels), logits)


def mse_gradient(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return value_and_gradients(lambda w: f.mse_loss(x @ w, y), w)


def cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    return x @ y.T / (x.norm(dim=-1)[:, None] * y.norm(dim=-1)).clamp_min(1e-8)


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    t = step.to(p.dtype) + 1
    return p - 1e-3 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8), m, v, step + 1


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    p = p * (1 - 1e-3 * 0.01)
    m = m.lerp(g, 0.1)
    v = v * 0.999 + g * g * 0.001
    return p - 0.02 * m / ((v / 0.003).sqrt() + 1e-8), m, v


def sgd_momentum(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + (g + 0.01 * p)
    return p - 0.1 * m, m


GRAPHS = {
    "cross_entropy": cross_entropy,
    "mse_gradient": mse_gradient,
    "mse_loss": lambda x, y: (f.mse_loss(x, y),),
    "huber": lambda x, y: (f.huber_loss(x, y),),
    "softmax": lambda x: (f.softmax(x, -1),),
    "log_softmax": lambda x: (f.log_softmax(x, 1),),
    "cosine_similarity": lambda x, y: (cosine_similarity(x, y),),
    "adam": adam,
    "adamw": adamw,
    "sgd_momentum": sgd_momentum,
}

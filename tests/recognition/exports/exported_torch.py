"""The corpus's PyTorch graphs, as functions of their sizes: torch.export, torch-mlir, StableHLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as f
from torch_mlir import fx

Sizes = dict[str, int]


class Function(torch.nn.Module):
    """A function of tensors, for ``torch.export``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: torch.Tensor) -> Any:
        return self.function(*arguments)


def text_of(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> str:
    module = function if isinstance(function, torch.nn.Module) else Function(function)
    arguments = [torch.rand(shape) for shape in shapes]
    # Without a table: torch's own decompositions compute variances in f64 and merge batch dims in matmuls.
    imported = fx.export_and_import(
        module.eval(), *arguments, output_type="stablehlo", func_name="main", decomposition_table={}
    )
    return imported.operation.get_asm(large_elements_limit=None)


def multi_head_attention(s: Sizes) -> str:
    b, t, c, heads = s["batch"], s["time"], s["width"], 2

    def graph(q, k, v, wq, wk, wv, wo):
        def split(x, w):
            return (x @ w).view(x.shape[0], -1, heads, c // heads).transpose(1, 2)

        scores = split(q, wq) @ split(k, wk).transpose(-1, -2) / (c // heads) ** 0.5
        mixed = torch.softmax(scores, -1) @ split(v, wv)
        return mixed.transpose(1, 2).reshape(b, -1, c) @ wo

    return text_of(graph, [(b, t, c), (b, s["keys"], c), (b, s["keys"], c)] + [(c, c)] * 4)


def layer_norm(s: Sizes) -> str:
    c = s["width"]
    return text_of(lambda x, g, b: f.layer_norm(x, (c,), g, b), [(s["batch"], s["time"], c), (c,), (c,)])


def batch_norm_inference(s: Sizes) -> str:
    c = s["width"]
    return text_of(
        lambda x, g, b, m, v: f.relu(f.batch_norm(x, m, v, g, b)),
        [(s["batch"], c, s["height"], s["breadth"]), (c,), (c,), (c,), (c,)],
    )


def resnet_block(s: Sizes) -> str:
    """With its weights and running statistics as constants, as ``torch.export`` freezes a module."""
    c = s["width"]

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(c, c, 3, padding=1, bias=False)
            self.norm1 = torch.nn.BatchNorm2d(c)
            self.conv2 = torch.nn.Conv2d(c, c, 3, padding=1, bias=False)
            self.norm2 = torch.nn.BatchNorm2d(c)

        def forward(self, x):
            y = f.relu(self.norm1(self.conv1(x)))
            return f.relu(x + self.norm2(self.conv2(y)))

    torch.manual_seed(0)
    return text_of(Block(), [(s["batch"], c, s["height"], s["height"])])


def lstm_cell(s: Sizes) -> str:
    def graph(x, h, c, w, u, b):
        i, keep, g, o = torch.chunk(x @ w + h @ u + b, 4, -1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    b, i, c = s["batch"], s["inputs"], s["width"]
    return text_of(graph, [(b, i), (b, c), (b, c), (i, 4 * c), (c, 4 * c), (4 * c,)])


def gelu_erf_mlp(s: Sizes) -> str:
    b, t, c, h = s["batch"], s["time"], s["width"], s["hidden"]
    return text_of(
        lambda x, w1, b1, w2, b2: f.linear(f.gelu(f.linear(x, w1, b1)), w2, b2),
        [(b, t, c), (h, c), (h,), (c, h), (c,)],
    )


def adamw(s: Sizes) -> str:
    def graph(p, g, m, v):
        p = p * (1 - 1e-3 * 0.01)
        m = m.lerp(g, 0.1)
        v = v * 0.999 + g * g * 0.001
        return p - 0.02 * m / ((v / 0.003).sqrt() + 1e-8), m, v

    return text_of(graph, [(s["rows"], s["columns"])] * 4)


def sgd_momentum(s: Sizes) -> str:
    def graph(p, g, m):
        m = 0.9 * m + (g + 0.01 * p)
        return p - 0.1 * m, m

    return text_of(graph, [(s["rows"], s["columns"])] * 3)


def mse_loss(s: Sizes) -> str:
    return text_of(f.mse_loss, [(s["batch"], s["time"], s["width"])] * 2)


def patch_embedding(s: Sizes) -> str:
    """A vision transformer's: a strided convolution, flattened, with a class token and positions."""
    b, h, p, c = s["batch"], s["height"], 2, s["width"]

    def graph(x, w, bias, token, positions):
        patches = f.conv2d(x, w, bias, stride=p).flatten(2).transpose(1, 2)
        return torch.cat([token.expand(b, 1, c), patches], 1) + positions

    return text_of(graph, [(b, 3, h, h), (c, 3, p, p), (c,), (1, 1, c), ((h // p) ** 2 + 1, c)])


def cosine_similarity(s: Sizes) -> str:
    def graph(x, y):
        dot = (x[:, None] * y[None]).sum(-1)
        return dot / (torch.linalg.vector_norm(x, dim=-1)[:, None] * y.square().sum(-1).sqrt()).clamp_min(
            1e-8
        )

    return text_of(graph, [(s["batch"], s["width"]), (s["others"], s["width"])])


def global_average_pool(s: Sizes) -> str:
    return text_of(
        lambda x, w: x.mean((2, 3)) @ w,
        [(s["batch"], s["width"], s["height"], s["breadth"]), (s["width"], 5)],
    )

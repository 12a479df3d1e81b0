"""Whole graphs: layers, blocks, their gradients, an optimizer's step. Weights are arguments."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.kernels.case import Case
from benchmarks.kernels.table.contractions import attended, convolved
from benchmarks.kernels.table.pointwise import adam_rule
from benchmarks.kernels.table.rows import normalized

GROUP = "whole graphs"


def cases() -> list[Case]:
    """Named by what they compute and by their sizes."""
    return [
        mlp(1),
        mlp(256),
        block(2, 128, 512, 8),
        block(1, 16, 256, 4),
        block_gradient(2, 128, 512, 8),
        resnet(1, 64, 56),
        resnet(8, 64, 28),
        lstm(64, 512),
        lstm(1, 512),
        adam_step(512, 2048),
    ]


def mlp(batch: int) -> Case:
    def function(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3

    def twin(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
        hidden = torch.relu(torch.addmm(b2, torch.relu(torch.addmm(b1, x, w1)), w2))
        return torch.addmm(b3, hidden, w3)

    sizes = (784, 512, 256, 10)
    layers = [f"f32*0.05[{k},{n}] f32*0.05[{n}]" for k, n in itertools.pairwise(sizes)]
    args = (f"f32[{batch},784]", *" ".join(layers).split())
    return Case(f"mlp/{batch}", GROUP, args, function, twin, quick=batch == 256)


def _heads(x: Any, batch: int, time: int, heads: int) -> Any:
    return x.reshape(batch, time, heads, -1).swapaxes(1, 2)


def _block_jax(heads: int, x: Any, *weights: Any) -> Any:
    """A transformer block: attention and a perceptron, each behind a layer norm."""
    g1, h1, qkv, out, g2, h2, up, down = weights
    batch, time, width = x.shape
    q, k, v = (_heads(each, batch, time, heads) for each in jnp.split(normalized(x, g1, h1) @ qkv, 3, -1))
    mixed = attended(q, k, v, causal=True).swapaxes(1, 2).reshape(batch, time, width)
    x = x + mixed @ out
    return x + jax.nn.gelu(normalized(x, g2, h2) @ up) @ down


def _block_torch(heads: int, x: Any, *weights: Any) -> Any:
    g1, h1, qkv, out, g2, h2, up, down = weights
    batch, time, width = x.shape
    normed = F.layer_norm(x, (width,), g1, h1)
    q, k, v = (_heads(each, batch, time, heads) for each in (normed @ qkv).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + mixed.swapaxes(1, 2).reshape(batch, time, width) @ out
    return x + F.gelu(F.layer_norm(x, (width,), g2, h2) @ up, approximate="tanh") @ down


def _block_args(batch: int, time: int, width: int) -> tuple[str, ...]:
    vector = f"f32[{width}]"
    matrices = [f"f32*0.05[{k},{n}]" for k, n in ((width, 3 * width), (width, width))]
    wide = [f"f32*0.05[{k},{n}]" for k, n in ((width, 4 * width), (4 * width, width))]
    return (f"f32[{batch},{time},{width}]", vector, vector, *matrices, vector, vector, *wide)


def block(batch: int, time: int, width: int, heads: int) -> Case:
    return Case(
        f"transformer_block/{batch}x{time}x{width}",
        GROUP,
        _block_args(batch, time, width),
        lambda *args: _block_jax(heads, *args),
        lambda *args: _block_torch(heads, *args),
        tolerance=3e-5,
        quick=batch == 2,
    )


def block_gradient(batch: int, time: int, width: int, heads: int) -> Case:
    """Of the mean square of the result, by input and weights."""
    args = _block_args(batch, time, width)

    def loss_jax(*args: Any) -> Any:
        return jnp.square(_block_jax(heads, *args)).mean()

    def loss_torch(*args: Any) -> Any:
        return _block_torch(heads, *args).square().mean()

    every = tuple(range(len(args)))
    name = f"transformer_block_gradient/{batch}x{time}x{width}"
    function, twin = jax.grad(loss_jax, every), torch.func.grad(loss_torch, every)
    return Case(name, GROUP, args, function, twin, tolerance=1e-4)


def resnet(batch: int, channels: int, side: int) -> Case:
    """Convolution, scale and shift, relu, twice, around a shortcut: batch norm as it is at inference."""

    def function(x: Any, w1: Any, s1: Any, b1: Any, w2: Any, s2: Any, b2: Any) -> Any:
        s1, b1, s2, b2 = (each[:, None, None] for each in (s1, b1, s2, b2))
        hidden = jax.nn.relu(convolved(x, w1) * s1 + b1)
        return jax.nn.relu(convolved(hidden, w2) * s2 + b2 + x)

    def twin(x: Any, w1: Any, s1: Any, b1: Any, w2: Any, s2: Any, b2: Any) -> Any:
        s1, b1, s2, b2 = (each[:, None, None] for each in (s1, b1, s2, b2))
        hidden = torch.relu(F.conv2d(x, w1, padding=1) * s1 + b1)
        return torch.relu(F.conv2d(hidden, w2, padding=1) * s2 + b2 + x)

    layer = (f"f32*0.05[{channels},{channels},3,3]", f"f32[{channels}]", f"f32[{channels}]")
    args = (f"f32[{batch},{channels},{side},{side}]", *layer, *layer)
    return Case(f"resnet_block/{batch}x{channels}x{side}x{side}", GROUP, args, function, twin)


def lstm(batch: int, width: int) -> Case:
    def function(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def twin(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
        i, f, g, o = (torch.addmm(b, x, w) + h @ u).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    state, weights = f"f32[{batch},{width}]", f"f32*0.05[{width},{4 * width}]"
    args = (state, state, state, weights, weights, f"f32[{4 * width}]")
    return Case(f"lstm_cell/{batch}x{width}", GROUP, args, function, twin, quick=batch == 64)


def adam_step(width: int, wide: int) -> Case:
    """Over the four parameters of a perceptron: each in turn with gradient and moments."""
    shapes = (f"[{width},{wide}]", f"[{wide}]", f"[{wide},{width}]", f"[{width}]")
    args = tuple(kind + shape for shape in shapes for kind in ("f32", "f32", "f32", "f32+"))

    def step(module: Any, *state: Any) -> tuple[Any, ...]:
        quadruples = (state[at : at + 4] for at in range(0, len(state), 4))
        return tuple(result for each in quadruples for result in adam_rule(module, *each))

    name = f"adam_step/{width}x{wide}"
    return Case(name, GROUP, args, lambda *s: step(jnp, *s), lambda *s: step(torch, *s))

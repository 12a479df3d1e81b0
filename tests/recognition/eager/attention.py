"""Transformers and what they are made of."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as f

from tests.recognition.eager.convolutions import conv2d
from tests.recognition.eager.normalizations import layer_norm
from tests.recognition.eager.step import value_and_gradients


def split_heads(x: Tensor, heads: int) -> Tensor:
    batch, time, width = x.shape
    return x.reshape(batch, time, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    batch, heads, time, width = x.shape
    return x.transpose(1, 2).reshape(batch, time, heads * width)


def self_attention(x: Tensor, wqkv: Tensor, bqkv: Tensor, wo: Tensor, heads: int = 2) -> Tensor:
    """Causal."""
    q, k, v = (split_heads(part, heads) for part in (x @ wqkv + bqkv).chunk(3, -1))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return merge_heads(f.softmax(scores.masked_fill(later, -torch.inf), -1) @ v) @ wo


def block(x: Tensor, *weights: Tensor) -> Tensor:
    g1, b1, wqkv, bqkv, wo, g2, b2, w1, c1, w2, c2 = weights
    x = x + self_attention(layer_norm(x, g1, b1), wqkv, bqkv, wo)
    return x + f.gelu(layer_norm(x, g2, b2) @ w1 + c1, approximate="tanh") @ w2 + c2


def block_gradient(x: Tensor, y: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    return value_and_gradients(lambda *weights: ((block(x, *weights) - y) ** 2).mean(), *weights)


def gpt_logits(tokens: Tensor, positions: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    numbers = np.random.default_rng(0).standard_normal((24, gain.shape[0]))
    table = torch.from_numpy(numbers.astype(np.float32)).to(gain.dtype)
    return layer_norm(table[tokens] + positions, gain, bias) @ table.T


def multi_head_attention(
    q: Tensor, k: Tensor, v: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor
) -> Tensor:
    q, k, v = split_heads(q @ wq, 2), split_heads(k @ wk, 2), split_heads(v @ wv, 2)
    return merge_heads(f.scaled_dot_product_attention(q, k, v)) @ wo


def onnx_attention_block(
    x: Tensor, g: Tensor, b: Tensor, wqkv: Tensor, wo: Tensor, wi: Tensor, wf: Tensor
) -> Tensor:
    q, k, v = (split_heads(part, 3) for part in (layer_norm(x, g, b) @ wqkv).chunk(3, -1))
    h = x + merge_heads(f.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v) @ wo
    return h + f.gelu(h @ wi) @ wf


def rotary(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half).to(x.dtype) / half)
    angles = torch.arange(x.shape[1]).to(x.dtype)[:, None] * speeds
    turned = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.complex(x[..., :half], x[..., half:]) * turned[:, None]
    return torch.cat([pairs.real, pairs.imag], -1)


def patch_embedding(x: Tensor, w: Tensor, bias: Tensor, token: Tensor, positions: Tensor) -> Tensor:
    patches = conv2d(x, w, bias, stride=2).flatten(2).transpose(1, 2)
    return torch.cat([token.expand(x.shape[0], 1, -1), patches], 1) + positions


GRAPHS = {
    "transformer_block": lambda *a: (block(*a),),
    "transformer_block_gradient": block_gradient,
    "causal_attention": lambda *a: (self_attention(*a),),
    "gpt_logits": lambda *a: (gpt_logits(*a),),
    "multi_head_attention": lambda *a: (multi_head_attention(*a),),
    "onnx_attention_block": lambda *a: (onnx_attention_block(*a),),
    "rotary": lambda x: (rotary(x),),
    "patch_embedding": lambda *a: (patch_embedding(*a),),
}

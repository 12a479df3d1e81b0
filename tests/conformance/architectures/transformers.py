"""Networks around attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS = 32, 4


def split_heads(x: Any, heads: int = HEADS) -> Any:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x: Any) -> Any:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Attention(nn.Module):
    """Self-attention written with one projection and PyTorch's own attention."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.causal = causal

    def forward(self, x: Any, mask: Any = None) -> Any:
        query, key, value = (split_heads(part) for part in self.project(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=self.causal)
        return self.out(join_heads(mixed))


class Block(nn.Module):
    """Attention and two linear layers, each behind a norm."""

    def __init__(self, causal: bool = False, act: str = "none") -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(causal)
        wide = 4 * WIDTH
        self.mlp = nn.Sequential(nn.Linear(WIDTH, wide), nn.GELU(approximate=act), nn.Linear(wide, WIDTH))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class ViT(nn.Module):
    """Patches, a class token, blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class SwinBlock(nn.Module):
    """Attention within windows that may be shifted, with a bias by relative place."""

    index: Any
    mask: Any

    def __init__(self, size: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.norm, self.project = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, HEADS))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]) + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])
        self.register_buffer("mask", self._mask(size) if shift else None)

    def _mask(self, size: int) -> Any:
        """Which pairs of a shifted window were neighbors before the shift."""
        parts = torch.zeros(1, size, size, 1)
        steps = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for number, (rows, columns) in enumerate((a, b) for a in steps for b in steps):
            parts[:, rows, columns, :] = number
        windows = self._windows(parts).squeeze(-1)
        return (windows[:, None, :] != windows[:, :, None]).float().mul(-100.0)

    def _windows(self, x: Any) -> Any:
        batch, height, width, channels = x.shape
        w = self.window
        x = x.view(batch, height // w, w, width // w, w, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)

    def forward(self, x: Any) -> Any:
        batch, height, width, channels = x.shape
        y = self.norm(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        windows = self._windows(y)
        query, key, value = (split_heads(part) for part in self.project(windows).chunk(3, -1))
        scores = query @ key.transpose(-2, -1) / math.sqrt(channels // HEADS)
        count = self.window**2
        scores = scores + self.table[self.index.view(-1)].view(count, count, HEADS).permute(2, 0, 1)
        if self.shift:
            many = self.mask.shape[0]
            scores = scores.view(batch, many, HEADS, count, count) + self.mask[None, :, None]
            scores = scores.view(-1, HEADS, count, count)
        mixed = self.out(join_heads(scores.softmax(-1) @ value))
        w = self.window
        mixed = mixed.view(batch, height // w, width // w, w, w, channels)
        mixed = mixed.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        if self.shift:
            mixed = torch.roll(mixed, (self.shift, self.shift), (1, 2))
        return x + mixed


class Swin(nn.Module):
    """A patch stem, a pair of blocks, one merge of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(SwinBlock(8, 4, 0), SwinBlock(8, 4, 2))
        self.norm, self.merge = nn.LayerNorm(4 * WIDTH), nn.Linear(4 * WIDTH, 2 * WIDTH, bias=False)
        self.head = nn.Linear(2 * WIDTH, 10)

    def forward(self, x: Any) -> Any:
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        x = self.merge(self.norm(torch.cat(parts, -1)))
        return self.head(x.mean((1, 2)))


class GPT(nn.Module):
    """A causal decoder whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, WIDTH), nn.Embedding(16, WIDTH)
        self.blocks = nn.Sequential(Block(True, "tanh"), Block(True, "tanh"))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        places = torch.arange(words.shape[1], device=words.device)
        return self.head(self.norm(self.blocks(self.words(words) + self.places(places))))


class BERT(nn.Module):
    """An encoder of PyTorch's own layers, with a mask of what is padding, and a pooler."""

    numbers: Any

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, WIDTH, padding_idx=0)
        self.places, self.kinds = nn.Embedding(16, WIDTH), nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.register_buffer("numbers", torch.arange(16).expand(1, -1))

    def forward(self, words: Any, kinds: Any, mask: Any) -> Any:
        numbers = self.numbers[:, : words.shape[1]]
        x = self.norm(self.words(words) + self.places(numbers) + self.kinds(kinds))
        x = self.encoder(x, src_key_padding_mask=mask)
        return x, self.head(torch.tanh(self.pooler(x[:, 0])))


class RMSNorm(nn.Module):
    """Divided by the root of the mean square, which is computed in f32."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(width) + 0.5), eps

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x)


class T5Attention(nn.Module):
    """Attention without scale, with a bias by buckets of distance."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.bias = nn.Embedding(16, HEADS)

    def buckets(self, length: int) -> Any:
        places = torch.arange(length)
        apart = places[None, :] - places[:, None]
        bucket = (apart > 0).long() * 8
        apart = apart.abs()
        far = 4 + (torch.log(apart.float() / 4) / math.log(32 / 4) * 4).long()
        far = torch.min(far, torch.full_like(far, 7))
        return bucket + torch.where(apart < 4, apart, far)

    def forward(self, x: Any) -> Any:
        query, key, value = (split_heads(f(x)) for f in (self.query, self.key, self.value))
        bias = self.bias(self.buckets(x.shape[1])).permute(2, 0, 1).unsqueeze(0)
        scores = torch.matmul(query, key.transpose(3, 2)) + bias
        weights = functional.softmax(scores.float(), dim=-1).type_as(scores)
        return self.out(join_heads(torch.matmul(weights, value)))


class T5(nn.Module):
    """The encoder of T5, its feed-forward layers gated."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.attention = nn.Embedding(50, WIDTH), T5Attention()
        self.first, self.second, self.last = (RMSNorm(WIDTH) for _ in range(3))
        self.gate, self.up = nn.Linear(WIDTH, 64, bias=False), nn.Linear(WIDTH, 64, bias=False)
        self.down = nn.Linear(64, WIDTH, bias=False)

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        x = x + self.attention(self.first(x))
        y = self.second(x)
        x = x + self.down(functional.gelu(self.gate(y), approximate="tanh") * self.up(y))
        return self.last(x)


class LlamaBlock(nn.Module):
    """Rotary attention with fewer keys than queries, and SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = nn.Linear(WIDTH, 16, bias=False), nn.Linear(WIDTH, 16, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 64, bias=False), nn.Linear(WIDTH, 64, bias=False)
        self.down = nn.Linear(64, WIDTH, bias=False)

    @staticmethod
    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        y = self.first(x)
        query = self.rotate(split_heads(self.query(y)), cos, sin)
        key = self.rotate(split_heads(self.key(y), 2), cos, sin)
        value = split_heads(self.value(y), 2)
        key, value = (
            part[:, :, None].expand(-1, -1, 2, -1, -1).reshape(part.shape[0], HEADS, -1, 8)
            for part in (key, value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(join_heads(mixed))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder as Llama's; angles are computed from places."""

    frequencies: Any

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, WIDTH)
        self.blocks = nn.ModuleList([LlamaBlock(), LlamaBlock()])
        self.norm, self.head = RMSNorm(WIDTH), nn.Linear(WIDTH, 50, bias=False)
        self.register_buffer(
            "frequencies", 1.0 / 10000 ** (torch.arange(0, 8, 2).float() / 8), persistent=False
        )

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        angles = torch.outer(torch.arange(words.shape[1]).float(), self.frequencies)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos()[None, None], angles.sin()[None, None]
        for layer in self.blocks:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """A mixture of experts: each token goes to the two that its router likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.up = nn.Parameter(torch.randn(4, WIDTH, 64) / 6)
        self.down = nn.Parameter(torch.randn(4, 64, WIDTH) / 8)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        weights, chosen = torch.topk(functional.softmax(self.router(y), -1), 2)
        weights = weights / weights.sum(-1, keepdim=True)
        routes = (functional.one_hot(chosen, 4) * weights.unsqueeze(-1)).sum(-2)
        inner = functional.silu(torch.einsum("btd,edf->btef", y, self.up))
        expert = torch.einsum("btef,efd->bted", inner, self.down)
        return x + (expert * routes.unsqueeze(-1)).sum(2), chosen


class Translator(nn.Module):
    """PyTorch's own encoder and decoder with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(50, WIDTH), nn.Embedding(40, WIDTH)
        self.transformer = nn.Transformer(WIDTH, HEADS, 2, 2, 64, batch_first=True)
        self.head = nn.Linear(WIDTH, 40)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, source: Any, target: Any) -> Any:
        x = self.transformer(self.source(source), self.target(target), tgt_mask=self.mask, tgt_is_causal=True)
        return functional.log_softmax(self.head(x), -1)

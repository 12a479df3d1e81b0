"""Decoders with caches of keys and values, which are called several times; recurrent cells; diffusion."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.conformance.architectures.transformers import HEADS, WIDTH, RMSNorm, join_heads, split_heads

#: Tokens that a static cache has room for, and those of a prompt.
CAPACITY, PROMPT = 12, 4


class Decoder(nn.Module):
    """One layer of attention over the tokens so far, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(50, WIDTH), nn.Embedding(CAPACITY, WIDTH)
        self.norm, self.project = RMSNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 50)

    def heads(self, words: Any, positions: Any) -> tuple[Any, ...]:
        """The input of the layer, its queries, keys and values."""
        x = self.words(words) + self.positions(positions)
        return x, *(split_heads(part) for part in self.project(self.norm(x)).chunk(3, -1))

    def logits(self, x: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        mixed = functional.scaled_dot_product_attention(query, key, value, mask)
        return self.head(x + self.out(join_heads(mixed)))


class StaticDecoder(Decoder):
    """The cache is a buffer of a fixed size, updated in place."""

    keys: Any
    values: Any

    def __init__(self) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(2, HEADS, CAPACITY, WIDTH // HEADS))

    def forward(self, words: Any, positions: Any) -> Any:
        x, query, key, value = self.heads(words, positions)
        self.keys.index_copy_(2, positions, key)
        self.values.index_copy_(2, positions, value)
        mask = torch.arange(CAPACITY) <= positions[:, None]
        return self.logits(x, query, self.keys, self.values, mask)


class DynamicDecoder(Decoder):
    """The cache is an operand and a result that grows by the new tokens."""

    def forward(self, words: Any, keys: Any, values: Any) -> Any:
        before, count = keys.shape[2], words.shape[1]
        positions = torch.arange(before, before + count)
        x, query, key, value = self.heads(words, positions)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        mask = torch.arange(before + count) <= positions[:, None]
        return self.logits(x, query, keys, values, mask), keys, values


def static_steps(words: Any) -> Any:
    """Calls of a decoder with a static cache: the prompt, then a token at a time."""

    def calls(function: Any) -> Any:
        spans = [(0, PROMPT), *((position, position + 1) for position in range(PROMPT, words.shape[1]))]
        return [function(words[:, begin:end], torch.arange(begin, end)) for begin, end in spans]

    return calls


def dynamic_steps(words: Any) -> Any:
    """Calls of a decoder with a growing cache: the prompt, then a token at a time."""

    def calls(function: Any) -> Any:
        keys = values = torch.zeros(words.shape[0], HEADS, 0, WIDTH // HEADS)
        outputs: list[Any] = []
        for begin, end in ((0, PROMPT), *((at, at + 1) for at in range(PROMPT, words.shape[1]))):
            logits, keys, values = function(words[:, begin:end], keys, values)
            outputs += [logits, keys, values]
        return outputs

    return calls


class Cells(nn.Module):
    """A recurrent network written as a loop over a cell of PyTorch."""

    def __init__(self, kind: type[nn.LSTMCell | nn.GRUCell]) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(30, 12), kind(12, 16), nn.Linear(16, 5)

    def forward(self, words: Any) -> Any:
        hidden = torch.zeros(words.shape[0], 16)
        state: Any = (hidden, hidden) if isinstance(self.cell, nn.LSTMCell) else hidden
        outputs: list[Any] = []
        for step in range(words.shape[1]):
            state = self.cell(self.words(words[:, step]), state)
            outputs.append(self.head(state[0] if isinstance(state, tuple) else state))
        return torch.stack(outputs, 1)


class DiffusionBlock(nn.Module):
    """A block of a diffusion transformer: norms whose scale and shift an embedding of the time step sets."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.modulate = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, time: Any) -> Any:
        frequencies = torch.exp(-torch.arange(WIDTH // 2) * 0.5)
        angles = time[:, None].float() * frequencies
        parts = self.modulate(torch.cat([angles.sin(), angles.cos()], -1))[:, None].chunk(6, -1)
        query, key, value = (
            split_heads(part) for part in self.project(self.norm(x) * (1 + parts[0]) + parts[1]).chunk(3, -1)
        )
        x = x + parts[2] * self.out(join_heads(functional.scaled_dot_product_attention(query, key, value)))
        hidden = functional.gelu(self.wide(self.norm(x) * (1 + parts[3]) + parts[4]), approximate="tanh")
        return x + parts[5] * self.narrow(hidden)

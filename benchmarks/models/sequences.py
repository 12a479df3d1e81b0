"""Decoding with a cache, Whisper's encoder, an LSTM, and modules around models of libraries."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from benchmarks.models.images import PreNormBlock
from benchmarks.torch_compile.models import DecoderBlock, Gpt2, Llama, LlamaBlock, rotated

#: Entries of the caches of keys and values, before the token that is decoded.
CACHE = 512


class Gpt2Decode(nn.Module):
    """One token of GPT-2 after ``CACHE`` others: logits, and the token's keys and values of all layers.

    ``keys`` and ``values`` are of shape ``[layers, 1, heads, CACHE, size]``.
    """

    def __init__(self, model: Gpt2 | None = None) -> None:
        super().__init__()
        self.model = model or Gpt2()

    def forward(
        self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        x = self.model.tokens(token) + self.model.positions.weight[CACHE]
        added: list[torch.Tensor] = []
        for number, block in enumerate(cast("list[DecoderBlock]", self.model.blocks)):
            attention, (_, _, width) = block.attention, x.shape
            parts = attention.inner(block.first(x)).split(width, dim=2)
            shape = (1, 1, attention.heads, width // attention.heads)
            query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
            joined = F.scaled_dot_product_attention(
                query, torch.cat((keys[number], key), 2), torch.cat((values[number], value), 2)
            )
            x = x + attention.outer(joined.transpose(1, 2).reshape(1, 1, width))
            x = x + block.feed(block.second(x))
            added += [key, value]
        return self.model.head(self.model.norm(x)), *added


class LlamaDecode(nn.Module):
    """One token of a model like Llama after ``CACHE`` others, as ``Gpt2Decode``, with fewer heads of keys."""

    def __init__(self, model: Llama | None = None) -> None:
        super().__init__()
        self.model = model or Llama()
        size = self.model.size
        angles = CACHE * 10000.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("angles", torch.cat((angles, angles))[None])

    def forward(
        self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        cosine, sine = (function(cast(torch.Tensor, self.angles)) for function in (torch.cos, torch.sin))
        x = self.model.tokens(token)
        added: list[torch.Tensor] = []
        for number, block in enumerate(cast("list[LlamaBlock]", self.model.blocks)):
            normed = block.first(x)
            query = block.query(normed).view(1, 1, block.heads, block.size).transpose(1, 2)
            key = block.key(normed).view(1, 1, block.groups, block.size).transpose(1, 2)
            value = block.value(normed).view(1, 1, block.groups, block.size).transpose(1, 2)
            key = rotated(key, cosine, sine)
            joined = F.scaled_dot_product_attention(
                rotated(query, cosine, sine),
                torch.cat((keys[number], key), 2),
                torch.cat((values[number], value), 2),
                enable_gqa=True,
            )
            x = x + block.outer(joined.transpose(1, 2).reshape(1, 1, -1))
            normed = block.second(x)
            x = x + block.down(F.silu(block.gate(normed)) * block.up(normed))
            added += [key, value]
        return self.model.head(self.model.norm(x)), *added


class WhisperEncoder(nn.Module):
    """Radford et al., "Robust speech recognition", 2022: the encoder of the tiny model, 30 s of sound."""

    def __init__(self, width: int = 384, heads: int = 6, layers: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.positions = nn.Parameter(torch.randn(1, 1500, width) * 0.02)
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.second(F.gelu(self.first(mel)))).transpose(1, 2)
        return self.norm(self.blocks(x + self.positions))


class Lstm(nn.Module):
    """Two layers of 512, in ``nn.LSTM``."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(512, 512, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]


class First(nn.Module):
    """The first output of a model of a library, called with these names of its inputs."""

    def __init__(self, model: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return self.model(**named, **self.fixed, return_dict=False)[0]


class T5Step(nn.Module):
    """One token of T5's decoder after ``CACHE`` others: keys and values of both attentions are inputs.

    They are of shape ``[layers, 1, heads, length, size]``. The result is the state before the vocabulary.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(
        self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, sources: torch.Tensor
    ) -> torch.Tensor:
        x = self.decoder.embed_tokens(token)
        bias = self._bias(keys.shape[3])
        for number, block in enumerate(self.decoder.block):
            own, cross, feed = block.layer
            normed = own.layer_norm(x)
            attention = own.SelfAttention
            query, key, value = (
                self._heads(attention, layer(normed)) for layer in (attention.q, attention.k, attention.v)
            )
            key, value = torch.cat((keys[number], key), 2), torch.cat((values[number], value), 2)
            x = x + self._joined(attention, query, key, value, bias)
            attention = cross.EncDecAttention
            query = self._heads(attention, attention.q(cross.layer_norm(x)))
            key, value = (self._heads(attention, layer(sources)) for layer in (attention.k, attention.v))
            x = x + self._joined(attention, query, key, value, None)
            x = x + feed.DenseReluDense(feed.layer_norm(x))
        return self.decoder.final_layer_norm(x)

    def _heads(self, attention: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, attention.n_heads, attention.key_value_proj_dim).transpose(1, 2)

    def _joined(self, attention: Any, query: Any, key: Any, value: Any, bias: Any) -> torch.Tensor:
        joined = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
        return attention.o(joined.transpose(1, 2).reshape(1, 1, -1))

    def _bias(self, length: int) -> torch.Tensor:
        attention = self.decoder.block[0].layer[0].SelfAttention
        distances = torch.arange(length + 1)[None] - length
        buckets = attention._relative_position_bucket(
            distances,
            bidirectional=False,
            num_buckets=attention.relative_attention_num_buckets,
            max_distance=attention.relative_attention_max_distance,
        )
        return attention.relative_attention_bias(buckets).permute(2, 0, 1)[None]

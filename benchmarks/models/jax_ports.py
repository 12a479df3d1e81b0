"""Ports of models to JAX: functions of the weights of the PyTorch model, by name, and of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.torch_compile.models import Bert, Gpt2

Weights = Mapping[str, jax.Array]


def _linear(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _norm(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    centered = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-5)
    return centered * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _attention(weights: Weights, name: str, x: jax.Array, heads: int, causal: bool) -> jax.Array:
    batch, length, width = x.shape
    size = width // heads
    parts = jnp.split(_linear(weights, f"{name}.inner", x), 3, axis=2)
    query, key, value = (part.reshape(batch, length, heads, size) for part in parts)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(size)
    if causal:
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf)
    joined = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return _linear(weights, f"{name}.outer", joined.reshape(batch, length, width))


def _feed(weights: Weights, name: str, x: jax.Array, approximate: bool) -> jax.Array:
    wide = jax.nn.gelu(_linear(weights, f"{name}.0", x), approximate=approximate)
    return _linear(weights, f"{name}.2", wide)


def _gpt2(layers: int, heads: int, weights: Weights, tokens: jax.Array) -> jax.Array:
    x = weights["tokens.weight"][tokens] + weights["positions.weight"][: tokens.shape[1]]
    for number in range(layers):
        block = f"blocks.{number}"
        x = x + _attention(weights, f"{block}.attention", _norm(weights, f"{block}.first", x), heads, True)
        x = x + _feed(weights, f"{block}.feed", _norm(weights, f"{block}.second", x), True)
    return _linear(weights, "head", _norm(weights, "norm", x))


def _bert(layers: int, heads: int, weights: Weights, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    x = weights["tokens.weight"][tokens] + weights["positions.weight"][: tokens.shape[1]]
    x = _norm(weights, "norm", x + weights["kinds.weight"][0])
    for number in range(layers):
        block = f"blocks.{number}"
        x = _norm(weights, f"{block}.first", x + _attention(weights, f"{block}.attention", x, heads, False))
        x = _norm(weights, f"{block}.second", x + _feed(weights, f"{block}.feed", x, False))
    return x, jnp.tanh(_linear(weights, "pooler", x[:, 0]))


def _of(function: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda module: partial(function, len(module.blocks), module.blocks[0].attention.heads)


PORTS: dict[type, Callable[[Any], Callable[..., Any]]] = {Gpt2: _of(_gpt2), Bert: _of(_bert)}

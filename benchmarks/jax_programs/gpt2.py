"""GPT-2 of 124 M parameters: forward pass, training step, and the arrays that an optimizer updates."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS = 768, 12, 12, 50257, 1024
LEARNING_RATE = 0.1


def weights(draw: np.random.Generator, layers: int = LAYERS, vocabulary: int = VOCABULARY) -> dict[str, Any]:
    """148 arrays, named and shaped as those of the release of GPT-2."""

    def normal(*shape: int, scale: float = 0.02) -> Any:
        return draw.standard_normal(shape, np.float32) * np.float32(scale)

    def linear(inner: int, outer: int) -> dict[str, Any]:
        return {"w": normal(inner, outer), "b": normal(outer)}

    def norm() -> dict[str, Any]:
        return {"g": 1 + normal(WIDTH), "b": normal(WIDTH)}

    def block() -> dict[str, Any]:
        return {
            "ln_1": norm(),
            "ln_2": norm(),
            "attn": {"c_attn": linear(WIDTH, 3 * WIDTH), "c_proj": linear(WIDTH, WIDTH)},
            "mlp": {"c_fc": linear(WIDTH, 4 * WIDTH), "c_proj": linear(4 * WIDTH, WIDTH)},
        }

    return {
        "wte": normal(vocabulary, WIDTH),
        "wpe": normal(POSITIONS, WIDTH, scale=0.01),
        "h": [block() for _ in range(layers)],
        "ln_f": norm(),
    }


def _linear(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    return x @ p["w"] + p["b"]


def _norm(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    centered = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centered).mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + 1e-5) * p["g"] + p["b"]


def _attention(x: jax.Array, p: dict[str, Any]) -> jax.Array:
    batch, length, _ = x.shape
    parts = jnp.split(_linear(x, p["c_attn"]), 3, axis=-1)
    query, key, value = (part.reshape(batch, length, HEADS, WIDTH // HEADS) for part in parts)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf)
    joined = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return _linear(joined.reshape(batch, length, WIDTH), p["c_proj"])


def _block(x: jax.Array, p: dict[str, Any]) -> jax.Array:
    x = x + _attention(_norm(x, p["ln_1"]), p["attn"])
    inner = jax.nn.gelu(_linear(_norm(x, p["ln_2"]), p["mlp"]["c_fc"]), approximate=True)
    return x + _linear(inner, p["mlp"]["c_proj"])


def forward(p: dict[str, Any], tokens: jax.Array) -> jax.Array:
    """Logits of ``tokens`` (i32, batch x length): f32, batch x length x vocabulary."""
    x = p["wte"][tokens] + p["wpe"][: tokens.shape[1]]
    for layer in p["h"]:
        x = _block(x, layer)
    return _norm(x, p["ln_f"]) @ p["wte"].T


def loss(p: dict[str, Any], tokens: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean cross entropy of the targets."""
    logits = jax.nn.log_softmax(forward(p, tokens))
    return -jnp.take_along_axis(logits, targets[..., None], axis=-1).mean()


def training_step(p: dict[str, Any], tokens: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
    """The weights after a step of gradient descent, and the loss before it."""
    value, gradients = jax.value_and_grad(loss)(p, tokens, targets)
    return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, p, gradients), value


def adamw(state: dict[str, Any], gradients: Any, step: jax.Array) -> tuple[dict[str, Any]]:
    """The state (weights ``p`` and both moments ``m``, ``v``) after a step of AdamW; ``step`` is an i32."""
    t = step.astype(jax.tree.leaves(gradients)[0].dtype) + 1
    first, second = 1 - 0.9**t, 1 - 0.999**t

    def update(p: jax.Array, m: jax.Array, v: jax.Array, g: jax.Array) -> tuple[jax.Array, ...]:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * jnp.square(g)
        direction = (m / first) / (jnp.sqrt(v / second) + 1e-8)
        return p - 3e-4 * (direction + 0.01 * p), m, v

    updated = jax.tree.map(update, state["p"], state["m"], state["v"], gradients)
    outer = jax.tree.structure(state["p"])
    p, m, v = jax.tree.transpose(outer, jax.tree.structure((0, 0, 0)), updated)
    return ({"p": p, "m": m, "v": v},)


def tokens(draw: np.random.Generator, batch: int, length: int = 128) -> Any:
    return draw.integers(0, VOCABULARY, (batch, length), np.int32)

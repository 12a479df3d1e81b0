"""A denoising step of a diffusion model: a U-Net of the size of ddpm-cifar10-32, channels last."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIZE, CHANNELS, EMBEDDED, GROUPS = 32, (128, 256, 256, 256), 512, 32
#: Residual blocks of a level downwards; there is one more upwards. The level with attention.
BLOCKS, ATTENTION = 2, 1
STEPS = 1000


class _Weights:
    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw

    def convolution(self, inner: int, outer: int, size: int = 3) -> dict[str, Any]:
        scale = np.float32((1 / (inner * size * size)) ** 0.5)
        window = self.draw.standard_normal((size, size, inner, outer), np.float32) * scale
        return {"w": window, "b": self.vector(outer)}

    def linear(self, inner: int, outer: int) -> dict[str, Any]:
        scale = np.float32(inner**-0.5)
        return {"w": self.draw.standard_normal((inner, outer), np.float32) * scale, "b": self.vector(outer)}

    def vector(self, size: int, mean: float = 0) -> Any:
        return (mean + 0.1 * self.draw.standard_normal(size)).astype(np.float32)

    def norm(self, size: int) -> dict[str, Any]:
        return {"g": self.vector(size, 1), "b": self.vector(size)}

    def residual(self, inner: int, outer: int) -> dict[str, Any]:
        p = {
            "norm1": self.norm(inner),
            "conv1": self.convolution(inner, outer),
            "time": self.linear(EMBEDDED, outer),
            "norm2": self.norm(outer),
            "conv2": self.convolution(outer, outer),
        }
        return p if inner == outer else {**p, "skip": self.convolution(inner, outer, 1)}

    def attention(self, width: int) -> dict[str, Any]:
        names = ("query", "key", "value", "out")
        return {"norm": self.norm(width), **{name: self.linear(width, width) for name in names}}


def weights(draw: np.random.Generator) -> dict[str, Any]:
    """35.7 M parameters."""
    make = _Weights(draw)
    first, last = CHANNELS[0], CHANNELS[-1]
    down: list[dict[str, Any]] = []
    skips, inner = [first], first
    for level, width in enumerate(CHANNELS):
        blocks = [make.residual(inner if n == 0 else width, width) for n in range(BLOCKS)]
        skips += [width] * BLOCKS
        inner = width
        p: dict[str, Any] = {"blocks": blocks}
        if level == ATTENTION:
            p["attention"] = [make.attention(width) for _ in range(BLOCKS)]
        if level < len(CHANNELS) - 1:
            p["down"] = make.convolution(width, width)
            skips.append(width)
        down.append(p)
    up: list[dict[str, Any]] = []
    for level, width in reversed(list(enumerate(CHANNELS))):
        blocks = []
        for _ in range(BLOCKS + 1):
            blocks.append(make.residual(inner + skips.pop(), width))
            inner = width
        p = {"blocks": blocks}
        if level == ATTENTION:
            p["attention"] = [make.attention(width) for _ in range(BLOCKS + 1)]
        if level:
            p["up"] = make.convolution(width, width)
        up.append(p)
    return {
        "time": [make.linear(first, EMBEDDED), make.linear(EMBEDDED, EMBEDDED)],
        "in": make.convolution(3, first),
        "down": down,
        "middle": {
            "blocks": [make.residual(last, last) for _ in range(2)],
            "attention": make.attention(last),
        },
        "up": up,
        "norm": make.norm(first),
        "out": make.convolution(first, 3),
    }


def _convolved(x: jax.Array, p: dict[str, jax.Array], stride: int = 1) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=numbers) + p["b"]


def _linear(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    return x @ p["w"] + p["b"]


def _norm(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    grouped = x.reshape(*x.shape[:-1], GROUPS, x.shape[-1] // GROUPS)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    variance = grouped.var((1, 2, 4), keepdims=True)
    return ((grouped - mean) * lax.rsqrt(variance + 1e-6)).reshape(x.shape) * p["g"] + p["b"]


def _residual(x: jax.Array, time: jax.Array, p: dict[str, Any]) -> jax.Array:
    y = _convolved(jax.nn.silu(_norm(x, p["norm1"])), p["conv1"])
    y = y + _linear(jax.nn.silu(time), p["time"])[:, None, None]
    y = _convolved(jax.nn.silu(_norm(y, p["norm2"])), p["conv2"])
    return y + (_convolved(x, p["skip"]) if "skip" in p else x)


def _attention(x: jax.Array, p: dict[str, Any]) -> jax.Array:
    batch, rows, columns, width = x.shape
    y = _norm(x, p["norm"]).reshape(batch, rows * columns, width)
    query, key, value = (_linear(y, p[name]) for name in ("query", "key", "value"))
    scores = jax.nn.softmax(query @ key.swapaxes(1, 2) / math.sqrt(width), axis=-1)
    return x + _linear(scores @ value, p["out"]).reshape(x.shape)


def _doubled(x: jax.Array) -> jax.Array:
    batch, rows, columns, width = x.shape
    return jax.image.resize(x, (batch, 2 * rows, 2 * columns, width), "nearest")


def _embedded(step: jax.Array, p: list[dict[str, jax.Array]], dtype: Any) -> jax.Array:
    half = CHANNELS[0] // 2
    frequencies = jnp.exp(-math.log(10000) * jnp.arange(half, dtype=dtype) / half)
    angles = step[:, None].astype(dtype) * frequencies
    sines = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return _linear(jax.nn.silu(_linear(sines, p[0])), p[1])


def noise_of(p: dict[str, Any], x: jax.Array, step: jax.Array) -> jax.Array:
    """The noise in images ``x`` (f32, batch x 32 x 32 x 3) at ``step`` (i32, batch): of the images' shape."""
    time = _embedded(step, p["time"], x.dtype)
    x = _convolved(x, p["in"])
    skips = [x]
    for level in p["down"]:
        for number, block in enumerate(level["blocks"]):
            x = _residual(x, time, block)
            x = _attention(x, level["attention"][number]) if "attention" in level else x
            skips.append(x)
        if "down" in level:
            x = _convolved(x, level["down"], 2)
            skips.append(x)
    first, second = p["middle"]["blocks"]
    x = _residual(_attention(_residual(x, time, first), p["middle"]["attention"]), time, second)
    for level in p["up"]:
        for number, block in enumerate(level["blocks"]):
            x = _residual(jnp.concatenate([x, skips.pop()], axis=-1), time, block)
            x = _attention(x, level["attention"][number]) if "attention" in level else x
        x = _convolved(_doubled(x), level["up"]) if "up" in level else x
    return _convolved(jax.nn.silu(_norm(x, p["norm"])), p["out"])


def denoising_step(p: dict[str, Any], x: jax.Array, step: jax.Array, drawn: jax.Array) -> jax.Array:
    """The images of the step before, with the ``drawn`` noise: DDPM's update (Ho et al., 2020)."""
    betas = jnp.linspace(1e-4, 0.02, STEPS, dtype=x.dtype)
    kept = jnp.cumprod(1 - betas)
    beta, kept = (each[step][:, None, None, None] for each in (betas, kept))
    mean = (x - beta / jnp.sqrt(1 - kept) * noise_of(p, x, step)) / jnp.sqrt(1 - beta)
    return mean + jnp.sqrt(beta) * drawn

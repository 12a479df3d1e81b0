"""The corpus's JAX graphs, as functions of their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from tests.recognition.mutations import edit

Sizes = dict[str, int]
#: What a graph is called with: shapes of floats, or ("i", dims) of integers.
Shapes = list[Any]


def _shape(dims: Any) -> jax.ShapeDtypeStruct:
    if dims[:1] == ("i",):
        return jax.ShapeDtypeStruct(dims[1:], jnp.int32)
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def text_of(function: Callable[..., Any], shapes: Shapes) -> str:
    """The exported module, without locations."""
    exported = export.export(jax.jit(function))(*map(_shape, shapes))
    return str(edit.parse(exported.mlir_module()).operation.get_asm(enable_debug_info=False))


# -- pieces


def dense(rows: int, columns: int, seed: int) -> jax.Array:
    """A weight that the program holds as a constant."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal((rows, columns)), jnp.float32)


def layer_norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def rms_norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain


def attention(x, wqkv, bqkv, wo, heads, causal):
    batch, time, width = x.shape
    qkv = jnp.split(x @ wqkv + bqkv, 3, -1)
    q, k, v = (t.reshape(batch, time, heads, width // heads).transpose(0, 2, 1, 3) for t in qkv)
    scores = (q @ k.transpose(0, 1, 3, 2)) / jnp.sqrt(width // heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -jnp.inf)
    mixed = jax.nn.softmax(scores, -1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(batch, time, width) @ wo


def block(x, g1, b1, wqkv, bqkv, wo, g2, b2, w1, c1, w2, c2):
    x = x + attention(layer_norm(x, g1, b1), wqkv, bqkv, wo, 2, causal=True)
    return x + jax.nn.gelu(layer_norm(x, g2, b2) @ w1 + c1) @ w2 + c2


def block_shapes(s: Sizes) -> Shapes:
    b, t, c, f = s["batch"], s["time"], s["width"], s["hidden"]
    inner = [(c,), (c,), (c, 3 * c), (3 * c,), (c, c), (c,), (c,), (c, f), (f,), (f, c), (c,)]
    return [(b, t, c), *inner]


# -- graphs


def transformer_block(s: Sizes) -> str:
    return text_of(block, block_shapes(s))


def transformer_block_gradient(s: Sizes) -> str:
    def loss(weights, x, y):
        return jnp.mean((block(x, *weights) - y) ** 2)

    def step(x, y, *weights):
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        return value, *gradients

    x, *weights = block_shapes(s)
    return text_of(step, [x, x, *weights])


def causal_attention(s: Sizes) -> str:
    b, t, c = s["batch"], s["time"], s["width"]
    return text_of(
        lambda x, wqkv, bqkv, wo: attention(x, wqkv, bqkv, wo, 2, causal=True),
        [(b, t, c), (c, 3 * c), (3 * c,), (c, c)],
    )


def gpt_logits(s: Sizes) -> str:
    """Token and position embeddings, a norm, and logits by the same table, which is a constant."""
    b, t, c = s["batch"], s["time"], s["width"]
    table = dense(24, c, 0)

    def graph(tokens, positions, gain, bias):
        return layer_norm(table[tokens] + positions, gain, bias) @ table.T

    return text_of(graph, [("i", b, t), (t, c), (c,), (c,)])


def rms_norm_graph(s: Sizes) -> str:
    b, t, c = s["batch"], s["time"], s["width"]
    return text_of(rms_norm, [(b, t, c), (c,)])


def layer_norm_gradient(s: Sizes) -> str:
    def graph(x, gain, bias, cotangent):
        value, back = jax.vjp(layer_norm, x, gain, bias)
        return value, *back(cotangent)

    b, t, c = s["batch"], s["time"], s["width"]
    return text_of(graph, [(b, t, c), (c,), (c,), (b, t, c)])


def batch_norm_training(s: Sizes) -> str:
    def graph(x, gain, bias, mean, variance):
        axes = (0, 1, 2)
        now, spread = x.mean(axes), x.var(axes)
        y = (x - now) * jax.lax.rsqrt(spread + 1e-5) * gain + bias
        return y, 0.9 * mean + 0.1 * now, 0.9 * variance + 0.1 * spread

    b, h, w, c = s["batch"], s["height"], s["breadth"], s["width"]
    return text_of(graph, [(b, h, w, c), (c,), (c,), (c,), (c,)])


def conv(x, w, groups=1, stride=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def conv_block(s: Sizes) -> str:
    def graph(x, w, gain, bias):
        y = jax.nn.relu(conv(x, w) * gain + bias)
        pooled = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return pooled, pooled.mean((1, 2))

    b, h, c = s["batch"], s["height"], s["width"]
    return text_of(graph, [(b, h, h, 3), (3, 3, 3, c), (c,), (c,)])


def depthwise_conv(s: Sizes) -> str:
    b, h, c = s["batch"], s["height"], s["width"]
    return text_of(
        lambda x, w, p, bias: jax.nn.relu6(conv(conv(x, w, groups=c, stride=2), p) + bias),
        [(b, h, h, c), (3, 3, 1, c), (1, 1, c, 2 * c), (2 * c,)],
    )


def gru_cell(s: Sizes) -> str:
    def graph(x, h, w, u, b):
        xr, xz, xn = jnp.split(x @ w + b, 3, -1)
        hr, hz, hn = jnp.split(h @ u, 3, -1)
        reset, update = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        return (1 - update) * jnp.tanh(xn + reset * hn) + update * h

    b, i, c = s["batch"], s["inputs"], s["width"]
    return text_of(graph, [(b, i), (b, c), (i, 3 * c), (c, 3 * c), (3 * c,)])


def softmax(s: Sizes) -> str:
    return text_of(lambda x: jax.nn.softmax(x, -1), [(s["batch"], s["time"], s["width"])])


def log_softmax(s: Sizes) -> str:
    return text_of(lambda x: jax.nn.log_softmax(x, 1), [(s["batch"], s["time"], s["width"])])


def cross_entropy(s: Sizes) -> str:
    def loss(logits, labels):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    def graph(logits, labels):
        return jax.value_and_grad(loss)(logits, labels)

    return text_of(graph, [(s["batch"], s["classes"]), ("i", s["batch"])])


def mse_gradient(s: Sizes) -> str:
    def loss(w, x, y):
        return jnp.mean((x @ w - y) ** 2)

    return text_of(
        jax.value_and_grad(loss),
        [(s["inputs"], s["width"]), (s["batch"], s["inputs"]), (s["batch"], s["width"])],
    )


def huber(s: Sizes) -> str:
    def graph(x, y):
        error = jnp.abs(x - y)
        return jnp.where(error <= 1.0, 0.5 * error**2, error - 0.5).mean()

    return text_of(graph, [(s["batch"], s["width"])] * 2)


def gelu_mlp(s: Sizes) -> str:
    b, t, c, f = s["batch"], s["time"], s["width"], s["hidden"]
    return text_of(
        lambda x, w1, b1, w2, b2: jax.nn.gelu(x @ w1 + b1) @ w2 + b2,
        [(b, t, c), (c, f), (f,), (f, c), (c,)],
    )


def swiglu_mlp(s: Sizes) -> str:
    b, t, c, f = s["batch"], s["time"], s["width"], s["hidden"]
    return text_of(lambda x, w, v, o: (jax.nn.silu(x @ w) * (x @ v)) @ o, [(b, t, c), (c, f), (c, f), (f, c)])


def adam(s: Sizes) -> str:
    def graph(p, g, m, v, step):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        t = step.astype(jnp.float32) + 1
        return p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v, step + 1

    return text_of(graph, [(s["rows"], s["columns"])] * 4 + [("i",)])


def mean_variance(s: Sizes) -> str:
    return text_of(
        lambda x: (x.mean((0, 1)), x.var((0, 1)), x.std(-1, ddof=1)), [(s["batch"], s["time"], s["width"])]
    )


def rotary(s: Sizes) -> str:
    def graph(x):
        half = x.shape[-1] // 2
        angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * (10000.0 ** (-np.arange(half) / half))
        cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    return text_of(graph, [(s["batch"], s["time"], s["heads"], s["width"])])

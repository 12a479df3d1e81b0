"""The functions in JAX: its own where it has one (``jax.nn``, ``jnp``), else as flax and optax write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import export, nn
from jax.lax import rsqrt

from kcache_compiler.mlir.context import new_context, parse_module

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def tensor(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


X, ROW, SCALAR = tensor(6, 10), tensor(10), tensor()
HEADS, IMAGE, CHANNEL = tensor(2, 3, 6, 8), tensor(2, 5, 6, 8), tensor(5)


def moments(x):
    return jnp.mean(x, axis=-1, keepdims=True), jnp.var(x, axis=-1, keepdims=True)


def layer_norm(x, g, b):
    mean, variance = moments(x)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * g + b


def layer_norm_rsqrt(x, g, b):
    mean, variance = moments(x)
    return (x - mean) * rsqrt(variance + 1e-5) * g + b


def layer_norm_flax(x, g, b):
    mean, square = jnp.mean(x, axis=-1), jnp.mean(jnp.square(x), axis=-1)
    variance = jnp.maximum(0.0, square - jnp.square(mean))[..., None]
    return (x - mean[..., None]) * (rsqrt(variance + 1e-5) * g) + b


def across(v):
    return v[None, :, None, None]


def batch_norm(x, g, b, m, v):
    return (x - across(m)) / jnp.sqrt(across(v) + 1e-5) * across(g) + across(b)


def batch_norm_flax(x, g, b, m, v):
    return (x - across(m)) * (rsqrt(across(v) + 1e-5) * across(g)) + across(b)


def adam_optax(p, g, m, v, t):
    m = (1 - 0.9) * g + 0.9 * m
    v = (1 - 0.999) * (g**2) + 0.999 * v
    corrected, square = m / (1 - 0.9**t), v / (1 - 0.999**t)
    return p + (-1e-3) * (corrected / (jnp.sqrt(square) + 1e-8)), m, v


def cross_entropy(x, targets):
    return -jnp.mean(jnp.sum(targets * nn.log_softmax(x), axis=-1))


def cross_entropy_labels(x, labels):
    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(x), labels[:, None], axis=-1))


CASES: dict[str, Case] = {
    "bias_relu": (lambda x, b: nn.relu(x + b), (X, ROW)),
    "matmul_bias_relu": (lambda x, w, b: nn.relu(x @ w + b), (X, tensor(10, 14), tensor(14))),
    "softmax": (nn.softmax, (X,)),
    "sigmoid_gate": (lambda x, g: x * nn.sigmoid(g), (X, X)),
    "silu": (nn.silu, (X,)),
    "residual_add": (lambda x, y: x + nn.relu(y), (X, X)),
    "attention_scores": (
        lambda q, k: nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(jnp.float32(8))),
        (HEADS, HEADS),
    ),
    "mean_squared_error": (lambda x, y: jnp.mean((x - y) ** 2), (X, X)),
    "rms_norm": (lambda x, g: x * rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g, (X, ROW)),
    "rms_norm.square": (lambda x, g: x * rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5) * g, (X, ROW)),
    "gelu_tanh": (nn.gelu, (X,)),
    "gelu_erf": (lambda x: nn.gelu(x, approximate=False), (X,)),
    "layer_norm": (layer_norm, (X, ROW, ROW)),
    "layer_norm.rsqrt": (layer_norm_rsqrt, (X, ROW, ROW)),
    "layer_norm.flax": (layer_norm_flax, (X, ROW, ROW)),
    "standardize": (lambda x: nn.standardize(x, epsilon=1e-5), (X,)),
    "variance": (lambda x: jnp.var(x, axis=-1), (X,)),
    "variance_unbiased": (lambda x: jnp.var(x, axis=-1, ddof=1), (X,)),
    "batch_norm": (batch_norm, (IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL)),
    "batch_norm.flax": (batch_norm_flax, (IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL)),
    "log_softmax": (nn.log_softmax, (X,)),
    "cross_entropy": (cross_entropy, (X, X)),
    "cross_entropy_labels": (cross_entropy_labels, (X, tensor(6, dtype=jnp.int64))),
    "adam": (adam_optax, (X, X, X, X, SCALAR)),
}


def exported(function: Callable[..., Any], arguments: tuple[Any, ...]) -> export.Exported:
    """Export a function of arguments that may have 64 bits."""
    with jax.enable_x64(True):
        return export.export(jax.jit(function))(*arguments)


def texts() -> dict[str, str]:
    texts_by_name = {name: jax.jit(f).lower(*arguments).as_text() for name, (f, arguments) in CASES.items()}
    function, arguments = CASES["gelu_erf"]
    module = exported(function, arguments).mlir_module()
    # Printed again, its locations are gone.
    texts_by_name["gelu_erf.exported"] = str(parse_module(module, new_context()))
    return texts_by_name

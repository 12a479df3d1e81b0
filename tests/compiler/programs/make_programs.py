"""Makes the programs beside this file with JAX: small twins of real graphs. Run by hand: ``python
make_programs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from torch_mlir import ir  # pyright: ignore
from torch_mlir._mlir_libs import _stablehlo  # pyright: ignore

F32 = jnp.float32
HERE = Path(__file__).parent


def spec(*dims: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def layer_norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + bias


def attention(x, wqkv, bqkv, wo, bo):
    batch, time, width = x.shape
    heads = 2
    qkv = jnp.split(x @ wqkv + bqkv, 3, -1)
    q, k, v = (t.reshape(batch, time, heads, width // heads).transpose(0, 2, 1, 3) for t in qkv)
    scores = (q @ k.transpose(0, 1, 3, 2)) / jnp.sqrt(width // heads)
    mask = jnp.tril(jnp.ones((time, time), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, time, width) @ wo + bo


def transformer(tokens, table, positions, g1, b1, wqkv, bqkv, wo, bo, g2, b2, w1, c1, w2, c2):
    x = table[tokens] + positions
    x = x + attention(layer_norm(x, g1, b1), wqkv, bqkv, wo, bo)
    return x + jax.nn.gelu(layer_norm(x, g2, b2) @ w1 + c1) @ w2 + c2


def conv_block(x, w1, w2, gain, bias, mean, variance):
    def conv(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    y = jax.nn.relu((conv(x, w1) - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + bias)
    y = jax.nn.relu(conv(y, w2) + x)
    pooled = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    features = pooled.mean((1, 2))
    return features, jnp.argmax(features, -1)


def train_step(w1, b1, w2, b2, x, labels):
    def loss(params):
        w1, b1, w2, b2 = params
        logits = jnp.tanh(x @ w1 + b1) @ w2 + b2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    value, gradients = jax.value_and_grad(loss)((w1, b1, w2, b2))
    return value, *(p - 0.1 * g for p, g in zip((w1, b1, w2, b2), gradients, strict=True))


def adam(p, g, m, v, step):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    t = step.astype(F32) + 1
    return p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v, step + 1


def control(x, n):
    y = jax.lax.fori_loop(0, n, lambda i, c: c * 0.5 + x, x)
    z = jax.lax.cond(n > 2, lambda y: y + x, lambda y: y * x, y)
    w = jax.lax.switch(n, [lambda z: z, jnp.sin, lambda z: z - y], z)
    return jnp.sort(w), jnp.cumsum(w), w.at[n].set(0.0), jax.lax.top_k(w, 3)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]] = {
    "transformer": (
        transformer,
        [
            *(spec(2, 4, dtype=jnp.int32), spec(16, 8), spec(4, 8), spec(8), spec(8), spec(8, 24), spec(24)),
            *(spec(8, 8), spec(8), spec(8), spec(8), spec(8, 32), spec(32), spec(32, 8), spec(8)),
        ],
    ),
    "conv_block": (
        conv_block,
        [spec(2, 4, 4, 3), spec(3, 3, 3, 3), spec(3, 3, 3, 3), spec(3), spec(3), spec(3), spec(3)],
    ),
    "train_step": (
        train_step,
        [spec(6, 8), spec(8), spec(8, 4), spec(4), spec(5, 6), spec(5, dtype=jnp.int32)],
    ),
    "adam": (adam, [spec(3, 5), spec(3, 5), spec(3, 5), spec(3, 5), spec(dtype=jnp.int32)]),
    "control": (control, [spec(7), spec(dtype=jnp.int32)]),
}


def main() -> None:
    context = ir.Context()
    _stablehlo.register_dialect(context)
    for name, (function, arguments) in PROGRAMS.items():
        text = export.export(jax.jit(function))(*arguments).mlir_module()
        module = ir.Module.parse(text, context)
        (HERE / f"{name}.mlir").write_text(module.operation.get_asm(enable_debug_info=False) + "\n")


if __name__ == "__main__":
    main()

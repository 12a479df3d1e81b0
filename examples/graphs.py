"""The example graphs as JAX functions: what a model author would write.

Every function takes its parameters as arguments and works in the dtype of its inputs, so that the same
code gives the f32 program and the f64 reference.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

EPSILON = 1e-5


def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    """Normalize over the last axis (Ba, Kiros and Hinton, 2016)."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + EPSILON) * gain + bias


def attention(x: Array, w_qkv: Array, b_qkv: Array, w_out: Array, b_out: Array, heads: int) -> Array:
    """Causal self-attention of ``heads`` heads over x[batch, time, channel]."""
    batch, time, channels = x.shape
    width = channels // heads
    qkv = (x @ w_qkv + b_qkv).reshape(batch, time, 3, heads, width)
    query, key, value = (qkv[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) * (1.0 / width**0.5)
    position = lax.iota(jnp.int32, time)
    causal = position[:, None] >= position[None, :]
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, value)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, time, channels) @ w_out + b_out


def gpt2_block(
    tokens: Array, token_table: Array, position_table: Array,
    gain_1: Array, bias_1: Array, w_qkv: Array, b_qkv: Array, w_attn: Array, b_attn: Array,
    gain_2: Array, bias_2: Array, w_up: Array, b_up: Array, w_down: Array, b_down: Array,
    *, heads: int,
) -> Array:  # fmt: skip
    """Embedding and one block of GPT-2 (Radford et al., 2019): [batch, time] to [batch, time, channel]."""
    x = jnp.take(token_table, tokens, axis=0, mode="clip") + position_table[: tokens.shape[1]]
    x = x + attention(layer_norm(x, gain_1, bias_1), w_qkv, b_qkv, w_attn, b_attn, heads)
    hidden = jax.nn.gelu(layer_norm(x, gain_2, bias_2) @ w_up + b_up, approximate=True)
    return x + hidden @ w_down + b_down


def convolve(x: Array, kernel: Array, stride: int = 1) -> Array:
    """Two-dimensional convolution, NHWC by HWIO, same padding."""
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: Array, statistics: Array) -> Array:
    """Inference form over the last axis; the rows of ``statistics`` are mean, variance, gain and bias."""
    mean, variance, gain, bias = statistics
    return (x - mean) * lax.rsqrt(variance + EPSILON) * gain + bias


def max_pool(x: Array) -> Array:
    """Maximum over 3x3 windows with stride 2 and same padding, NHWC."""
    lowest = jnp.array(-jnp.inf, x.dtype)
    return lax.reduce_window(x, lowest, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def resnet_block(
    image: Array, stem: Array, stem_norm: Array, kernel_1: Array, norm_1: Array,
    kernel_2: Array, norm_2: Array, w_class: Array, b_class: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Stem, pooling and one residual block of ResNet (He et al., 2015): class scores and the feature map."""
    x = max_pool(jax.nn.relu(batch_norm(convolve(image, stem), stem_norm)))
    inner = jax.nn.relu(batch_norm(convolve(x, kernel_1), norm_1))
    x = jax.nn.relu(x + batch_norm(convolve(inner, kernel_2), norm_2))
    return jnp.mean(x, axis=(1, 2)) @ w_class + b_class, x


Parameters = tuple[Array, ...]


def mlp_loss(parameters: Parameters, inputs: Array, labels: Array) -> Array:
    """Mean cross entropy of a perceptron with ReLU between its layers."""
    x = inputs
    for layer in range(0, len(parameters), 2):
        if layer:
            x = jax.nn.relu(x)
        x = x @ parameters[layer] + parameters[layer + 1]
    wanted = jax.nn.one_hot(labels, x.shape[-1], dtype=x.dtype)
    return -jnp.mean(jnp.sum(wanted * jax.nn.log_softmax(x), axis=-1))


def mlp_train_step(
    inputs: Array, labels: Array, step: Array, parameters: Parameters, first: Parameters, second: Parameters
) -> tuple[Array, Array, Parameters, Parameters, Parameters]:
    """One step of Adam (Kingma and Ba, 2014): loss, step + 1, and the new parameters and moments."""
    rate, decay_1, decay_2, epsilon = 1e-2, 0.9, 0.999, 1e-8
    loss, gradients = jax.value_and_grad(mlp_loss)(parameters, inputs, labels)
    step = step + 1
    time = step.astype(inputs.dtype)
    first = tuple(decay_1 * m + (1 - decay_1) * g for m, g in zip(first, gradients, strict=True))
    second = tuple(decay_2 * v + (1 - decay_2) * g * g for v, g in zip(second, gradients, strict=True))
    scale_1, scale_2 = 1 / (1 - decay_1**time), 1 / (1 - decay_2**time)
    parameters = tuple(
        p - rate * (m * scale_1) / (jnp.sqrt(v * scale_2) + epsilon)
        for p, m, v in zip(parameters, first, second, strict=True)
    )
    return loss, step, parameters, first, second

"""Products of matrices, alone and with what follows them; convolution; attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.kernels.case import Case

MATMUL, EPILOGUE, NARROW = "matmul", "matmul with epilogue", "matmul bf16"
CONVOLUTION, ATTENTION = "convolution", "attention"
#: Rows, what is summed, columns.
SQUARE = ((128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048))
OTHER = ((8192, 64, 64), (64, 1024, 4096), (257, 511, 1001), (1, 4096, 4096), (16, 4096, 1024))


def cases() -> list[Case]:
    """Named by what they compute and by their sizes."""
    return [
        *(matmul(*sizes) for sizes in SQUARE + OTHER),
        turned("nt", 512),
        turned("tn", 512),
        batched(48, 128, 64),
        matmul_f64(512),
        bias_relu(512, 1024, 1024),
        bias_gelu(256, 768, 3072),
        bias_gelu(1, 768, 3072),
        *(matmul_bf16(size) for size in (256, 1024)),
        convolution("3x3", 1, 64, 64, 56, 3),
        convolution("3x3", 8, 128, 128, 28, 3),
        convolution("1x1", 8, 256, 1024, 14, 1),
        grouped("depthwise_3x3", 1, 64, 64, 56, 3),
        grouped("depthwise_5x5", 1, 144, 144, 14, 5),
        grouped("groups_3x3", 1, 128, 32, 28, 3),
        attention(2, 8, 256, 256, causal=False),
        attention(1, 12, 512, 512, causal=True),
        attention(1, 16, 1, 2048, causal=False),
    ]


def matmul(m: int, k: int, n: int) -> Case:
    return Case(
        f"matmul/{m}x{k}x{n}",
        MATMUL,
        (f"f32[{m},{k}]", f"f32[{k},{n}]"),
        jnp.matmul,
        torch.matmul,
        lambda out, a, b: np.matmul(a, b, out=out[0]),
        quick=m == k == n and m in (256, 512),
    )


def turned(which: str, size: int) -> Case:
    """One factor is read along its columns."""
    first = which == "tn"

    def product(a: Any, b: Any) -> Any:
        return a.T @ b if first else a @ b.T

    def product_numpy(out: Any, a: Any, b: Any) -> Any:
        return np.matmul(a.T if first else a, b if first else b.T, out=out[0])

    args = (f"f32[{size},{size}]",) * 2
    return Case(f"matmul_{which}/{size}", MATMUL, args, product, product, product_numpy)


def batched(batch: int, side: int, depth: int) -> Case:
    return Case(
        f"matmul_batched/{batch}x{side}x{depth}x{side}",
        MATMUL,
        (f"f32[{batch},{side},{depth}]", f"f32[{batch},{depth},{side}]"),
        jnp.matmul,
        torch.matmul,
        lambda out, a, b: np.matmul(a, b, out=out[0]),
    )


def matmul_f64(size: int) -> Case:
    return Case(
        f"matmul_f64/{size}",
        MATMUL,
        (f"f64[{size},{size}]",) * 2,
        jnp.matmul,
        torch.matmul,
        lambda out, a, b: np.matmul(a, b, out=out[0]),
        tolerance=1e-12,
    )


def bias_relu(m: int, k: int, n: int) -> Case:
    return Case(
        f"bias_relu/{m}x{k}x{n}",
        EPILOGUE,
        (f"f32[{m},{k}]", f"f32[{k},{n}]", f"f32[{n}]"),
        lambda x, w, b: jax.nn.relu(x @ w + b),
        lambda x, w, b: torch.relu(torch.addmm(b, x, w)),
        quick=True,
    )


def bias_gelu(m: int, k: int, n: int) -> Case:
    return Case(
        f"bias_gelu/{m}x{k}x{n}",
        EPILOGUE,
        (f"f32[{m},{k}]", f"f32[{k},{n}]", f"f32[{n}]"),
        lambda x, w, b: jax.nn.gelu(x @ w + b),
        lambda x, w, b: F.gelu(torch.addmm(b, x, w), approximate="tanh"),
    )


def matmul_bf16(size: int) -> Case:
    args = (f"bf16[{size},{size}]",) * 2
    return Case(f"matmul_bf16/{size}", NARROW, args, jnp.matmul, torch.matmul, tolerance=2e-2)


def convolved(x: Any, w: Any) -> Any:
    """Batch, channels, rows, columns, in JAX; the output is as large as the input."""
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")


def convolution(name: str, batch: int, channels: int, filters: int, side: int, window: int) -> Case:
    return Case(
        f"convolution_{name}/{batch}x{channels}x{side}x{side}",
        CONVOLUTION,
        (f"f32[{batch},{channels},{side},{side}]", f"f32[{filters},{channels},{window},{window}]"),
        convolved,
        lambda x, w: F.conv2d(x, w, padding=window // 2),
        quick=batch == 1,
    )


def grouped(name: str, batch: int, channels: int, groups: int, side: int, window: int) -> Case:
    def convolved(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=groups)

    return Case(
        f"convolution_{name}/{batch}x{channels}x{side}x{side}",
        CONVOLUTION,
        (f"f32[{batch},{channels},{side},{side}]", f"f32[{channels},{channels // groups},{window},{window}]"),
        convolved,
        lambda x, w: F.conv2d(x, w, padding=window // 2, groups=groups),
    )


def attended(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Batch, heads, time, width, in JAX."""
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5)
    if causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(mask, scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


def attention(batch: int, heads: int, queries: int, keys: int, causal: bool) -> Case:
    def twin(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return Case(
        f"attention{'_causal' if causal else ''}/{batch}x{heads}x{queries}x{keys}",
        ATTENTION,
        (f"f32[{batch},{heads},{queries},64]", *(f"f32[{batch},{heads},{keys},64]",) * 2),
        lambda q, k, v: attended(q, k, v, causal),
        twin,
        quick=queries == 256,
    )

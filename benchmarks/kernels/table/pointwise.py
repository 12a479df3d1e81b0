"""Chains of elementwise operations, from the first-level cache to main memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.kernels.case import Case

GROUP = "pointwise"


def cases() -> list[Case]:
    """Named by what they compute and by their sizes."""
    return [
        *(exp_add(size, name) for size, name in EXP_ADD),
        *(gelu_bias(rows, columns) for rows, columns in ((1, 3072), (512, 3072), (511, 1001))),
        swiglu(64, 1408),
        swiglu(2048, 1408),
        hypot(1 << 20),
        tanh_bf16(1 << 20),
        adam(1 << 14),
        adam(1 << 22),
    ]


EXP_ADD = ((1 << 10, "1Ki"), (1 << 16, "64Ki"), (1_000_003, "1000003"), (1 << 24, "16Mi"))


def exp_add(size: int, name: str) -> Case:
    return Case(
        f"exp_add/{name}",
        GROUP,
        (f"f32[{size}]",) * 2,
        lambda a, b: jnp.exp(a + b),
        lambda a, b: torch.exp(a + b),
        lambda out, a, b: np.exp(np.add(a, b, out=out[0]), out=out[0]),
        quick=size == 1 << 16,
    )


def gelu_bias(rows: int, columns: int) -> Case:
    return Case(
        f"gelu_bias/{rows}x{columns}",
        GROUP,
        (f"f32[{rows},{columns}]", f"f32[{columns}]"),
        lambda x, b: jax.nn.gelu(x + b, approximate=False),
        lambda x, b: F.gelu(x + b),
        quick=rows == 512,
    )


def swiglu(rows: int, columns: int) -> Case:
    return Case(
        f"swiglu/{rows}x{columns}",
        GROUP,
        (f"f32[{rows},{columns}]",) * 2,
        lambda a, b: jax.nn.silu(a) * b,
        lambda a, b: F.silu(a) * b,
    )


def hypot(size: int) -> Case:
    return Case(
        "hypot/1Mi",
        GROUP,
        (f"f32[{size}]",) * 2,
        lambda x, y: jnp.sqrt(x * x + y * y),
        lambda x, y: torch.sqrt(x * x + y * y),
    )


def tanh_bf16(size: int) -> Case:
    return Case(
        "tanh_mul_bf16/1Mi",
        GROUP,
        (f"bf16[{size}]",) * 2,
        lambda x, y: jnp.tanh(x) * y,
        lambda x, y: torch.tanh(x) * y,
        tolerance=2e-2,
    )


def adam_rule(module: Any, p: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
    """The tenth step of Adam, by ``jnp`` or ``torch``."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    step = (m / (1 - 0.9**10)) / (module.sqrt(v / (1 - 0.999**10)) + 1e-8)
    return p - 1e-3 * step, m, v


def adam(size: int) -> Case:
    return Case(
        f"adam/{size >> 10}Ki",
        GROUP,
        (f"f32[{size}]", f"f32[{size}]", f"f32[{size}]", f"f32+[{size}]"),
        lambda *state: adam_rule(jnp, *state),
        lambda *state: adam_rule(torch, *state),
        quick=size == 1 << 14,
    )

"""Reductions along rows and columns, with what comes before and after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.kernels.case import Case

ROWS, COLUMNS = "rows", "columns"
LONG, SQUARE, WIDE, ODD = (4096, 64), (512, 1024), (64, 16384), (511, 1001)
Shape = tuple[int, int]


def cases() -> list[Case]:
    """Named by what they compute and by their sizes."""
    return [
        *(row_sum(shape) for shape in (LONG, SQUARE, WIDE, ODD)),
        *(row_max(shape) for shape in (SQUARE, ODD)),
        *(softmax(shape) for shape in (LONG, SQUARE, WIDE, ODD, (1, 50257))),
        *(layer_norm(shape) for shape in (LONG, SQUARE, WIDE, ODD, (1, 768), (16384, 1024))),
        *(rms_norm(shape) for shape in (LONG, SQUARE, ODD, (64, 1024))),
        *(cross_entropy(shape) for shape in (SQUARE, (128, 50257))),
        *(batch_statistics(shape) for shape in ((8, 64, 56), (32, 256, 14))),
        *(column_sum(shape) for shape in (LONG, SQUARE, ODD)),
        column_max(SQUARE),
        column_softmax(SQUARE),
    ]


def _case(
    name: str,
    shape: Shape,
    jax_function: Callable[..., Any],
    torch_function: Callable[..., Any],
    numpy_function: Callable[..., Any] | None = None,
    *,
    weights: int = 0,
    group: str = ROWS,
) -> Case:
    rows, columns = shape
    args = (f"f32[{rows},{columns}]", *((f"f32[{columns}]",) * weights))
    named = f"{name}/{rows}x{columns}"
    return Case(named, group, args, jax_function, torch_function, numpy_function, quick=shape == SQUARE)


def row_sum(shape: Shape) -> Case:
    return _case(
        "row_sum",
        shape,
        lambda x: x.sum(1),
        lambda x: x.sum(1),
        lambda out, x: np.sum(x, 1, out=out[0]),
    )


def row_max(shape: Shape) -> Case:
    return _case(
        "row_max",
        shape,
        lambda x: x.max(1),
        lambda x: x.amax(1),
        lambda out, x: np.max(x, 1, out=out[0]),
    )


def softmax(shape: Shape) -> Case:
    return _case("softmax", shape, jax.nn.softmax, lambda x: torch.softmax(x, -1))


def normalized(x: Any, w: Any, b: Any) -> Any:
    """Over the last axis, in JAX."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w + b


def layer_norm(shape: Shape) -> Case:
    def twin(x: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], w, b)

    return _case("layer_norm", shape, normalized, twin, weights=2)


def rms_norm(shape: Shape) -> Case:
    def function(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * w

    def twin(x: Any, w: Any) -> Any:
        return F.rms_norm(x, x.shape[-1:], w, 1e-5)

    return _case("rms_norm", shape, function, twin, weights=1)


def cross_entropy(shape: Shape) -> Case:
    rows, classes = shape

    def function(logits: Any, labels: Any) -> Any:
        chosen = jax.nn.one_hot(labels, classes, dtype=logits.dtype)
        return -(jax.nn.log_softmax(logits) * chosen).sum(-1).mean()

    return Case(
        f"cross_entropy/{rows}x{classes}",
        ROWS,
        (f"f32[{rows},{classes}]", f"i32<{classes}[{rows}]"),
        function,
        lambda logits, labels: F.cross_entropy(logits, labels.long()),
    )


def batch_statistics(shape: tuple[int, int, int]) -> Case:
    batch, channels, side = shape

    def function(x: Any) -> tuple[Any, Any]:
        mean = x.mean((0, 2, 3), keepdims=True)
        return mean.reshape(-1), jnp.square(x - mean).mean((0, 2, 3))

    def twin(x: Any) -> tuple[Any, Any]:
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        return mean, variance

    args = (f"f32[{batch},{channels},{side},{side}]",)
    return Case(f"batch_statistics/{batch}x{channels}x{side}x{side}", ROWS, args, function, twin)


def column_sum(shape: Shape) -> Case:
    return _case(
        "column_sum",
        shape,
        lambda x: x.sum(0),
        lambda x: x.sum(0),
        lambda out, x: np.sum(x, 0, out=out[0]),
        group=COLUMNS,
    )


def column_max(shape: Shape) -> Case:
    return _case("column_max", shape, lambda x: x.max(0), lambda x: x.amax(0), group=COLUMNS)


def column_softmax(shape: Shape) -> Case:
    return _case(
        "column_softmax",
        shape,
        lambda x: jax.nn.softmax(x, 0),
        lambda x: torch.softmax(x, 0),
        group=COLUMNS,
    )

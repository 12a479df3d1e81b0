"""Programs whose sizes are erased, and what NumPy makes of the same arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Of spec ``f32[s0,s1];f32[s1,s2]``.
WHOLE = "f32[s0,s1];f32[s1,s2]"


def matmul(rows: int | str, inner: int | str, columns: int | str) -> str:
    """``a @ b``; ``?`` leaves an axis open."""
    a, b, c = (f"tensor<{x}x{y}xf32>" for x, y in ((rows, inner), (inner, columns), (rows, columns)))
    return (
        f"func.func @main(%a: {a}, %b: {b}) -> {c} {{\n"
        f"  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}\n"
        f"  return %r : {c}\n}}\n"
    )


def agrees(kernel: Any, rows: int, inner: int, columns: int) -> bool:
    """Whether a kernel of ``matmul`` gives what NumPy gives, at these sizes."""
    random = np.random.default_rng(rows * 10_000 + inner * 100 + columns)
    a = random.integers(-4, 5, (rows, inner)).astype(np.float32)
    b = random.integers(-4, 5, (inner, columns)).astype(np.float32)
    return np.array_equal(kernel(a, b)[0], a @ b)

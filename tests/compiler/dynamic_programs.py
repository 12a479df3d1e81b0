"""Programs as functions of their sizes, with what they compute, in NumPy: for kernels of all sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler import dynamic_texts as texts

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OpenProgram:
    """``text`` gives the module at sizes, in the order of ``sizes``; ``least``: what a size must be at least.

    ``inputs``: dtype and shape of each argument; integers are drawn below ``below``.
    """

    name: str
    text: Callable[..., str]
    inputs: Callable[..., list[tuple[str, tuple[int, ...]]]]
    expected: Callable[..., Any]
    sizes: tuple[int, ...]
    least: int = 0
    below: int = 3

    def draw(self, sizes: tuple[int, ...], seed: int) -> list[Array]:
        generator = np.random.default_rng(seed)
        arrays: list[Array] = []
        for dtype, shape in self.inputs(*sizes):
            if dtype.startswith(("i", "u", "b")):
                arrays.append(np.asarray(generator.integers(-1, self.below, shape), dtype))
            else:
                arrays.append(np.asarray(generator.standard_normal(shape), dtype))
        return arrays


def _numpy_softmax(a: Array) -> Array:
    if not a.size:
        return a
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _numpy_row_of(a: Array, i: Array) -> Array:
    at = min(max(int(i), 0), a.shape[0] - 1)
    return a[at : at + 1]


def _numpy_update(a: Array, u: Array, i: Array) -> Array:
    changed = a.copy()
    at = min(max(int(i), 0), a.shape[0] - 1)
    changed[at : at + 1] = u
    return changed


def _numpy_pool(a: Array, before: int, after: int) -> Array:
    pairs = np.maximum(a[:, :, 0::2], a[:, :, 1::2])
    padded = np.pad(pairs, [(0, 0), (before, after), (0, 0)], constant_values=-np.inf)
    count = before + after + 1
    return np.stack([padded[:, k : k + a.shape[1]] for k in range(count)]).max(0)


def _numpy_convolution(a: Array, k: Array) -> Array:
    padded = np.pad(a, [(0, 0), (1, 1), (1, 1), (0, 0)])
    h, w = a.shape[1:3]
    shifted = [padded[:, i : i + h, j : j + w] @ k[i, j] for i in range(3) for j in range(3)]
    return np.sum(shifted, 0)


def _numpy_loop(a: Array, n: Array) -> Array:
    x = a
    for _ in range(int(n)):
        x = x * np.float32(0.5) + a
    return x


def _column_sums(a: Array) -> Array:
    return a.astype("f8").sum((0, 2)).astype("f4")


PROGRAMS: tuple[OpenProgram, ...] = (
    OpenProgram(
        "activation",
        texts.activation_text,
        lambda b, c: [("f4", (b, c)), ("f4", (c,))],
        lambda a, b: np.maximum(a + b, 0),
        (5, 7),
    ),
    OpenProgram(
        "outer",
        texts.outer_text,
        lambda b, c: [("f4", (b,)), ("f4", (c,))],
        lambda a, b: a[:, None] - b,
        (5, 7),
    ),
    OpenProgram("softmax", texts.softmax_text, lambda b, t: [("f4", (b, t))], _numpy_softmax, (5, 7)),
    OpenProgram(
        "mean-f32",
        texts.mean_text("f32"),
        lambda b, c: [("f4", (b, c))],
        lambda a: np.float32(a.astype("f8").sum()) / np.float32(a.size),
        (5, 7),
    ),
    OpenProgram(
        "mean-f64",
        texts.mean_text("f64"),
        lambda b, c: [("f8", (b, c))],
        lambda a: a.sum() / np.float64(a.size),
        (5, 7),
    ),
    OpenProgram("variance", texts.variance_text, lambda b, c: [("f8", (b, c))], lambda a: a.var(1), (5, 7)),
    OpenProgram(
        "matmul",
        texts.matmul_text,
        lambda b, k, c: [("f4", (b, k)), ("f4", (k, c)), ("f4", (c,))],
        lambda a, b, c: a @ b + c,
        (5, 7, 3),
    ),
    OpenProgram(
        "scores",
        texts.scores_text,
        lambda b, t, h: [("f4", (b, t, 2, h))] * 2,
        lambda a, b: np.einsum("bihd,bjhd->bhij", a, b),
        (5, 7, 3),
    ),
    OpenProgram(
        "transpose",
        texts.transpose_text,
        lambda b, t, c: [("f4", (b, t, c))],
        lambda a: 2 * a.transpose(2, 0, 1),
        (5, 7, 3),
    ),
    OpenProgram(
        "merge",
        texts.merge_text,
        lambda b, t, c: [("f4", (b, t, c)), ("f4", (c, 3))],
        lambda a, w: a @ w,
        (5, 7, 4),
    ),
    OpenProgram(
        "flat",
        texts.flat_text,
        lambda b, t: [("f4", (b, t)), ("f4", (b * t,))],
        lambda a, b: a.ravel() * a.T.ravel() + b,
        (5, 7),
    ),
    OpenProgram(
        "heads",
        texts.heads_text,
        lambda b, t: [("f4", (b, t, 12))],
        lambda a: -a.reshape(*a.shape[:2], 3, 4).transpose(0, 2, 1, 3),
        (5, 7),
    ),
    OpenProgram("causal", texts.causal_text, lambda t: [("f4", (t, t))], np.tril, (5,)),
    OpenProgram(
        "concatenate",
        texts.concatenate_text,
        lambda b, c: [("f4", (b, c)), ("f4", (b, 3))],
        lambda a, b: np.concatenate([a, b], 1),
        (5, 7),
    ),
    OpenProgram(
        "pad",
        texts.pad_text,
        lambda b, c: [("f4", (b, c, 4))],
        lambda a: np.stack(
            [a[..., i // 2] if i % 2 else np.full(a.shape[:2], 2, "f4") for i in range(9)], -1
        ),
        (5, 7),
    ),
    OpenProgram(
        "slice", texts.slice_text, lambda b, c: [("f4", (b, 6, c))], lambda a: 2 * a[:, 1:5:2], (5, 7)
    ),
    OpenProgram(
        "embedding",
        texts.embedding_text,
        lambda v, c, b, t: [("f4", (v, c)), ("i4", (b, t, 1))],
        lambda a, i: a[np.clip(i[..., 0], 0, len(a) - 1)],
        (5, 7, 3, 4),
        1,
        7,
    ),
    OpenProgram(
        "first-rows",
        texts.first_rows_text,
        lambda v, c: [("f4", (v, c))],
        lambda a: a[np.clip([0, 2, 4], 0, len(a) - 1)],
        (9, 7),
        1,
    ),
    OpenProgram(
        "dynamic-slice",
        texts.dynamic_slice_text,
        lambda b, c: [("f4", (b, c, 5)), ("i4", ())],
        lambda a, i: a[..., min(max(i, 0), 3) :][..., :2],
        (5, 7),
        0,
        6,
    ),
    OpenProgram(
        "row-of", texts.row_of_text, lambda b, c: [("f4", (b, c)), ("i4", ())], _numpy_row_of, (5, 7), 1, 9
    ),
    OpenProgram(
        "update",
        texts.update_text,
        lambda b, c: [("f4", (b, c)), ("f4", (1, c)), ("i4", ())],
        _numpy_update,
        (5, 7),
        1,
        9,
    ),
    OpenProgram(
        "pool",
        texts.pool_text("1", "[0, 0]", lambda h: h),
        lambda b, h: [("f4", (b, h, 6))],
        lambda a: _numpy_pool(a, 0, 0),
        (5, 7),
        1,
    ),
    OpenProgram(
        "pool-same",
        texts.pool_text("3", "[1, 1]", lambda h: h),
        lambda b, h: [("f4", (b, h, 6))],
        lambda a: _numpy_pool(a, 1, 1),
        (5, 7),
        1,
    ),
    OpenProgram(
        "convolution",
        texts.convolution_text,
        lambda b, h, w: [("f4", (b, h, w, 2)), ("f4", (3, 3, 2, 4))],
        _numpy_convolution,
        (5, 7, 11),
    ),
    OpenProgram(
        "clamp",
        texts.clamp_text,
        lambda b, c: [("f4", (b, c))] * 2,
        lambda a, b: np.minimum(np.clip(a, -0.5, 0.5), b),
        (5, 7),
    ),
    OpenProgram(
        "loop", texts.loop_text, lambda b, c: [("f4", (b, c)), ("i4", ())], _numpy_loop, (5, 7), 0, 5
    ),
    OpenProgram(
        "branch",
        texts.branch_text,
        lambda b, c: [("f4", (b, c)), ("bool", ())],
        lambda a, p: 2 * a if p else -a,
        (5, 7),
    ),
    OpenProgram(
        "reverse", texts.reverse_text, lambda b, c: [("f4", (b, c))], lambda a: a + a[::-1, ::-1], (5, 7)
    ),
    OpenProgram(
        "argmax",
        texts.argmax_text,
        lambda b, c: [("f4", (b, c))],
        lambda a: np.argmax(a, 1) if a.shape[1] else np.zeros(len(a), "i4"),
        (5, 7),
    ),
    OpenProgram(
        "halves",
        texts.halves_text,
        lambda b, c: [("f2", (b, c))],
        lambda a: np.max(a * a, 1, initial=0),
        (5, 7),
    ),
    OpenProgram(
        "integers",
        texts.integers_text,
        lambda b, c: [("i4", (b, c))] * 2,
        lambda a, b: (a * b).sum(0, dtype="i4"),
        (5, 7),
    ),
    OpenProgram(
        "booleans", texts.booleans_text, lambda b, c: [("bool", (b, c))], lambda a: ~a.all(1), (5, 7)
    ),
    OpenProgram("columns", texts.columns_text, lambda b, t, c: [("f4", (b, t, c))], _column_sums, (5, 7, 3)),
)

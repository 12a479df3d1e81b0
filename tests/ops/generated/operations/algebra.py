"""Linear algebra, transforms and random bits, whose oracle is NumPy: the interpreter has none of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ops.generated import wish
from tests.ops.generated.draft import EPSILON, Draft, Family
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import COMPLEX

_REAL = ("f32", "f64")
_KINDS: dict[str, npt.DTypeLike] = {
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
}
_SMALL = {"f32": 2.0**-140, "f64": 2.0**-1040, "c64": 2.0**-140, "c128": 2.0**-1040}
Array = npt.NDArray[np.generic]


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "cholesky": Family(_REAL + COMPLEX, _cholesky),
        "fft": Family(COMPLEX, _fft),
        "triangular_solve": Family(_REAL + COMPLEX, _triangular_solve),
    }


def _random(draft: Draft, shape: tuple[int, ...]) -> npt.NDArray[np.complex128]:
    values = draft.rng.standard_normal(shape).astype(np.complex128)
    return values + 1j * draft.rng.standard_normal(shape) if draft.dtype in COMPLEX else values


def _bytes(values: npt.NDArray[np.complex128], dtype: str) -> bytes:
    plain = values if dtype in COMPLEX else values.real
    return plain.astype(_KINDS[dtype]).tobytes()


def _batch(draft: Draft, others: int) -> tuple[int, ...]:
    """Axes before ``others``."""
    count = draft.number(0, 2)
    if draft.wish.startswith("rank "):
        count = max(int(draft.wish[5:]) - others, 0)
    sizes = [draft.number(1, 3 if count < 3 else 2) for _ in range(count)]
    return tuple(wish.sizes(draft.wish, sizes, draft.rng)) if draft.wish == "empty" else tuple(sizes)


def _edged(draft: Draft, values: npt.NDArray[np.complexfloating[Any, Any]]) -> npt.NDArray[np.complex128]:
    """With a zero below zero or a number below all normal ones beside the diagonal, where that is wished."""
    if values.ndim >= 2 and min(values.shape[-2:]) > 1 and values.size:
        number = {"values -0": -0.0, "values subnormal": _SMALL[draft.dtype]}.get(draft.wish)
        if number is not None:
            values[..., 1, 0] = values[..., 0, 1] = complex(number, -0.0)
    return values.astype(np.complex128)


def _cholesky(draft: Draft) -> OpProgram:
    """Of the other side of the diagonal nothing is read; ours is 0 there, as implementations may."""
    n = draft.number(0, 6)
    drawn = _random(draft, (*_batch(draft, 2), n, n))
    matrix = drawn @ drawn.conj().swapaxes(-1, -2) + np.eye(n) * (n + 1)
    if draft.wish.startswith("values "):
        matrix = _edged(draft, matrix + np.eye(n) * 4 * n)
    factor = (np.linalg.cholesky(matrix) if n else matrix).astype(np.complex128)
    lower = draft.chance(0.5, "lower")
    value = draft.given(drawn.shape, _bytes(matrix, draft.dtype), draft.dtype)
    results = draft.call([value], [(draft.dtype, drawn.shape)], f"lower = {str(lower).lower()}")
    expected = factor if lower else factor.conj().swapaxes(-1, -2)
    loose = EPSILON[draft.dtype] * 200
    return draft.program(results, 0, loose, [_bytes(expected, draft.dtype)])


def _triangular_solve(draft: Draft) -> OpProgram:
    n, m = draft.number(0, 6), draft.number(0, 4)
    batch, left = _batch(draft, 2), draft.chance(0.5, "left_side")
    lower, unit = draft.chance(0.5, "lower"), draft.chance(0.3, "unit_diagonal")
    turned = draft.pick(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "transpose_a")
    a = _random(draft, (*batch, n, n)) + np.eye(n) * 4
    b = _edged(draft, _random(draft, (*batch, *((n, m) if left else (m, n)))))
    operands = [draft.given(array.shape, _bytes(array, draft.dtype), draft.dtype) for array in (a, b)]
    attributes = (
        f"left_side = {str(left).lower()}, lower = {str(lower).lower()}, "
        f"unit_diagonal = {str(unit).lower()}, "
        f"transpose_a = #stablehlo<transpose {turned}>"
    )
    results = draft.call(operands, [(draft.dtype, b.shape)], attributes)
    used = np.tril(a) if lower else np.triu(a)
    if unit:
        diagonal = np.einsum("...ii->...i", used)
        diagonal[...] = 1
    used = {"NO_TRANSPOSE": used, "TRANSPOSE": used.swapaxes(-1, -2)}.get(
        turned, used.conj().swapaxes(-1, -2)
    )
    if left:
        solved = np.linalg.solve(used, b)
    else:
        solved = np.linalg.solve(used.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)
    size = float(np.abs(solved).max(initial=1.0)) * float(np.abs(a).max(initial=1.0)) ** 2
    return draft.program(
        results, 0, EPSILON[draft.dtype] * 300 * size, [_bytes(solved.astype(np.complex128), draft.dtype)]
    )


def _fft(draft: Draft) -> OpProgram:
    """All four kinds, over one to three axes; real ones have one dtype of the pair as their operand."""
    real = {"c64": "f32", "c128": "f64"}[draft.dtype]
    rank = draft.number(1, 3)
    if draft.wish.startswith("rank "):
        rank = min(rank, max(int(draft.wish[5:]), 1))
    lengths = tuple(draft.number(1, 9) for _ in range(rank))
    batch = _batch(draft, rank)
    kind = draft.pick(("FFT", "IFFT", "RFFT", "IRFFT"), "fft_type")
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    axes = tuple(range(-rank, 0))
    values = _edged(draft, _random(draft, (*batch, *(half if kind == "IRFFT" else lengths))))
    if kind == "RFFT":
        values = values.real.astype(np.complex128)
    source, target = (real if kind == "RFFT" else draft.dtype), (real if kind == "IRFFT" else draft.dtype)
    transforms = {
        "FFT": lambda: np.fft.fftn(values, axes=axes),
        "IFFT": lambda: np.fft.ifftn(values, axes=axes),
        "RFFT": lambda: np.fft.rfftn(values.real, axes=axes),
        "IRFFT": lambda: np.fft.irfftn(values, lengths, axes=axes),
    }[kind]()
    value = draft.given(values.shape, _bytes(values, source), source)
    attributes = (
        f"fft_type = #stablehlo<fft_type {kind}>, fft_length = array<i64: {', '.join(map(str, lengths))}>"
    )
    shape = (*batch, *(half if kind == "RFFT" else lengths))
    results = draft.call([value], [(target, shape)], attributes)
    loose = EPSILON[draft.dtype] * 20 * math.prod(lengths)
    return draft.program(results, 0, loose, [_bytes(transforms.astype(np.complex128), target)])

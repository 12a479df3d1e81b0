"""The benchmark set of a pack: the cases of ``benchmarks.gpu.cases`` with seeded arguments.

Results are compared at sampled positions with NumPy in f64, which needs the arguments there alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.gpu.cases import Case, cases
from benchmarks.gpu.kit.packing.programs import Argument, Call, Expected, Program, Source, near
from benchmarks.gpu.kit.runtime.values import PERIOD, digest, seeded, seeded_table, wide
from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions

Array = Any

_ROWS, _COLUMNS, _HEADS = 16, 256, 3


@dataclass(frozen=True)
class _Sample:
    """Numbers in f64 at flat positions, and the error that is allowed."""

    positions: Array
    wanted: Array
    rtol: float
    atol: float


def benchmark_set() -> Iterator[Source]:
    """All cases that are timed."""
    for case in cases():
        facts = {"moved": case.moved, "flops": case.flops}
        yield Source(case.name, "benchmarks", case.dtype, partial(_program, case), facts, "speed")


def _program(case: Case) -> Program:
    arguments = tuple(Argument(case.dtype, shape, None, seed) for seed, shape in enumerate(case.shapes, 1))
    return Program(
        lambda target: lower_module(case.program, len(case.shapes), target, CompileOptions(), lambda _: None),
        (Call(arguments, (_expected(case),)),),
    )


def _expected(case: Case) -> Expected:
    family = case.name.partition("/")[0]
    shape = case.shapes[0]
    if family == "matmul":
        shape = (case.shapes[0][0], case.shapes[1][1])
    if family in ("sum", "column_sums"):
        # Rounding errors of f32 sums in parts are a thousandth of that.
        whole = wide(case.dtype, seeded(case.dtype, shape, 1)).sum(0)
        return near(case.dtype, whole, 0.0, 2.0**-12 * math.sqrt(shape[0]))
    if family == "transpose":
        whole = np.ascontiguousarray(seeded(case.dtype, shape, 1).T).tobytes()
        elements = np.frombuffer(whole, seeded_table(case.dtype, 1).dtype)
        at = _drawn(elements.size, _COLUMNS).astype("<i8")
        return Expected(
            case.dtype, shape[::-1], elements[at].tobytes(), positions=at.tobytes(), sha256=digest(whole)
        )
    rng = np.random.default_rng(len(case.name))
    sample = _SAMPLES[family](case, rng)
    positions, numbers = sample.positions.astype("<i8"), sample.wanted.astype("<f4")
    return Expected(
        case.dtype, shape, numbers.tobytes(), "<f4", sample.rtol, sample.atol, positions.tobytes()
    )


def _pointwise(case: Case, rng: np.random.Generator) -> _Sample:
    at = _drawn(math.prod(case.shapes[0]), 4096)
    rtol = 2.0**-8 if case.dtype == "bf16" else 2.0**-23
    numbers = np.maximum(_values(case.dtype, 1, at) + _values(case.dtype, 2, at), 0)
    return _Sample(at, numbers, rtol, 0.0)


def _of_rows(function: Callable[..., Array]) -> Callable[[Case, np.random.Generator], _Sample]:
    """``function`` of some rows, and of the vectors that all rows share."""

    def sample(case: Case, rng: np.random.Generator) -> _Sample:
        count, size = case.shapes[0]
        rows = _picked(count, _ROWS, rng)
        columns = _picked(size, _COLUMNS, rng)
        whole = _values(case.dtype, 1, rows[:, None] * size + np.arange(size))
        shared = [_values(case.dtype, seed, np.arange(size)) for seed in range(2, len(case.shapes) + 1)]
        numbers = function(whole, *shared)[:, columns]
        return _Sample((rows[:, None] * size + columns).ravel(), numbers.ravel(), 1e-5, 1e-5)

    return sample


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _rms_norm(x: Array) -> Array:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)


def _layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    centered = x - x.mean(1, keepdims=True)
    return centered / np.sqrt((centered * centered).mean(1, keepdims=True) + 1e-5) * scale + bias


def _softmax_sample(case: Case, rng: np.random.Generator) -> _Sample:
    sample = _of_rows(_softmax)(case, rng)
    return _Sample(sample.positions, sample.wanted, 1e-5, 0.0)


def _matmul(case: Case, rng: np.random.Generator) -> _Sample:
    (m, k), (_, n) = case.shapes
    rows, columns = _picked(m, _ROWS, rng), _picked(n, _ROWS, rng)
    a = _values(case.dtype, 1, rows[:, None] * k + np.arange(k))
    b = _values(case.dtype, 2, np.arange(k)[:, None] * n + columns)
    at = rows[:, None] * n + columns
    # The result is rounded to bf16; products are added in f32.
    return _Sample(at.ravel(), (a @ b).ravel(), 2.0**-8, 2.0**-20 * k)


def _attention(case: Case, rng: np.random.Generator) -> _Sample:
    _, heads, length, depth = case.shapes[0]
    positions, numbers = list[Array](), list[Array]()
    for head in _picked(heads, _HEADS, rng):
        start = head * length * depth
        rows = _picked(length, _ROWS, rng)
        q = _values(case.dtype, 1, start + rows[:, None] * depth + np.arange(depth))
        k, v = (
            _values(case.dtype, seed, start + np.arange(length * depth)).reshape(length, depth)
            for seed in (2, 3)
        )
        scores = q @ k.T * depth**-0.5
        if case.name.endswith("/causal"):
            scores[np.arange(length) > rows[:, None]] = -np.inf
        numbers.append((_softmax(scores) @ v).ravel())
        positions.append((start + rows[:, None] * depth + np.arange(depth)).ravel())
    wanted = np.concatenate(numbers)
    # Weights and results are rounded to bf16.
    share = 2.0**-6 if case.dtype == "bf16" else 2e-5
    return _Sample(np.concatenate(positions), wanted, 0.0, share * float(np.abs(wanted).max()))


_SAMPLES: dict[str, Callable[[Case, np.random.Generator], _Sample]] = {
    "add_relu": _pointwise,
    "softmax": _softmax_sample,
    "rms_norm": _of_rows(_rms_norm),
    "layer_norm": _of_rows(_layer_norm),
    "matmul": _matmul,
    "attention": _attention,
}


def _values(dtype: str, seed: int, positions: Array) -> Array:
    """Seeded arguments at flat positions, in f64."""
    return _table(dtype, seed)[positions % PERIOD]


@cache
def _table(dtype: str, seed: int) -> Array:
    return wide(dtype, seeded_table(dtype, seed))


def _picked(size: int, count: int, rng: np.random.Generator) -> Array:
    """Distinct indices, ascending, with the first and the last."""
    if count >= size:
        return np.arange(size)
    inner = rng.choice(np.arange(1, size - 1), count - 2, replace=False)
    return np.sort(np.concatenate([[0], inner, [size - 1]]))


def _drawn(size: int, count: int) -> Array:
    return _picked(size, count, np.random.default_rng(size))

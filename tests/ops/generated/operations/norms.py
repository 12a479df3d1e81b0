"""Batch norms, whose oracle is NumPy in f64: the interpreter has none of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.ops.generated import wish
from tests.ops.generated.draft import EPSILON, Draft, Family, Shape, Value
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import FLOATS, decode, encode

_EPSILON = 0.125
Array = npt.NDArray[np.float64]


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "batch_norm_grad": Family(FLOATS, _gradient),
        "batch_norm_inference": Family(FLOATS, _inference),
        "batch_norm_training": Family(FLOATS, _training),
    }


class _Norm(NamedTuple):
    shape: Shape
    row: Shape
    others: tuple[int, ...]
    attributes: str
    absolute: float


def _norm(draft: Draft) -> _Norm:
    shape = tuple(draft.number(1, 5) for _ in range(draft.rank(1, 4)))
    shape = tuple(wish.sizes(draft.wish, [*shape], draft.rng))
    feature = draft.number(0, len(shape) - 1, "feature_index")
    others = tuple(axis for axis in range(len(shape)) if axis != feature)
    attributes = f"epsilon = {_EPSILON} : f32, feature_index = {feature} : i64"
    loose = EPSILON[draft.dtype] * (math.prod(shape) + 10) * 60
    return _Norm(shape, (shape[feature],), others, attributes, loose)


def _argument(draft: Draft, shape: Shape, kind: str = "tame") -> tuple[Value, Array]:
    kind = "finite" if (draft.edge or draft.wish) and kind == "tame" else kind
    value = draft.argument(shape, kind, may="special" if kind == "finite" else kind)
    return value, decode(draft.dtype, np.frombuffer(draft.inputs[-1], _storage(draft))).reshape(shape)


def _storage(draft: Draft) -> str:
    return {"f16": "<u2", "bf16": "<u2", "f32": "<u4", "f64": "<u8"}[draft.dtype]


def _finished(
    draft: Draft, norm: _Norm, values: list[Value], expected: list[Array], scale: float
) -> OpProgram:
    results = draft.call(values, [(draft.dtype, array.shape) for array in expected], norm.attributes)
    answers = [encode(draft.dtype, np.ascontiguousarray(array)).tobytes() for array in expected]
    return draft.program(results, 0, norm.absolute * scale, answers)


def _normalized(norm: _Norm, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    spread = [np.expand_dims(row, norm.others) for row in (scale, offset, mean, variance)]
    return (x - spread[2]) / np.sqrt(spread[3] + _EPSILON) * spread[0] + spread[1]


def _inference(draft: Draft) -> OpProgram:
    norm = _norm(draft)
    arguments = [_argument(draft, norm.shape), *(_argument(draft, norm.row) for _ in range(3))]
    arguments.append(_argument(draft, norm.row, "unit"))
    expected = _normalized(norm, *(array for _, array in arguments))
    return _finished(draft, norm, [value for value, _ in arguments], [expected], 4)


def _training(draft: Draft) -> OpProgram:
    norm = _norm(draft)
    arguments = [_argument(draft, norm.shape), _argument(draft, norm.row), _argument(draft, norm.row)]
    x, scale, offset = (array for _, array in arguments)
    count = np.float64(math.prod(x.shape[axis] for axis in norm.others))
    mean = x.sum(norm.others) / count
    variance = ((x - np.expand_dims(mean, norm.others)) ** 2).sum(norm.others) / count
    expected = [_normalized(norm, x, scale, offset, mean, variance), mean, variance]
    return _finished(draft, norm, [value for value, _ in arguments], expected, 8)


def _gradient(draft: Draft) -> OpProgram:
    norm = _norm(draft)
    arguments = [_argument(draft, norm.shape), _argument(draft, norm.row), _argument(draft, norm.row)]
    arguments += [_argument(draft, norm.row, "unit"), _argument(draft, norm.shape)]
    x, scale, mean, variance, grad = (array for _, array in arguments)
    row, middle, width = (np.expand_dims(array, norm.others) for array in (scale, mean, variance + _EPSILON))
    count = np.float64(math.prod(x.shape[axis] for axis in norm.others))
    centered = x - middle
    product = (grad * centered).sum(norm.others, keepdims=True)
    inner = count * grad - grad.sum(norm.others, keepdims=True) - centered * product / width
    expected = [
        row / np.sqrt(width) / count * inner,
        (grad * centered / np.sqrt(width)).sum(norm.others),
        grad.sum(norm.others),
    ]
    return _finished(draft, norm, [value for value, _ in arguments], expected, 200)

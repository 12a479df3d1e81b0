"""Normalizations and factors of matrices, on dequantized operands; results are quantized."""

from __future__ import annotations

import numpy as np

from tests.ops.generated.quantized.computed import Maker
from tests.ops.generated.quantized.draft import Draft, Value
from tests.ops.generated.quantized.element import EPSILON, Element, Ints, Reals

_EPSILON = 0.125


def families() -> dict[str, Maker]:
    """Maker of each operation."""
    return {
        "batch_norm_grad": _grad,
        "batch_norm_inference": _inference,
        "batch_norm_training": _training,
        "cholesky": _cholesky,
    }


def _feature(draft: Draft) -> tuple[Value, list[Value], int]:
    """An operand of four rows, vectors of its features, and their axis."""
    features, axis = draft.number(1, 4), draft.number(0, 1)
    shape = (4, features) if axis else (features, 4)
    value = draft.value(draft.element(), shape)
    return value, [draft.value(draft.like(value.element), (features,)) for _ in range(4)], axis


def _along(values: Reals, axis: int) -> Reals:
    return values[None, :] if axis else values[:, None]


def _call(
    draft: Draft, values: list[Value], axis: int, results: list[tuple[Element, tuple[int, ...]]]
) -> str:
    attributes = f"epsilon = {_EPSILON} : f32, feature_index = {axis} : i64"
    names, types = ", ".join(value.name for value in values), ", ".join(value.type for value in values)
    result_types = ", ".join(element.tensor(shape) for element, shape in results)
    name = f"%v{len(draft.lines)}"
    many = f":{len(results)}" if len(results) > 1 else ""
    draft.lines.append(
        f'{name}{many} = "stablehlo.{draft.op}"({names}) <{{{attributes}}}> : ({types}) -> ({result_types})'
    )
    return name


def _give(draft: Draft, name: str, element: Element, floats: Reals, sizes: Reals) -> None:
    """``sizes`` are those of the numbers that the result is made of."""
    error = np.where(np.isfinite(sizes), 64 * EPSILON[draft.expressed] * sizes, np.nan)
    free = np.isnan(error) | np.isnan(floats) | np.isinf(floats)
    draft.give(name, element, *element.quantized(np.where(free, np.nan, floats), np.where(free, 0.0, error)))


def _inference(draft: Draft) -> None:
    value, (scale, offset, mean, variance), axis = _feature(draft)
    wanted = draft.like(value.element)
    with np.errstate(all="ignore"):
        a, b, m, v = (_along(vector.real, axis) for vector in (scale, offset, mean, variance))
        deviation = np.sqrt(v + _EPSILON)
        floats = (value.real - m) / deviation * a + b
        sizes = (np.abs(value.real) + np.abs(m)) / deviation * np.abs(a) * (1 + np.abs(v)) + np.abs(b)
    name = _call(draft, [value, scale, offset, mean, variance], axis, [(wanted, value.shape)])
    _give(draft, name, wanted, floats, sizes)


def _training(draft: Draft) -> None:
    value, (scale, offset, _, _), axis = _feature(draft)
    wanted, row, other = draft.like(value.element), draft.like(value.element), draft.like(value.element)
    with np.errstate(all="ignore"):
        mean, variance = value.real.mean(1 - axis), value.real.var(1 - axis)
        a, b, m = (_along(vector, axis) for vector in (scale.real, offset.real, mean))
        deviation = _along(np.sqrt(variance + _EPSILON), axis)
        floats = (value.real - m) / deviation * a + b
        most = np.abs(value.real).max(1 - axis)
        sizes = _along(most * (1 + most), axis) / deviation * np.abs(a) + np.abs(b)
    features = (value.shape[axis],)
    name = _call(
        draft, [value, scale, offset], axis, [(wanted, value.shape), (row, features), (other, features)]
    )
    _give(draft, f"{name}#0", wanted, floats, sizes)
    _give(draft, f"{name}#1", row, mean, most)
    _give(draft, f"{name}#2", other, variance, most * most)


def _grad(draft: Draft) -> None:
    """Of which only the sum of the gradients is simple enough to be compared."""
    value, (scale, _, mean, variance), axis = _feature(draft)
    gradient = draft.value(draft.like(value.element), value.shape)
    first, second, third = (draft.like(value.element) for _ in range(3))
    features = (value.shape[axis],)
    results = [(first, value.shape), (second, features), (third, features)]
    name = _call(draft, [value, scale, mean, variance, gradient], axis, results)
    with np.errstate(all="ignore"):
        floats, sizes = gradient.real.sum(1 - axis), np.abs(gradient.real).sum(1 - axis)
    _give(draft, f"{name}#2", third, floats, sizes)


def _matrix(draft: Draft) -> tuple[Element, Ints, int]:
    """Lower triangular, with a large diagonal."""
    size = draft.number(1, 4)
    element = draft.element(plain=True)
    element = Element(
        element.storage, element.low, element.high, element.expressed, (0.25,), (max(element.low, 0),)
    )
    top = max((element.high - element.zeros[0]) // 2, 1)
    matrix = np.tril(draft.rng.integers(0, 2, (size, size))) + np.diag([top] * size)
    return element, np.clip(matrix + element.zeros[0], element.low, element.high), size


def _cholesky(draft: Draft) -> None:
    element, lower, size = _matrix(draft)
    whole = np.where(np.triu(np.ones((size, size)), 1) > 0, lower.T, lower)
    value = draft.given(element, whole)
    wanted = draft.like(element)
    name = draft.line(
        f'"stablehlo.cholesky"({value.name}) <{{lower = true}}> : '
        f"({value.type}) -> {wanted.tensor(whole.shape)}"
    )
    try:
        floats = np.linalg.cholesky(value.real)
    except np.linalg.LinAlgError:
        floats = np.full(whole.shape, np.nan)
    below = np.tril(np.ones(whole.shape)) > 0
    _give(
        draft, name, wanted, np.where(below, floats, np.nan), np.full(whole.shape, np.abs(value.real).max())
    )

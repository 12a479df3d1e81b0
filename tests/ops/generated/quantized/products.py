"""Products: ``dot_general`` and ``convolution``, of quantized operands or of floats and quantized weights."""

from __future__ import annotations

import math

import numpy as np

from tests.ops.generated.quantized.computed import Maker
from tests.ops.generated.quantized.draft import Draft, Shape, Value
from tests.ops.generated.quantized.element import EPSILON, Element, Reals, rounded
from tests.ops.harness.values import encode


def families() -> dict[str, Maker]:
    """Maker of each operation."""
    return {"convolution": _convolution, "dot": _dot, "dot_general": _dot_general}


def _left(draft: Draft, shape: Shape, hybrid: bool) -> tuple[str, str, Reals]:
    """Floats or a quantized value: name, type and numbers."""
    if not hybrid:
        value = draft.value(draft.element(), shape, None if draft.chance(0.5) else 20)
        return value.name, value.type, value.real
    floats = rounded(draft.expressed, draft.rng.standard_normal(shape))
    type = f"tensor<{''.join(f'{size}x' for size in shape)}{draft.expressed}>"
    return draft.argument(type, encode(draft.expressed, floats).tobytes()), type, floats


def _weights(draft: Draft, shape: Shape, axis: int | None) -> Value:
    """Weights have no zero point."""
    element = draft.element(shape, axis)
    low = min(element.low, 0)
    element = Element(
        element.storage,
        low,
        element.high,
        element.expressed,
        element.scales,
        (0,) * len(element.scales),
        axis,
    )
    return draft.value(element, shape, None if draft.chance(0.5) else 20)


def _give(draft: Draft, name: str, shape: Shape, wanted: Element | None, floats: Reals, sizes: Reals) -> None:
    """``sizes``: the sums of the sizes of the products, which bound what another order is off by."""
    error = sizes * EPSILON[draft.expressed] * 4
    if wanted is None:
        type = f"tensor<{''.join(f'{size}x' for size in shape)}{draft.expressed}>"
        error = error + np.abs(floats) * EPSILON[draft.expressed]
        draft.give_as(name, type, draft.expressed, floats - error, floats + error)
        return
    draft.give(name, wanted, *wanted.quantized(floats, np.where(np.isfinite(floats), error, 0.0)))


def _wanted(draft: Draft, shape: Shape, axis: int | None, hybrid: bool) -> Element | None:
    """The element type of the result, where it is quantized."""
    return None if hybrid else draft.element(shape, axis, draft.pick([draft.storage, "i32", "i16"]))


def _dot_general(draft: Draft) -> None:
    hybrid = draft.chance(0.3)
    batch = tuple(draft.number(1, 3) for _ in range(draft.number(0, 1)))
    m, k, n = draft.number(1, 9), draft.pick([0, 1, 2, 3, 8, 17]), draft.number(1, 9)
    lhs_last, rhs_last = draft.chance(0.5), draft.chance(0.5)
    left_shape = (*batch, m, k) if lhs_last else (*batch, k, m)
    right_shape = (*batch, n, k) if rhs_last else (*batch, k, n)
    first = len(batch)
    rhs_axis = first + (0 if rhs_last else 1)
    per_axis = draft.chance(0.4)
    name, type, left = _left(draft, left_shape, hybrid)
    right = _weights(draft, right_shape, rhs_axis if per_axis else None)
    lhs_contracting, rhs_contracting = first + (1 if lhs_last else 0), first + (1 if rhs_last else 0)
    batches = ", ".join(map(str, range(first)))
    numbers = (
        f"lhs_batching_dimensions = [{batches}], rhs_batching_dimensions = [{batches}], "
        f"lhs_contracting_dimensions = [{lhs_contracting}], rhs_contracting_dimensions = [{rhs_contracting}]"
    )
    shape, axis = (*batch, m, n), len(batch) + 1 if per_axis else None
    wanted = _wanted(draft, shape, axis, hybrid)
    result = draft.line(
        f'"stablehlo.dot_general"({name}, {right.name}) '
        f"<{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}> : "
        f"({type}, {right.type}) -> {_type(draft, shape, wanted)}"
    )
    a = left if lhs_last else np.swapaxes(left, -1, -2)
    b = np.swapaxes(right.real, -1, -2) if rhs_last else right.real
    with np.errstate(all="ignore"):
        floats, sizes = a @ b, np.abs(a) @ np.abs(b) * math.sqrt(k + 1)
    _give(draft, result, shape, wanted, floats, sizes)


def _dot(draft: Draft) -> None:
    """Two matrices in one scale each."""
    m, k, n = draft.number(1, 5), draft.number(1, 5), draft.number(1, 5)
    name, type, left = _left(draft, (m, k), False)
    right = _weights(draft, (k, n), None)
    wanted = draft.element((), None)
    result = draft.line(
        f'"stablehlo.dot"({name}, {right.name}) : ({type}, {right.type}) -> {wanted.tensor((m, n))}'
    )
    with np.errstate(all="ignore"):
        floats, sizes = left @ right.real, np.abs(left) @ np.abs(right.real) * math.sqrt(k + 1)
    _give(draft, result, (m, n), wanted, floats, sizes)


def _type(draft: Draft, shape: Shape, wanted: Element | None) -> str:
    if wanted is None:
        return f"tensor<{''.join(f'{size}x' for size in shape)}{draft.expressed}>"
    return wanted.tensor(shape)


def _convolution(draft: Draft) -> None:
    """Of one spatial axis, padded by what stands for zero, in one group or as many as features."""
    hybrid, per_axis = draft.chance(0.3), draft.chance(0.4)
    batch, length, kernel = draft.number(1, 2), draft.number(1, 8), draft.number(1, 3)
    groups = draft.pick([1, 1, 2])
    inputs, outputs = groups * draft.number(1, 3), groups * draft.number(1, 3)
    stride, low, high = draft.number(1, 2), draft.number(0, 2), draft.number(0, 2)
    size = length + low + high - kernel
    if size < 0:
        low, size = low - size, 0
    shape = (batch, size // stride + 1, outputs)
    name, type, left = _left(draft, (batch, length, inputs), hybrid)
    right = _weights(draft, (kernel, inputs // groups, outputs), 2 if per_axis else None)
    wanted = _wanted(draft, shape, 2 if per_axis else None, hybrid)
    attributes = (
        f"window_strides = array<i64: {stride}>, padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>, "
        "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, "
        f"feature_group_count = {groups} : i64, batch_group_count = 1 : i64"
    )
    result = draft.line(
        f'"stablehlo.convolution"({name}, {right.name}) <{{{attributes}}}> : '
        f"({type}, {right.type}) -> {_type(draft, shape, wanted)}"
    )
    padded = np.pad(left, ((0, 0), (low, high), (0, 0)))
    floats, sizes = np.zeros(shape), np.zeros(shape)
    part, made_by = inputs // groups, outputs // groups
    with np.errstate(all="ignore"):
        for group in range(groups):
            weights = right.real[:, :, group * made_by : (group + 1) * made_by]
            window = padded[:, :, group * part : (group + 1) * part]
            for place in range(shape[1]):
                seen = window[:, place * stride : place * stride + kernel]
                there = slice(group * made_by, (group + 1) * made_by)
                floats[:, place, there] = np.einsum("bki,kio->bo", seen, weights)
                sizes[:, place, there] = np.einsum("bki,kio->bo", np.abs(seen), np.abs(weights))
    _give(draft, result, shape, wanted, floats, sizes * math.sqrt(kernel * part + 1))

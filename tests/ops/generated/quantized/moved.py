"""Operations that pass elements on: their integers stay what they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.ops.generated.quantized.computed import Maker
from tests.ops.generated.quantized.draft import Draft, Shape, Value
from tests.ops.generated.quantized.element import Ints


def families() -> dict[str, Maker]:
    """Maker of each operation."""
    return {
        "bitcast_convert": _bitcast,
        "broadcast_in_dim": _broadcast,
        "concatenate": _concatenate,
        "constant": _constant,
        "dynamic_broadcast_in_dim": _dynamic_broadcast,
        "dynamic_pad": _dynamic_pad,
        "dynamic_reshape": _dynamic_reshape,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
        "gather": _gather,
        "get_dimension_size": _get_dimension_size,
        "optimization_barrier": _barrier,
        "pad": _pad,
        "real_dynamic_slice": _real_dynamic_slice,
        "reshape": _reshape,
        "reverse": _reverse,
        "slice": _slice,
        "transpose": _transpose,
        "tuple": _tuple,
    }


def array(numbers: Sequence[int]) -> str:
    """An array attribute."""
    return f"array<i64: {', '.join(map(str, numbers))}>" if len(numbers) else "array<i64>"


def _axis(draft: Draft, shape: Shape) -> int | None:
    axes = [axis for axis, size in enumerate(shape) if size]
    return draft.pick(axes) if axes and draft.chance(0.5) else None


def _given(draft: Draft, low: int = 0, per_axis: bool = False) -> Value:
    shape = draft.shape(low)
    return draft.value(draft.element(shape, _axis(draft, shape) if per_axis else None), shape)


def _call(draft: Draft, operands: str, attributes: str, types: str, result: str) -> str:
    inherent = f" <{{{attributes}}}>" if attributes else ""
    return draft.line(f'"stablehlo.{draft.op}"({operands}){inherent} : ({types}) -> {result}')


def _same(draft: Draft, value: Value, attributes: str, integers: Ints) -> None:
    """One operand, a result of its element type."""
    name = _call(draft, value.name, attributes, value.type, value.element.tensor(integers.shape))
    draft.give(name, value.element, integers)


def _bitcast(draft: Draft) -> None:
    value = _given(draft, per_axis=True)
    bits = f"tensor<{''.join(f'{size}x' for size in value.shape)}ui{value.element.width}>"
    name = _call(draft, value.name, "", value.type, bits)
    whole = value.integers % (1 << value.element.width)
    draft.give_as(name, bits, f"u{value.element.width}", whole, whole)
    draft.give(_call(draft, name, "", bits, value.type), value.element, value.integers)


def _broadcast(draft: Draft) -> None:
    shape = tuple(draft.number(1, 4) for _ in range(draft.number(0, 2)))
    value = draft.value(draft.element(shape, _axis(draft, shape)), shape)
    rank = len(shape) + draft.number(0, 2)
    dims = sorted(int(axis) for axis in draft.rng.permutation(rank)[: len(shape)])
    sizes = [draft.number(1, 4) for _ in range(rank)]
    between = [1] * rank
    for axis, dim in enumerate(dims):
        sizes[dim] = shape[axis] if shape[axis] != 1 or axis == value.element.axis else sizes[dim]
        between[dim] = shape[axis]
    axis = value.element.axis
    wanted = value.element.along(None if axis is None else dims[axis])
    result = np.broadcast_to(value.integers.reshape(between), sizes)
    name = _call(
        draft, value.name, f"broadcast_dimensions = {array(dims)}", value.type, wanted.tensor(result.shape)
    )
    draft.give(name, wanted, result)


def _concatenate(draft: Draft) -> None:
    first = _given(draft, 1)
    axis = draft.number(0, len(first.shape) - 1)
    parts = [first]
    for _ in range(draft.number(0, 2)):
        sizes = list(first.shape)
        sizes[axis] = draft.number(0, 4)
        parts.append(draft.value(first.element, tuple(sizes)))
    result = np.concatenate([part.integers for part in parts], axis)
    name = _call(
        draft,
        ", ".join(part.name for part in parts),
        f"dimension = {axis} : i64",
        ", ".join(part.type for part in parts),
        first.element.tensor(result.shape),
    )
    draft.give(name, first.element, result)


def _constant(draft: Draft) -> None:
    """Of one number, of few and of many."""
    element = draft.element()
    shape = draft.pick([(), (3,), (2, 2), (700,)])
    splat = draft.chance(0.3)
    numbers = draft.integers(element, (1,) if splat else (math.prod(shape),)).ravel()
    half = 1 << element.width - 1
    stored = (numbers + half) % (2 * half) - half
    inner = str(stored[0]) if splat else str(stored.reshape(shape).tolist())
    sizes = "".join(f"{size}x" for size in shape)
    type = element.tensor(shape)
    name = draft.line(
        f'"stablehlo.constant"() <{{value = dense<{inner}> : tensor<{sizes}i{element.width}>}}> '
        f": () -> {type}"
    )
    integers = np.broadcast_to(numbers[0], shape) if splat else numbers.reshape(shape)
    draft.give(name, element, np.asarray(integers))


def _index(draft: Draft, number: int) -> str:
    return draft.argument("tensor<i32>", np.array(number, "<i4").tobytes())


def _dynamic_slice(draft: Draft) -> None:
    value = _given(draft, 1)
    sizes = [draft.number(0, size) for size in value.shape]
    starts = [draft.number(-1, size + 1) for size in value.shape]
    held = [min(max(at, 0), size - taken) for at, size, taken in zip(starts, value.shape, sizes, strict=True)]
    result = value.integers[tuple(slice(at, at + taken) for at, taken in zip(held, sizes, strict=True))]
    names = ", ".join([value.name, *(_index(draft, at) for at in starts)])
    types = ", ".join([value.type, *["tensor<i32>"] * len(starts)])
    name = _call(draft, names, f"slice_sizes = {array(sizes)}", types, value.element.tensor(result.shape))
    draft.give(name, value.element, result)


def _dynamic_update_slice(draft: Draft) -> None:
    value = _given(draft, 1)
    sizes = tuple(draft.number(0, size) for size in value.shape)
    update = draft.value(value.element, sizes)
    starts = [draft.number(-1, size + 1) for size in value.shape]
    held = [min(max(at, 0), size - taken) for at, size, taken in zip(starts, value.shape, sizes, strict=True)]
    result = value.integers.copy()
    result[tuple(slice(at, at + taken) for at, taken in zip(held, sizes, strict=True))] = update.integers
    names = ", ".join([value.name, update.name, *(_index(draft, at) for at in starts)])
    types = ", ".join([value.type, update.type, *["tensor<i32>"] * len(starts)])
    draft.give(_call(draft, names, "", types, value.type), value.element, result)


def _numbers(draft: Draft, numbers: Sequence[int]) -> str:
    inner = f"[{', '.join(map(str, numbers))}]" if numbers else ""
    return draft.line(f"stablehlo.constant dense<{inner}> : tensor<{len(numbers)}xi64>")


def _stated(
    draft: Draft, value: Value, vectors: Sequence[Sequence[int]], integers: Ints, more: str = ""
) -> None:
    """An operation whose sizes are operands, and stated."""
    names = ", ".join(
        [value.name, *([more] if more else []), *(_numbers(draft, vector) for vector in vectors)]
    )
    scalar = [value.element.tensor(())] if more else []
    types = ", ".join([value.type, *scalar, *(f"tensor<{len(vector)}xi64>" for vector in vectors)])
    result = value.element.tensor(integers.shape)
    inherent = f"broadcast_dimensions = {array([1])}" if draft.op == "dynamic_broadcast_in_dim" else ""
    draft.give(_call(draft, names, inherent, types, result), value.element, integers)


def _dynamic_broadcast(draft: Draft) -> None:
    value, rows = draft.value(draft.element(), (draft.number(1, 4),)), draft.number(1, 3)
    result = np.broadcast_to(value.integers, (rows, *value.shape))
    _stated(draft, value, [result.shape], result)


def _dynamic_reshape(draft: Draft) -> None:
    value = _given(draft, 1)
    result = value.integers.reshape(-1)
    _stated(draft, value, [result.shape], result)


def _dynamic_pad(draft: Draft) -> None:
    operand = draft.value(draft.element(), (draft.number(1, 5),))
    value = draft.value(operand.element, ())
    low, high = draft.number(0, 2), draft.number(0, 2)
    result = np.pad(operand.integers, (low, high), constant_values=value.integers)
    _stated(draft, operand, [[low], [high], [0]], result, value.name)


def _real_dynamic_slice(draft: Draft) -> None:
    value = draft.value(draft.element(), (draft.number(1, 9),))
    start, stride = draft.number(0, value.shape[0]), draft.number(1, 2)
    result = value.integers[start::stride]
    _stated(draft, value, [[start], [value.shape[0]], [stride]], result)


def _gather(draft: Draft) -> None:
    """Rows by their numbers."""
    rows, columns, count = draft.number(1, 6), draft.number(0, 4), draft.number(0, 5)
    value = draft.value(draft.element(), (rows, columns))
    chosen = draft.rng.integers(-1, rows + 1, count)
    names = f"{value.name}, {draft.argument(f'tensor<{count}xi32>', chosen.astype('<i4').tobytes())}"
    attributes = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, "
        f"slice_sizes = {array([1, columns])}"
    )
    result = value.integers[np.clip(chosen, 0, rows - 1)]
    types = f"{value.type}, tensor<{count}xi32>"
    draft.give(
        _call(draft, names, attributes, types, value.element.tensor(result.shape)), value.element, result
    )


def _get_dimension_size(draft: Draft) -> None:
    value = _given(draft, 1, per_axis=True)
    axis = draft.number(0, len(value.shape) - 1)
    name = _call(draft, value.name, f"dimension = {axis} : i64", value.type, "tensor<i32>")
    result = np.array(value.shape[axis], np.int64)
    draft.give_as(name, "tensor<i32>", "i32", result, result)
    draft.give(value.name, value.element, value.integers)


def _barrier(draft: Draft) -> None:
    value = _given(draft)
    _same(draft, value, "", value.integers)


def _pad(draft: Draft) -> None:
    operand = _given(draft, 1)
    value = draft.value(operand.element, ())
    low = [draft.number(0, 2) for _ in operand.shape]
    high = [draft.number(-1, 2) if size > 1 else draft.number(0, 2) for size in operand.shape]
    inner = [draft.number(0, 1) for _ in operand.shape]
    spread = [size + max(size - 1, 0) * gap for size, gap in zip(operand.shape, inner, strict=True)]
    result = np.full(spread, value.integers)
    result[tuple(slice(None, None, gap + 1) for gap in inner)] = operand.integers
    cut = [min(edge, 0) for edge in high]
    result = result[tuple(slice(0, size + edge) for size, edge in zip(spread, cut, strict=True))]
    result = np.pad(
        result, [(a, max(b, 0)) for a, b in zip(low, high, strict=True)], constant_values=value.integers
    )
    attributes = (
        f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, "
        f"interior_padding = {array(inner)}"
    )
    name = _call(
        draft,
        f"{operand.name}, {value.name}",
        attributes,
        f"{operand.type}, {value.type}",
        operand.element.tensor(result.shape),
    )
    draft.give(name, operand.element, result)


def _reshape(draft: Draft) -> None:
    """Units in front, or all in one row where no axis is meant."""
    value = _given(draft, per_axis=True)
    axis = value.element.axis
    if axis is None and draft.chance(0.5):
        result = value.integers.reshape(-1)
        _same(draft, value, "", result)
        return
    units = draft.number(0, 2)
    result = value.integers.reshape((1,) * units + value.shape)
    wanted = value.element.along(None if axis is None else axis + units)
    draft.give(_call(draft, value.name, "", value.type, wanted.tensor(result.shape)), wanted, result)


def _reverse(draft: Draft) -> None:
    value = _given(draft)
    axes = [axis for axis in range(len(value.shape)) if draft.chance(0.5)]
    _same(draft, value, f"dimensions = {array(axes)}", np.flip(value.integers, tuple(axes)))


def _slice(draft: Draft) -> None:
    value = _given(draft, 1)
    starts = [draft.number(0, size) for size in value.shape]
    limits = [draft.number(start, size) for start, size in zip(starts, value.shape, strict=True)]
    strides = [draft.number(1, 3) for _ in value.shape]
    places = tuple(slice(*bounds) for bounds in zip(starts, limits, strides, strict=True))
    attributes = (
        f"start_indices = {array(starts)}, limit_indices = {array(limits)}, strides = {array(strides)}"
    )
    _same(draft, value, attributes, value.integers[places])


def _transpose(draft: Draft) -> None:
    value = _given(draft, per_axis=True)
    order = [int(axis) for axis in draft.rng.permutation(len(value.shape))]
    axis = value.element.axis
    wanted = value.element.along(None if axis is None else order.index(axis))
    result = np.transpose(value.integers, order)
    name = _call(draft, value.name, f"permutation = {array(order)}", value.type, wanted.tensor(result.shape))
    draft.give(name, wanted, result)


def _tuple(draft: Draft) -> None:
    first, second = _given(draft, per_axis=True), _given(draft)
    both = f"tuple<{first.type}, {second.type}>"
    pair = _call(draft, f"{first.name}, {second.name}", "", f"{first.type}, {second.type}", both)
    name = draft.line(
        f'"stablehlo.get_tuple_element"({pair}) <{{index = 1 : i32}}> : ({both}) -> {second.type}'
    )
    draft.give(name, second.element, second.integers)


Function = Callable[[Ints, Ints], Ints]

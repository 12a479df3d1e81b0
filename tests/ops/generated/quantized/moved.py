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


def _same(draft: Draft, given: Value, attributes: str, found: Ints) -> None:
    """One operand, a result of its element type."""
    name = _call(draft, given.name, attributes, given.type, given.element.tensor(found.shape))
    draft.give(name, given.element, found)


def _bitcast(draft: Draft) -> None:
    given = _given(draft, per_axis=True)
    bits = f"tensor<{''.join(f'{size}x' for size in given.shape)}ui{given.element.width}>"
    name = _call(draft, given.name, "", given.type, bits)
    whole = given.integers % (1 << given.element.width)
    draft.give_as(name, bits, f"u{given.element.width}", whole, whole)
    draft.give(_call(draft, name, "", bits, given.type), given.element, given.integers)


def _broadcast(draft: Draft) -> None:
    shape = tuple(draft.number(1, 4) for _ in range(draft.number(0, 2)))
    given = draft.value(draft.element(shape, _axis(draft, shape)), shape)
    rank = len(shape) + draft.number(0, 2)
    dims = sorted(int(axis) for axis in draft.rng.permutation(rank)[: len(shape)])
    sizes = [draft.number(1, 4) for _ in range(rank)]
    between = [1] * rank
    for axis, dim in enumerate(dims):
        sizes[dim] = shape[axis] if shape[axis] != 1 or axis == given.element.axis else sizes[dim]
        between[dim] = shape[axis]
    axis = given.element.axis
    wanted = given.element.along(None if axis is None else dims[axis])
    found = np.broadcast_to(given.integers.reshape(between), sizes)
    name = _call(
        draft, given.name, f"broadcast_dimensions = {array(dims)}", given.type, wanted.tensor(found.shape)
    )
    draft.give(name, wanted, found)


def _concatenate(draft: Draft) -> None:
    first = _given(draft, 1)
    axis = draft.number(0, len(first.shape) - 1)
    parts = [first]
    for _ in range(draft.number(0, 2)):
        sizes = list(first.shape)
        sizes[axis] = draft.number(0, 4)
        parts.append(draft.value(first.element, tuple(sizes)))
    found = np.concatenate([part.integers for part in parts], axis)
    name = _call(
        draft,
        ", ".join(part.name for part in parts),
        f"dimension = {axis} : i64",
        ", ".join(part.type for part in parts),
        first.element.tensor(found.shape),
    )
    draft.give(name, first.element, found)


def _constant(draft: Draft) -> None:
    """Of one number, of few and of many."""
    element = draft.element()
    shape = draft.pick([(), (3,), (2, 2), (700,)])
    one = draft.chance(0.3)
    numbers = draft.integers(element, (1,) if one else (math.prod(shape),)).ravel()
    half = 1 << element.width - 1
    stored = (numbers + half) % (2 * half) - half
    inner = str(stored[0]) if one else str(stored.reshape(shape).tolist())
    sizes = "".join(f"{size}x" for size in shape)
    type = element.tensor(shape)
    name = draft.line(
        f'"stablehlo.constant"() <{{value = dense<{inner}> : tensor<{sizes}i{element.width}>}}> '
        f": () -> {type}"
    )
    found = np.broadcast_to(numbers[0], shape) if one else numbers.reshape(shape)
    draft.give(name, element, np.asarray(found))


def _index(draft: Draft, number: int) -> str:
    return draft.argument("tensor<i32>", np.array(number, "<i4").tobytes())


def _dynamic_slice(draft: Draft) -> None:
    given = _given(draft, 1)
    sizes = [draft.number(0, size) for size in given.shape]
    starts = [draft.number(-1, size + 1) for size in given.shape]
    held = [min(max(at, 0), size - taken) for at, size, taken in zip(starts, given.shape, sizes, strict=True)]
    found = given.integers[tuple(slice(at, at + taken) for at, taken in zip(held, sizes, strict=True))]
    names = ", ".join([given.name, *(_index(draft, at) for at in starts)])
    types = ", ".join([given.type, *["tensor<i32>"] * len(starts)])
    name = _call(draft, names, f"slice_sizes = {array(sizes)}", types, given.element.tensor(found.shape))
    draft.give(name, given.element, found)


def _dynamic_update_slice(draft: Draft) -> None:
    given = _given(draft, 1)
    sizes = tuple(draft.number(0, size) for size in given.shape)
    update = draft.value(given.element, sizes)
    starts = [draft.number(-1, size + 1) for size in given.shape]
    held = [min(max(at, 0), size - taken) for at, size, taken in zip(starts, given.shape, sizes, strict=True)]
    found = given.integers.copy()
    found[tuple(slice(at, at + taken) for at, taken in zip(held, sizes, strict=True))] = update.integers
    names = ", ".join([given.name, update.name, *(_index(draft, at) for at in starts)])
    types = ", ".join([given.type, update.type, *["tensor<i32>"] * len(starts)])
    draft.give(_call(draft, names, "", types, given.type), given.element, found)


def _numbers(draft: Draft, numbers: Sequence[int]) -> str:
    inner = f"[{', '.join(map(str, numbers))}]" if numbers else ""
    return draft.line(f"stablehlo.constant dense<{inner}> : tensor<{len(numbers)}xi64>")


def _stated(
    draft: Draft, given: Value, vectors: Sequence[Sequence[int]], found: Ints, more: str = ""
) -> None:
    """An operation whose sizes are operands, and stated."""
    names = ", ".join([given.name, *([more] if more else []), *(_numbers(draft, one) for one in vectors)])
    scalar = [given.element.tensor(())] if more else []
    types = ", ".join([given.type, *scalar, *(f"tensor<{len(one)}xi64>" for one in vectors)])
    result = given.element.tensor(found.shape)
    inherent = f"broadcast_dimensions = {array([1])}" if draft.op == "dynamic_broadcast_in_dim" else ""
    draft.give(_call(draft, names, inherent, types, result), given.element, found)


def _dynamic_broadcast(draft: Draft) -> None:
    given, rows = draft.value(draft.element(), (draft.number(1, 4),)), draft.number(1, 3)
    found = np.broadcast_to(given.integers, (rows, *given.shape))
    _stated(draft, given, [found.shape], found)


def _dynamic_reshape(draft: Draft) -> None:
    given = _given(draft, 1)
    found = given.integers.reshape(-1)
    _stated(draft, given, [found.shape], found)


def _dynamic_pad(draft: Draft) -> None:
    given = draft.value(draft.element(), (draft.number(1, 5),))
    value = draft.value(given.element, ())
    low, high = draft.number(0, 2), draft.number(0, 2)
    found = np.pad(given.integers, (low, high), constant_values=value.integers)
    _stated(draft, given, [[low], [high], [0]], found, value.name)


def _real_dynamic_slice(draft: Draft) -> None:
    given = draft.value(draft.element(), (draft.number(1, 9),))
    start, stride = draft.number(0, given.shape[0]), draft.number(1, 2)
    found = given.integers[start::stride]
    _stated(draft, given, [[start], [given.shape[0]], [stride]], found)


def _gather(draft: Draft) -> None:
    """Rows by their numbers."""
    rows, columns, count = draft.number(1, 6), draft.number(0, 4), draft.number(0, 5)
    given = draft.value(draft.element(), (rows, columns))
    chosen = draft.rng.integers(-1, rows + 1, count)
    names = f"{given.name}, {draft.argument(f'tensor<{count}xi32>', chosen.astype('<i4').tobytes())}"
    attributes = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, "
        f"slice_sizes = {array([1, columns])}"
    )
    found = given.integers[np.clip(chosen, 0, rows - 1)]
    types = f"{given.type}, tensor<{count}xi32>"
    draft.give(
        _call(draft, names, attributes, types, given.element.tensor(found.shape)), given.element, found
    )


def _get_dimension_size(draft: Draft) -> None:
    given = _given(draft, 1, per_axis=True)
    axis = draft.number(0, len(given.shape) - 1)
    name = _call(draft, given.name, f"dimension = {axis} : i64", given.type, "tensor<i32>")
    found = np.array(given.shape[axis], np.int64)
    draft.give_as(name, "tensor<i32>", "i32", found, found)
    draft.give(given.name, given.element, given.integers)


def _barrier(draft: Draft) -> None:
    given = _given(draft)
    _same(draft, given, "", given.integers)


def _pad(draft: Draft) -> None:
    given = _given(draft, 1)
    value = draft.value(given.element, ())
    low = [draft.number(0, 2) for _ in given.shape]
    high = [draft.number(-1, 2) if size > 1 else draft.number(0, 2) for size in given.shape]
    inner = [draft.number(0, 1) for _ in given.shape]
    spread = [size + max(size - 1, 0) * gap for size, gap in zip(given.shape, inner, strict=True)]
    found = np.full(spread, value.integers)
    found[tuple(slice(None, None, gap + 1) for gap in inner)] = given.integers
    cut = [min(edge, 0) for edge in high]
    found = found[tuple(slice(0, size + edge) for size, edge in zip(spread, cut, strict=True))]
    found = np.pad(
        found, [(a, max(b, 0)) for a, b in zip(low, high, strict=True)], constant_values=value.integers
    )
    attributes = (
        f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, "
        f"interior_padding = {array(inner)}"
    )
    name = _call(
        draft,
        f"{given.name}, {value.name}",
        attributes,
        f"{given.type}, {value.type}",
        given.element.tensor(found.shape),
    )
    draft.give(name, given.element, found)


def _reshape(draft: Draft) -> None:
    """Units in front, or all in one row where no axis is meant."""
    given = _given(draft, per_axis=True)
    axis = given.element.axis
    if axis is None and draft.chance(0.5):
        found = given.integers.reshape(-1)
        _same(draft, given, "", found)
        return
    units = draft.number(0, 2)
    found = given.integers.reshape((1,) * units + given.shape)
    wanted = given.element.along(None if axis is None else axis + units)
    draft.give(_call(draft, given.name, "", given.type, wanted.tensor(found.shape)), wanted, found)


def _reverse(draft: Draft) -> None:
    given = _given(draft)
    axes = [axis for axis in range(len(given.shape)) if draft.chance(0.5)]
    _same(draft, given, f"dimensions = {array(axes)}", np.flip(given.integers, tuple(axes)))


def _slice(draft: Draft) -> None:
    given = _given(draft, 1)
    starts = [draft.number(0, size) for size in given.shape]
    limits = [draft.number(start, size) for start, size in zip(starts, given.shape, strict=True)]
    strides = [draft.number(1, 3) for _ in given.shape]
    places = tuple(slice(*one) for one in zip(starts, limits, strides, strict=True))
    attributes = (
        f"start_indices = {array(starts)}, limit_indices = {array(limits)}, strides = {array(strides)}"
    )
    _same(draft, given, attributes, given.integers[places])


def _transpose(draft: Draft) -> None:
    given = _given(draft, per_axis=True)
    order = [int(axis) for axis in draft.rng.permutation(len(given.shape))]
    axis = given.element.axis
    wanted = given.element.along(None if axis is None else order.index(axis))
    found = np.transpose(given.integers, order)
    name = _call(draft, given.name, f"permutation = {array(order)}", given.type, wanted.tensor(found.shape))
    draft.give(name, wanted, found)


def _tuple(draft: Draft) -> None:
    first, second = _given(draft, per_axis=True), _given(draft)
    both = f"tuple<{first.type}, {second.type}>"
    made = _call(draft, f"{first.name}, {second.name}", "", f"{first.type}, {second.type}", both)
    name = draft.line(
        f'"stablehlo.get_tuple_element"({made}) <{{index = 1 : i32}}> : ({both}) -> {second.type}'
    )
    draft.give(name, second.element, second.integers)


Function = Callable[[Ints, Ints], Ints]

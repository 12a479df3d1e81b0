"""Operations that move elements."""

from __future__ import annotations

import math

from tests.ops.generated.draft import Draft, Family, Maker, Shape, Value, integers
from tests.ops.harness.compare import BITS
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import ALL, NUMBERS


def families() -> dict[str, Family]:
    """Every operation of this file."""
    every = {
        "broadcast": _broadcast,
        "broadcast_in_dim": _broadcast_in_dim,
        "concatenate": _concatenate,
        "dynamic_broadcast_in_dim": _dynamic_broadcast,
        "dynamic_pad": _dynamic_pad,
        "dynamic_reshape": _dynamic_reshape,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
        "get_dimension_size": _dimension_size,
        "optimization_barrier": _barrier,
        "pad": _pad,
        "real_dynamic_slice": _real_dynamic_slice,
        "reshape": _reshape,
        "reverse": _reverse,
        "slice": _slice,
        "transpose": _transpose,
        "tuple": _tuple,
    }
    table = {op: Family(ALL, _moving(make)) for op, make in every.items()}
    return table | {"iota": Family(NUMBERS, _iota), "dynamic_iota": Family(NUMBERS, _dynamic_iota)}


def _moving(make: Maker) -> Maker:
    """What only moves keeps every bit, those of NaN too."""

    def bit_exact(draft: Draft) -> OpProgram:
        program = make(draft)
        program.ulps = BITS
        return program

    return bit_exact


def _broadcast(draft: Draft) -> OpProgram:
    shape, sizes = draft.shape(0, 2, 40), _added(draft)
    value = draft.argument(shape, "bits")
    result = (*sizes, *shape)
    results = draft.call([value], [(draft.dtype, result)], f"broadcast_sizes = {integers(sizes)}")
    dims = f"broadcast_dimensions = {integers(range(len(sizes), len(result)))}"
    return draft.instead(draft.program(results), [value], (draft.dtype, result), dims, "broadcast_in_dim")


def _added(draft: Draft) -> Shape:
    if not draft.wish:
        return draft.shape(0, 2, 12)
    none = draft.wished("broadcast_sizes") == "none"
    return tuple(draft.number(0, 4, "broadcast_sizes") for _ in range(0 if none else draft.number(1, 2)))


def _spread(draft: Draft) -> tuple[Shape, Shape, list[int]]:
    """Shapes of a value and of its broadcast, and where its axes are."""
    result = draft.shape(0, 4)
    dims = draft.axes(len(result), name="broadcast_dimensions")
    shape = tuple(1 if draft.chance(0.3) else result[dim] for dim in dims)
    return shape, result, dims


def _broadcast_in_dim(draft: Draft) -> OpProgram:
    shape, result, dims = _spread(draft)
    value = draft.argument(shape, "bits")
    return draft.program(
        draft.call([value], [(draft.dtype, result)], f"broadcast_dimensions = {integers(dims)}")
    )


def _dynamic_broadcast(draft: Draft) -> OpProgram:
    shape, result, dims = _spread(draft)
    value = draft.argument(shape, "bits")
    sizes = draft.numbers(result, draft.pick(("i32", "i64")))
    attributes = f"broadcast_dimensions = {integers(dims)}"
    if draft.edge or "known_" in draft.wish:
        same = [axis for axis, dim in enumerate(dims) if shape[axis] == result[dim] and draft.chance(0.7)]
        wider = [axis for axis in range(len(dims)) if axis not in same and draft.chance(0.7)]
        attributes += f", known_expanding_dimensions = {integers(wider)}"
        attributes += f", known_nonexpanding_dimensions = {integers(same)}"
    return draft.program(draft.call([value, sizes], [(draft.dtype, result)], attributes))


def _concatenate(draft: Draft) -> OpProgram:
    shape = draft.shape(1, 3, 80)
    axis = draft.number(0, len(shape) - 1, "dimension")
    parts = [(*shape[:axis], draft.size(), *shape[axis + 1 :]) for _ in range(draft.number(1, 6))]
    values = [draft.argument(part, "bits") for part in parts]
    whole = (*shape[:axis], sum(part[axis] for part in parts), *shape[axis + 1 :])
    return draft.program(draft.call(values, [(draft.dtype, whole)], f"dimension = {axis} : i64"))


def _padding(draft: Draft, shape: Shape) -> tuple[list[int], list[int], list[int], Shape]:
    often = 0.9 if draft.wished("interior_padding") else 0.4
    interior = [draft.number(0, 2, "interior_padding") if draft.chance(often) else 0 for _ in shape]
    spaced = [size + max(size - 1, 0) * inner for size, inner in zip(shape, interior, strict=True)]
    low = [draft.number(-2, 3, "edge_padding_low") for _ in shape]
    high = [
        max(draft.number(-2, 3, "edge_padding_high"), -size - before)
        for size, before in zip(spaced, low, strict=True)
    ]
    result = tuple(map(sum, zip(low, spaced, high, strict=True)))
    return low, high, interior, result


def _pad(draft: Draft) -> OpProgram:
    shape = draft.shape(0, 3, 60)
    low, high, interior, result = _padding(draft, shape)
    attributes = (
        f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
        f"interior_padding = {integers(interior)}"
    )
    value, fill = draft.argument(shape, "bits"), draft.argument((), "bits")
    return draft.program(draft.call([value, fill], [(draft.dtype, result)], attributes))


def _dynamic_pad(draft: Draft) -> OpProgram:
    shape = draft.shape(draft.scalar_or(1), 3, 60)
    *amounts, result = _padding(draft, shape)
    value, fill = draft.argument(shape, "bits"), draft.argument((), "bits")
    index = draft.pick(("i32", "i64"))
    vectors = [draft.numbers(sizes, index) for sizes in amounts]
    return draft.program(draft.call([value, fill, *vectors], [(draft.dtype, result)]))


def _factors(draft: Draft, count: int) -> Shape:
    """Another shape of as many elements."""
    if count == 0:
        return draft.pick(((0,), (0, 3), (2, 0, 1)))
    sizes: list[int] = []
    while count > 1 and len(sizes) < 3:
        divisor = draft.pick([number for number in range(1, count + 1) if count % number == 0])
        sizes.append(divisor)
        count //= divisor
    return (*sizes, count) if count > 1 or draft.chance(0.3) else tuple(sizes)


def _reshape(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    return draft.program(draft.call([value], [(draft.dtype, _factors(draft, math.prod(value.shape)))]))


def _dynamic_reshape(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    result = _factors(draft, math.prod(value.shape))
    return draft.program(
        draft.call([value, draft.numbers(result, draft.pick(("i32", "i64")))], [(draft.dtype, result)])
    )


def _reverse(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    dims = integers(draft.axes(len(value.shape), name="dimensions"))
    return draft.program(draft.call([value], [(draft.dtype, value.shape)], f"dimensions = {dims}"))


def _transpose(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    order = draft.axes(len(value.shape), len(value.shape), "permutation")
    result = tuple(value.shape[axis] for axis in order)
    return draft.program(draft.call([value], [(draft.dtype, result)], f"permutation = {integers(order)}"))


def _ranges(draft: Draft, shape: Shape) -> tuple[list[int], list[int], list[int], Shape]:
    starts = [draft.number(0, size, "start_indices") for size in shape]
    limits = [draft.number(start, size, "limit_indices") for start, size in zip(starts, shape, strict=True)]
    strides = [draft.number(1, 3, "strides") for _ in shape]
    sizes = [-(-(limit - start) // step) for start, limit, step in zip(starts, limits, strides, strict=True)]
    return starts, limits, strides, tuple(sizes)


def _slice(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    starts, limits, strides, result = _ranges(draft, value.shape)
    return draft.program(draft.call([value], [(draft.dtype, result)], _stated(starts, limits, strides)))


def _stated(starts: list[int], limits: list[int], strides: list[int]) -> str:
    named = {"start_indices": starts, "limit_indices": limits, "strides": strides}
    return ", ".join(f"{name} = {integers(numbers)}" for name, numbers in named.items())


def _real_dynamic_slice(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(draft.scalar_or(1)), "bits")
    starts, limits, strides, result = _ranges(draft, value.shape)
    index = draft.pick(("i32", "i64"))
    vectors = [draft.numbers(numbers, index) for numbers in (starts, limits, strides)]
    results = draft.call([value, *vectors], [(draft.dtype, result)])
    stated = _stated(starts, limits, strides)
    return draft.instead(draft.program(results), [value], (draft.dtype, result), stated, "slice")


_INDEX = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")


def _start(draft: Draft, index: str) -> Value:
    """The interpreter reads large unsigned indices as negative ones, which the specification does not."""
    return draft.argument((), "small" if index.startswith("ui") else draft.pick(("any", "small")), index)


def _dynamic_slice(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    sizes = tuple(draft.number(0, size, "slice_sizes") for size in value.shape)
    index = draft.pick(_INDEX, "index")
    starts = [_start(draft, index) for _ in sizes]
    results = draft.call([value, *starts], [(draft.dtype, sizes)], f"slice_sizes = {integers(sizes)}")
    return draft.program(
        results, expected=None if sizes else draft.inputs[:1]
    )  # the interpreter has no scalars


def _dynamic_update_slice(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(), "bits")
    update = draft.argument(tuple(draft.number(0, size) for size in value.shape), "bits")
    index = draft.pick(_INDEX, "index")
    starts = [_start(draft, index) for _ in value.shape]
    return draft.program(draft.call([value, update, *starts], [(draft.dtype, value.shape)]))


def _iota(draft: Draft) -> OpProgram:
    shape = draft.shape(1)
    axis = draft.number(0, len(shape) - 1, "iota_dimension")
    draft.argument(())
    return draft.program(draft.call([], [(draft.dtype, shape)], f"iota_dimension = {axis} : i64"))


def _dynamic_iota(draft: Draft) -> OpProgram:
    shape = draft.shape(1)
    axis = draft.number(0, len(shape) - 1, "iota_dimension")
    draft.argument(())
    results = draft.call(
        [draft.numbers(shape, draft.pick(("i32", "i64")))],
        [(draft.dtype, shape)],
        f"iota_dimension = {axis} : i64",
    )
    return draft.program(results)


def _dimension_size(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape(1), "bits")
    axis = draft.number(0, len(value.shape) - 1, "dimension")
    return draft.program(draft.call([value], [("i32", ())], f"dimension = {axis} : i64"))


def _barrier(draft: Draft) -> OpProgram:
    dtypes = [draft.dtype, *(draft.pick(ALL) for _ in range(draft.number(0, 2)))]
    values = [draft.argument(draft.shape(), "bits", dtype) for dtype in dtypes]
    return draft.program(draft.call(values, [(value.dtype, value.shape) for value in values]))


def _tuple(draft: Draft) -> OpProgram:
    """Elements into a tuple, which may be in another, and one out of it."""
    dtypes = [draft.pick((draft.dtype, draft.pick(ALL))) for _ in range(draft.number(0, 2))]
    dtypes.insert(index := draft.number(0, len(dtypes)), draft.dtype)
    values = [draft.argument(draft.shape(), "bits", dtype) for dtype in dtypes]
    kind = _tupled(draft, "%t", [value.name for value in values], [value.type for value in values])
    name = "%t"
    if draft.chance(0.3):
        outer = _tupled(draft, "%o", [values[0].name, "%t"], [values[0].type, kind])
        draft.lines.append(
            f'%i = "stablehlo.get_tuple_element"(%o) <{{index = 1 : i32}}> : ({outer}) -> {kind}'
        )
        name = "%i"
    chosen = values[index]
    text = f'"stablehlo.get_tuple_element"({name}) <{{index = {index} : i32}}> : ({kind}) -> {chosen.type}'
    return draft.program([draft.line(text, draft.dtype, chosen.shape)])


def _tupled(draft: Draft, name: str, names: list[str], types: list[str]) -> str:
    kind = f"tuple<{', '.join(types)}>"
    draft.lines.append(f'{name} = "stablehlo.tuple"({", ".join(names)}) : ({", ".join(types)}) -> {kind}')
    return kind

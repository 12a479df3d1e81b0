"""Gathers and what is chosen by places."""

from __future__ import annotations

import numpy as np

from kcache_compiler.types import DTYPE_BYTES
from tests.ops.generated.draft import Draft, Family, Shape, integers
from tests.ops.generated.flags import Indices
from tests.ops.harness.compare import BITS
from tests.ops.harness.programs import OpProgram, total_ranks
from tests.ops.harness.values import ALL, DTYPES, FLOATS, INTEGERS

_REAL = (*INTEGERS, *FLOATS)
_INDEX = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "chlo.top_k": Family(_REAL, _top_k),
        "dynamic_gather": Family(ALL, _dynamic_gather),
        "gather": Family(ALL, _gather),
        "torch_index_select": Family(ALL, _index_select),
    }


def _numbers(draft: Draft) -> tuple[str, Shape, Shape, Shape, list[int]]:
    """Dimension numbers of a gather, shapes of operand, indices and result, sizes of slices."""
    operand = draft.shape(1, 4, 200)
    rank = len(operand)
    roles = [draft.pick(("collapsed", "batching", "offset", "offset")) for _ in range(rank)]
    if draft.wish.endswith("batching_dims out of order"):
        roles[:2] = ["batching"] * 2
    roles = ["offset" if size == 0 else role for size, role in zip(operand, roles, strict=True)]
    batching = [axis for axis in range(rank) if roles[axis] == "batching"]
    collapsed = [axis for axis in range(rank) if roles[axis] == "collapsed"]
    offsets = [axis for axis in range(rank) if roles[axis] == "offset"]
    others = [axis for axis in range(rank) if axis not in batching]
    moved = [others[axis] for axis in draft.axes(len(others), name="start_index_map")]
    places = [(operand[axis], axis) for axis in batching]
    places += [(draft.number(0 if draft.chance(0.1) else 1, 4), -1) for _ in range(draft.number(0, 2))]
    places = [places[int(number)] for number in draft.rng.permutation(len(places))]
    shape = [size for size, _ in places]
    vector = draft.number(0, len(shape))
    indices = [*shape[:vector], len(moved), *shape[vector:]]
    if len(moved) == 1 and draft.chance(0.3):
        vector, indices = len(shape), shape
    where = {axis: number + (number >= vector) for number, (_, axis) in enumerate(places) if axis >= 0}
    slices = [
        1 if role != "offset" else draft.number(0, size, "slice_sizes")
        for role, size in zip(roles, operand, strict=True)
    ]
    taken = [slices[axis] for axis in offsets]
    count = len(shape) + len(taken)
    offset_dims = sorted(draft.axes(count, count)[: len(taken)])
    rest, inner = iter(shape), iter(taken)
    result = tuple(next(inner) if axis in offset_dims else next(rest) for axis in range(count))
    numbers = (
        f"#stablehlo.gather<offset_dims = {offset_dims}, collapsed_slice_dims = {collapsed}, "
        f"operand_batching_dims = {batching}, "
        f"start_indices_batching_dims = {[where[axis] for axis in batching]}, "
        f"start_index_map = {moved}, index_vector_dim = {vector}>"
    )
    return numbers, operand, tuple(indices), result, slices


def _gather(draft: Draft) -> OpProgram:
    numbers, operand, indices, result, slices = _numbers(draft)
    value = draft.argument(operand, "bits")
    index = draft.pick(_INDEX, "index")
    kind = "small" if index.startswith("ui") else draft.pick(("small", "any"))
    where = draft.argument(indices, kind, index)
    if draft.chance(0.3) or draft.wished("indices_are_sorted") == "true":  # in order
        ordered = np.sort(np.frombuffer(draft.inputs[-1], DTYPES[index][1])).tobytes()
        draft.inputs[-1] = ordered
    known = Indices(draft.inputs[-1], index, indices, numbers, "start_index_map", "operand_batching_dims")
    flag = "true" if known.sorted() else "false"
    attributes = (
        f"dimension_numbers = {numbers}, slice_sizes = {integers(slices)}, indices_are_sorted = {flag}"
    )
    return draft.program(draft.call([value, where], [(draft.dtype, result)], attributes), BITS)


def _dynamic_gather(draft: Draft) -> OpProgram:
    numbers, operand, indices, result, slices = _numbers(draft)
    value = draft.argument(operand, "bits")
    index = draft.pick(_INDEX if draft.edge or draft.wish else ("i32", "i64"), "index")
    where = draft.argument(indices, "small", index)
    sizes = draft.numbers(slices, index)
    return draft.program(
        draft.call([value, where, sizes], [(draft.dtype, result)], f"dimension_numbers = {numbers}"), BITS
    )


def _top_k(draft: Draft) -> OpProgram:
    shape = draft.shape(1)
    k = draft.number(0, shape[-1], "k")
    result = (*shape[:-1], k)
    kinds = ("tame", "small", "any") if draft.dtype in INTEGERS else ("tame", "small")
    value = draft.argument(shape, draft.pick(kinds), may="any")
    expected = None
    if draft.dtype in FLOATS and draft.wish.startswith("values "):  # the interpreter has NaN and -0 anywhere
        ranks = total_ranks(draft.dtype, draft.inputs[0]).reshape(shape)
        order = np.argsort(~ranks, axis=-1, kind="stable")[..., :k]
        values = np.frombuffer(draft.inputs[0], DTYPES[draft.dtype][1]).reshape(shape)
        expected = [np.take_along_axis(values, order, -1).tobytes(), order.astype("<i4").tobytes()]
    results = draft.call([value], [(draft.dtype, result), ("i32", result)], f"k = {k} : i64")
    return draft.program(results, expected=expected)


def _any_index_select(draft: Draft) -> OpProgram:
    """Along any axis, with axes before it that operand and indices share."""
    shape = tuple(draft.number(1, 4) for _ in range(draft.rank(1, 4)))
    axis = draft.number(0, len(shape) - 1, "dim")
    batch = draft.number(0, axis, "batch_dims")
    index, kind = draft.pick(("i32", "i64", "i8", "ui16")), "bits" if draft.chance(0.5) else "any"
    wanted = (*shape[:batch], *(draft.size() for _ in range(draft.number(0, 2))))
    places = draft.rng.integers(0, shape[axis], wanted)
    where = draft.given(wanted, places.astype(DTYPES[index][1]).tobytes(), index)
    value = draft.argument(shape, kind)
    result = (*shape[:axis], *wanted[batch:], *shape[axis + 1 :])
    attributes = f"dim = {axis} : i64, batch_dims = {batch} : i64"
    results = draft.call([value, where], [(draft.dtype, result)], attributes)
    operand = np.frombuffer(draft.inputs[1], f"V{DTYPE_BYTES[draft.dtype]}").reshape(shape)
    rows = [np.take(operand[at], places[at], axis - batch) for at in np.ndindex(*shape[:batch])]
    return draft.program(results, BITS, expected=[b"".join(row.tobytes() for row in rows)])


def _index_select(draft: Draft) -> OpProgram:
    if draft.edge or draft.wish:
        return _any_index_select(draft)
    shape = (draft.number(1, 5), *draft.shape(0, 2, 40))
    where = draft.given((3,), draft.rng.integers(0, shape[0], 3).astype("<i4").tobytes(), "i32")
    value, result = draft.argument(shape), (3, *shape[1:])
    results = draft.call([value, where], [(draft.dtype, result)], "dim = 0 : i64, batch_dims = 0 : i64")
    numbers = (
        f"dimension_numbers = #stablehlo.gather<offset_dims = {list(range(1, len(shape)))}, "
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
        f"slice_sizes = {integers((1, *shape[1:]))}"
    )
    return draft.instead(draft.program(results), [value, where], (draft.dtype, result), numbers, "gather")

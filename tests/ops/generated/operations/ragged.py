"""Products of groups of rows, and scans: what JAX writes in CHLO. Their oracle is NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ops.generated.draft import Draft, Family, Shape, sums
from tests.ops.generated.operations.convolutions import Array, numbers, stored
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import COMPLEX, DTYPES, FLOATS, INTEGERS, NUMBERS, tensor


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "chlo.ragged_dot": Family(NUMBERS, _ragged_dot),
        "chlo.scan": Family(NUMBERS, _scan),
    }


def _sizes(draft: Draft, shape: Shape, whole: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Of groups along the last axis of ``shape``, which need not add up to ``whole``."""
    sizes = np.zeros(shape, np.int64)
    for row in np.ndindex(*shape[:-1]):
        rest = whole
        for group in range(shape[-1]):
            sizes[(*row, group)] = size = draft.number(0, rest)
            rest -= size
    return sizes


def _ragged_dot(draft: Draft) -> OpProgram:
    """Groups of rows, each with a matrix of its own; of what is summed; of batches."""
    mode = draft.pick(("rows", "sums", "batches"))
    batch = _batches(draft, mode)
    least = 0 if draft.wish == "empty" else 1
    m, k, n, groups = draft.number(least, 7), draft.number(least, 7), draft.number(1, 4), draft.number(1, 4)
    first: Shape = (*batch, m, k)
    second: Shape = (*batch, k, n)
    at = len(batch)
    ragged = {"rows": at, "sums": at + 1, "batches": 0}[mode]
    whole = first[ragged]
    sizes_shape: Shape = (*batch, groups) if batch and mode != "batches" and draft.chance(0.5) else (groups,)
    lengths = _sizes(draft, sizes_shape, whole)
    right: Shape = (groups, *second) if mode == "rows" else second
    shift = 1 if mode == "rows" else 0
    kind, absolute = sums(draft, k)
    operands = [draft.argument(first, kind), draft.argument(right, kind)]
    index = draft.pick(("i32", "i64"))
    operands.append(draft.given(sizes_shape, lengths.astype(DTYPES[index][1]).tobytes(), index))
    precision = draft.pick(("DEFAULT", "HIGH", "HIGHEST"), "precision_config")
    attributes = (
        f"ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = {[*range(at)]}, "
        f"rhs_batching_dimensions = {[*range(shift, at + shift)]}, lhs_contracting_dimensions = [{at + 1}], "
        f"rhs_contracting_dimensions = [{at + shift}], lhs_ragged_dimensions = [{ragged}], "
        f"rhs_group_dimensions = {[0] if mode == 'rows' else []}>, precision_config = "
        f"[#chlo<precision {precision}>, #chlo<precision {precision}>]"
    )
    product: Shape = (*first[:-1], n)
    result = (groups, *product) if mode == "sums" else product
    lhs, rhs = (
        numbers(draft.dtype, draft.inputs[place], operand.shape) for place, operand in enumerate(operands[:2])
    )
    with np.errstate(invalid="ignore", over="ignore"):
        computed = grouped(mode, lhs, rhs, lengths, result)
    results = draft.call(operands, [(draft.dtype, result)], attributes)
    return draft.program(results, absolute=4 * absolute, expected=[stored(draft.dtype, computed)])


def _batches(draft: Draft, mode: str) -> Shape:
    """Sizes of axes of batches, of which the first may be the ragged one."""
    shift = 1 if mode == "rows" else 0
    if draft.wish.startswith("rank "):
        return tuple(
            draft.number(1, 2) for _ in range(max(int(draft.wish[5:]) - 2 - shift, int(mode == "batches")))
        )
    if draft.wish.endswith("batching_dimensions in order") or mode == "batches" or draft.chance(0.5):
        return (draft.number(1, 3),)
    return ()


def grouped(
    mode: str,
    lhs: Array,
    rhs: Array,
    lengths: Array,
    result: Shape,
    multiply: Callable[[Array, Array], Array] = np.matmul,
) -> Array:
    """By one batch after the other."""
    if mode == "batches":
        return multiply(lhs, rhs)
    product = np.zeros(result, lhs.dtype)
    for batch in np.ndindex(*lhs.shape[:-2]):
        row = lengths[batch] if lengths.ndim > 1 else lengths
        start = 0
        for group, size in enumerate(row):
            part = slice(start, start := start + int(size))
            if mode == "rows":
                product[(*batch, part)] = multiply(lhs[(*batch, part)], rhs[(group, *batch)])
            else:
                product[(group, *batch)] = multiply(lhs[(*batch, slice(None), part)], rhs[(*batch, part)])
    return product


def _scan(draft: Draft) -> OpProgram:
    """Along an axis, in either direction: what is carried is the result of each step, or what came before."""
    shape = draft.shape(1, 3, 120)
    axis, backward = draft.number(0, len(shape) - 1, "dimension"), draft.chance(0.4, "is_reverse")
    row = (*shape[:axis], *shape[axis + 1 :])
    op = draft.pick(("add", "subtract", "maximum") if draft.dtype not in COMPLEX else ("add", "subtract"))
    kind = "any" if draft.dtype in (*INTEGERS, *FLOATS) else "tame"
    operands = [draft.argument(dims, kind, may="special" if kind == "tame" else "") for dims in (shape, row)]
    before = draft.chance(0.3)
    type = tensor(draft.dtype, row)
    region = (
        f"{{\n  ^bb0(%x: {type}, %c: {type}):\n    %s = stablehlo.{op} %c, %x : {type}\n"
        f"    stablehlo.return {'%c' if before else '%s'}, %s : {type}, {type}\n  }}"
    )
    attributes = (
        f"dimension = {axis} : i64, is_reverse = {str(backward).lower()}, "
        "operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>"
    )
    results = draft.call(operands, [(draft.dtype, shape), (draft.dtype, row)], attributes, [region])
    values, carried = (
        _read(draft.dtype, draft.inputs[n], operand.shape) for n, operand in enumerate(operands)
    )
    outputs = np.zeros(shape, values.dtype)
    order = range(shape[axis])
    for place in reversed(order) if backward else order:
        at = (slice(None),) * axis + (place,)
        with np.errstate(invalid="ignore", over="ignore"):
            after = {"add": np.add, "subtract": np.subtract, "maximum": np.maximum}[op](carried, values[at])
        after = _read(draft.dtype, stored(draft.dtype, after), row)
        outputs[at] = carried if before else after
        carried = after
    return draft.program(results, expected=[stored(draft.dtype, outputs), stored(draft.dtype, carried)])


def _read(dtype: str, content: bytes, shape: Shape) -> Array:
    """Integers as they are: the largest of unsigned ones is asked for."""
    if dtype in INTEGERS:
        return np.frombuffer(content, DTYPES[dtype][1]).reshape(shape)
    return numbers(dtype, content, shape)

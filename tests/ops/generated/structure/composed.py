"""Programs of several operations, whose results feed each other: what is fused, shared and returned.

Every step is exact, so results agree bit for bit: sums are of integers, or of small whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.ops.generated.draft import Draft, Family, Shape, Value, combiner, greater, integers, pairs
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import FLOATS, INTEGERS, SIGNED, tensor

_REAL = (*INTEGERS, *FLOATS)
_ALL = ("i1", *_REAL)
_LIMIT = 600
_UNARY = {"i1": ("not",), "float": ("negate", "abs", "floor", "ceil", "sign", "sqrt", "round_nearest_even")}
_BITS = ("and", "or", "xor", "maximum", "minimum")


def families() -> dict[str, Family]:
    """Chains of two to six steps, and of up to sixteen."""
    return {"func.composed": Family(_ALL, _short), "func.long_composed": Family(_ALL, _long)}


@dataclass
class _Pool:
    """The program so far, and its values, the last one last."""

    draft: Draft
    values: list[Value] = field(default_factory=list[Value])

    def one(self) -> Value:
        """Most often the last."""
        return self.values[-1] if self.draft.chance(0.6) else self.draft.pick(self.values)

    def like(self, value: Value) -> Value:
        """A value of the same type: an old one, a new argument, or one number everywhere."""
        old = [
            candidate
            for candidate in self.values
            if (candidate.dtype, candidate.shape) == (value.dtype, value.shape)
        ]
        if self.draft.chance(0.5):
            return self.draft.pick(old)
        if self.draft.chance(0.5):
            return self.draft.argument(value.shape, dtype=value.dtype)
        return self.constant(self.draft.number(0, 1 if value.dtype == "i1" else 5), value.dtype, value.shape)

    def constant(self, number: int, dtype: str, shape: Shape = ()) -> Value:
        """One number everywhere."""
        text = (
            f"{number}.0" if dtype in FLOATS else ("true" if number else "false") if dtype == "i1" else number
        )
        return self.draft.line(f"stablehlo.constant dense<{text}> : {tensor(dtype, shape)}", dtype, shape)

    def call(
        self, op: str, operands: list[Value], dtype: str, shape: Shape, attributes: str = "", *regions: str
    ) -> Value:
        """The one result of an operation."""
        return self.draft.call(operands, [(dtype, shape)], attributes, regions, op)[0]

    def settled(self, value: Value) -> Value:
        """Floats as whole numbers from -2 to 2, of which sums are exact, and none is NaN."""
        if value.dtype not in FLOATS:
            return value
        same, flags = value.type, tensor("i1", value.shape)
        known = f"stablehlo.compare EQ, {value.name}, {value.name} : ({same}, {same}) -> {flags}"
        number = self.draft.line(known, "i1", value.shape)
        zero = self.constant(0, value.dtype, value.shape)
        kept = self.call("select", [number, value, zero], value.dtype, value.shape)
        low = self.call("negate", [high := self.constant(2, value.dtype)], value.dtype, ())
        small = self.call("clamp", [low, kept, high], value.dtype, value.shape)
        return self.call("round_nearest_even", [small], value.dtype, value.shape)


Step = Callable[[_Pool], Value | None]


def _unary(pool: _Pool) -> Value:
    value = pool.one()
    whole = (
        ("negate", "abs", "sign", "not", "popcnt") if value.dtype in SIGNED else ("not", "popcnt", "negate")
    )
    ops = _UNARY.get("float" if value.dtype in FLOATS else value.dtype, whole)
    return pool.call(pool.draft.pick(ops), [value], value.dtype, value.shape)


def _binary(pool: _Pool) -> Value:
    value = pool.one()
    ops = _BITS if value.dtype == "i1" else ("add", "subtract", "multiply", "maximum", "minimum")
    ops = (*ops, "divide") if value.dtype in FLOATS else (*ops, *_BITS)
    pair = [value, pool.like(value)]
    pair = pair if pool.draft.chance(0.5) else pair[::-1]
    return pool.call(pool.draft.pick(ops), pair, value.dtype, value.shape)


def _chosen(pool: _Pool) -> Value:
    """A comparison, and what it selects."""
    value = pool.one()
    way = pool.draft.pick(("EQ", "NE", "LT", "LE", "GT", "GE"))
    attributes = f"comparison_direction = #stablehlo<comparison_direction {way}>"
    flags = pool.call("compare", [value, pool.like(value)], "i1", value.shape, attributes)
    pool.values.append(flags)
    if pool.draft.chance(0.3):
        return flags
    return pool.call("select", [flags, value, pool.like(value)], value.dtype, value.shape)


def _converted(pool: _Pool) -> Value:
    value = pool.one()
    dtype = pool.draft.pick(_ALL)
    return pool.call("convert", [value], dtype, value.shape)


def _moved(pool: _Pool) -> Value:
    """Transposed, reversed, cut, padded, repeated, joined or in another shape."""
    draft, value = pool.draft, pool.one()
    shape, rank = value.shape, len(value.shape)
    how = draft.pick(("transpose", "reverse", "slice", "pad", "broadcast", "concatenate", "reshape"))
    if how == "transpose":
        order = draft.axes(rank, rank)
        result_shape = tuple(shape[axis] for axis in order)
        return pool.call(how, [value], value.dtype, result_shape, f"permutation = {integers(order)}")
    if how == "reverse":
        return pool.call(how, [value], value.dtype, shape, f"dimensions = {integers(draft.axes(rank))}")
    if how == "slice":
        low = [draft.number(0, size // 2) for size in shape]
        step = [draft.number(1, 2) for _ in shape]
        result_shape = tuple(-(-(size - at) // by) for size, at, by in zip(shape, low, step, strict=True))
        stated = (
            f"start_indices = {integers(low)}, limit_indices = {integers(shape)}, strides = {integers(step)}"
        )
        return pool.call(how, [value], value.dtype, result_shape, stated)
    if how == "pad":
        edges = [
            (draft.number(-1 if size else 0, 2), draft.number(0, 1), draft.number(0, 1)) for size in shape
        ]
        low, high, inner = ([edge[part] for edge in edges] for part in range(3))
        result_shape = tuple(
            size + max(size - 1, 0) * c + a + b for size, (a, b, c) in zip(shape, edges, strict=True)
        )
        stated = (
            f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
            f"interior_padding = {integers(inner)}"
        )
        return pool.call(how, [value, pool.constant(1, value.dtype)], value.dtype, result_shape, stated)
    if how == "broadcast":
        place = draft.number(0, rank)
        result_shape = (*shape[:place], draft.number(1, 3), *shape[place:])
        dims = [axis for axis in range(rank + 1) if axis != place]
        stated = f"broadcast_dimensions = {integers(dims)}"
        return pool.call("broadcast_in_dim", [value], value.dtype, result_shape, stated)
    if how == "concatenate" and rank:
        axis = draft.number(0, rank - 1)
        result_shape = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
        return pool.call(
            how, [value, pool.like(value)], value.dtype, result_shape, f"dimension = {axis} : i64"
        )
    return pool.call("reshape", [value], value.dtype, (math.prod(shape),))


def _reduced(pool: _Pool) -> Value | None:
    draft, value = pool.draft, pool.one()
    if not value.shape:
        return None
    dims = draft.axes(len(value.shape), 1)
    result_shape = tuple(size for axis, size in enumerate(value.shape) if axis not in dims)
    op = draft.pick(_combiners(value.dtype))
    value = pool.settled(value) if op == "add" else value
    start = pool.constant(draft.number(0, 1), value.dtype)
    region = combiner(op, value.dtype)
    result = pool.call(
        "reduce", [value, start], value.dtype, result_shape, f"dimensions = {integers(dims)}", region
    )
    if draft.chance(0.5):
        return result
    kept = [axis for axis in range(len(value.shape)) if axis not in dims]
    pool.values.append(result)
    spread = f"broadcast_dimensions = {integers(kept)}"
    whole = pool.call("broadcast_in_dim", [result], value.dtype, value.shape, spread)
    op = "xor" if value.dtype == "i1" else "subtract"
    return pool.call(op, [value, whole], value.dtype, value.shape)


def _combiners(dtype: str) -> tuple[str, ...]:
    return _BITS if dtype == "i1" else ("add", "maximum", "minimum", *(() if dtype in FLOATS else _BITS))


def _windows(pool: _Pool) -> Value | None:
    """Windows along one axis: neighbors, or all that came before."""
    draft, value = pool.draft, pool.one()
    if not value.shape or 0 in value.shape:
        return None
    axis = draft.number(0, len(value.shape) - 1)
    size = value.shape[axis] if draft.chance(0.5) else draft.number(1, 3)
    window = [size if place == axis else 1 for place in range(len(value.shape))]
    padding = [(size - 1, 0) if place == axis else (0, 0) for place in range(len(value.shape))]
    op = draft.pick(_combiners(value.dtype))
    value = pool.settled(value) if op == "add" else value
    start = pool.constant(0, value.dtype)
    stated = f"window_dimensions = {integers(window)}, padding = {pairs(padding)}"
    region = combiner(op, value.dtype)
    return pool.call("reduce_window", [value, start], value.dtype, value.shape, stated, region)


def _product(pool: _Pool) -> Value | None:
    """Along the last axis, with a new matrix or with the value itself."""
    draft, value = pool.draft, pool.one()
    if not value.shape or 0 in value.shape or value.dtype == "i1":
        return None
    value = pool.settled(value)
    size = value.shape[-1]
    other = pool.settled(draft.argument((draft.number(1, 5), size), "small", value.dtype))
    other = value if len(value.shape) == 2 and draft.chance(0.3) else other
    numbers = (
        "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = "
        f"[{len(value.shape) - 1}], rhs_contracting_dimensions = [1]>"
    )
    result_shape = (*value.shape[:-1], other.shape[0])
    return pool.call("dot_general", [value, other], value.dtype, result_shape, numbers)


def _taken(pool: _Pool) -> Value | None:
    """Rows by an index, or a slice whose place is computed, or one put there."""
    draft, value = pool.draft, pool.one()
    if not value.shape or 0 in value.shape:
        return None
    how = draft.pick(("gather", "dynamic_slice", "dynamic_update_slice"))
    if how == "gather":
        count = draft.number(1, 4)
        where = draft.argument((count,), "small", "i32")
        offsets = list(range(1, len(value.shape)))
        stated = (
            f"dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = [0], "
            f"start_index_map = [0], index_vector_dim = 1>, slice_sizes = {integers((1, *value.shape[1:]))}"
        )
        return pool.call(how, [value, where], value.dtype, (count, *value.shape[1:]), stated)
    starts = [draft.argument((), "small", "i32") for _ in value.shape]
    result_shape = tuple(draft.number(1, size) for size in value.shape)
    if how == "dynamic_slice":
        return pool.call(
            how, [value, *starts], value.dtype, result_shape, f"slice_sizes = {integers(result_shape)}"
        )
    return pool.call(
        how, [value, draft.argument(result_shape, dtype=value.dtype), *starts], value.dtype, value.shape
    )


def _placed(pool: _Pool) -> Value | None:
    """Rows that are added, or put, by an index."""
    draft, value = pool.draft, pool.one()
    if not value.shape or 0 in value.shape or value.dtype == "i1":
        return None
    count = draft.number(1, 4)
    where, updates = draft.argument((count,), "small", "i32"), (count, *value.shape[1:])
    windows = list(range(1, len(updates)))
    numbers = (
        f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {windows}, "
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    region = combiner(draft.pick(("add", "maximum", "minimum")), value.dtype)
    operands = [value, where, draft.argument(updates, dtype=value.dtype)]
    return pool.call("scatter", operands, value.dtype, value.shape, numbers, region)


def _sorted(pool: _Pool) -> Value | None:
    value = pool.one()
    if not value.shape:
        return None
    value = pool.settled(value)
    axis = pool.draft.number(0, len(value.shape) - 1)
    region = greater(value.dtype, pool.draft.pick(("LT", "GT")))
    stated = f"dimension = {axis} : i64, is_stable = true"
    return pool.call("sort", [value], value.dtype, value.shape, stated, region)


def _counted(pool: _Pool) -> Value | None:
    """Places along an axis, added."""
    value = pool.one()
    if not value.shape or value.dtype == "i1":
        return None
    axis = pool.draft.number(0, len(value.shape) - 1)
    places = pool.call("iota", [], value.dtype, value.shape, f"iota_dimension = {axis} : i64")
    return pool.call("add", [value, places], value.dtype, value.shape)


def _branched(pool: _Pool) -> Value:
    """One of two values, of which one is computed in the branch."""
    value = pool.one()
    other, op = pool.like(value), "not" if value.dtype == "i1" else "negate"
    where = pool.draft.argument((), dtype="i1")
    pool.draft.count += 1
    name = f"%b{pool.draft.count}"
    first = (
        f"{{\n    {name} = stablehlo.{op} {value.name} : {value.type}\n"
        f"    stablehlo.return {name} : {value.type}\n  }}"
    )
    second = f"{{\n    stablehlo.return {other.name} : {value.type}\n  }}"
    return pool.call("if", [where], value.dtype, value.shape, "", first, second)


def _repeated(pool: _Pool) -> Value:
    """A few turns of a loop over the value, with another one from outside."""
    value = pool.one()
    op = "xor" if value.dtype == "i1" else pool.draft.pick(("add", "subtract", "maximum"))
    other, turns = pool.like(value), pool.draft.number(0, 4)
    zero, kind = pool.constant(0, "i32"), value.type
    regions = (
        f"{{\n  ^bb0(%i: tensor<i32>, %x: {kind}):\n"
        f"    %n = stablehlo.constant dense<{turns}> : tensor<i32>\n"
        "    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "    stablehlo.return %c : tensor<i1>\n  }",
        f"{{\n  ^bb0(%i: tensor<i32>, %x: {kind}):\n    %n = stablehlo.constant dense<1> : tensor<i32>\n"
        f"    %m = stablehlo.add %i, %n : tensor<i32>\n    %y = stablehlo.{op} %x, {other.name} : {kind}\n"
        f"    stablehlo.return %m, %y : tensor<i32>, {kind}\n  }}",
    )
    results = [("i32", ()), (value.dtype, value.shape)]
    return pool.draft.call([zero, value], results, "", regions, "while")[1]


_STEPS: tuple[Step, ...] = (
    *[_unary, _binary, _binary, _chosen, _converted, _moved, _moved, _moved, _reduced, _reduced, _windows],
    *[_product, _taken, _placed, _sorted, _counted, _branched, _repeated],
)


def _short(draft: Draft) -> OpProgram:
    return _composed(draft, draft.number(2, 6))


def _long(draft: Draft) -> OpProgram:
    return _composed(draft, draft.number(7, 16))


def _composed(draft: Draft, steps: int) -> OpProgram:
    pool = _Pool(draft)
    pool.values.append(draft.argument(draft.shape(0, 3, 120)))
    while steps:
        value = draft.pick(_STEPS)(pool)
        if value is None or math.prod(value.shape) > _LIMIT or len(value.shape) > 6:
            continue
        pool.values.append(value)
        steps -= 1
    others = [value for value in pool.values[1:-1] if draft.chance(0.15)]
    return draft.program([*others[:3], pool.values[-1]])

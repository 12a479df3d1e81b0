"""Legalizes sorts from StableHLO to markers, which become launches.

A sort whose comparator compares a key of each element is *keyed*: its region computes the key instead of the
comparison. Such a sort computes only results that have uses, and of each only the leading elements that are
read; an operand that is an iota along the axis is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.sort_scatter.marker import build_marker, zero_constant
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.comparators import Key, in_total_order, place_nan, yield_key
from kcache_compiler.passes.legalize.elementwise import signless_tensor
from kcache_compiler.passes.legalize.stand_ins import (
    inline_region,
    region_carrier,
    replace,
    signless,
    stand_in,
)


@dataclass(frozen=True)
class _Rows:
    """The sorted axis, the sizes of a result, and the permutation that makes the sorted axis the last one."""

    axis: int
    sizes: list[int]

    @property
    def order(self) -> list[int]:
        return [*(number for number in range(len(self.sizes)) if number != self.axis), self.axis]

    def matrix(self, value: mlir.Value) -> mlir.Value:
        """Reshape ``value`` to a matrix of rows to sort."""
        length = self.sizes[self.axis]
        rows = 1
        for size in self.sizes:
            rows *= size
        return _reshaped(_transposed(value, self.order), [rows // length, length])

    def back(self, value: mlir.Value) -> mlir.Value:
        """Reshape rows, which may be truncated, to the original shape."""
        sizes = list(self.sizes)
        sizes[self.axis] = mlir.sizes_of(value.type)[1] or 0
        transposed = _reshaped(value, [sizes[number] for number in self.order])
        return _transposed(transposed, [self.order.index(number) for number in range(len(sizes))])


def carry_sort(op: mlir.Op, keyed: bool = True) -> None:
    """Replace a sort by one of the rows of a matrix; by keys if possible and ``keyed``."""
    operands = list(op.operands)
    shape = mlir.sizes_of(operands[0].type)
    axis = mlir.int_of(op.attributes["dimension"]) % max(1, len(shape))
    if not shape or 0 in shape or shape[axis] == 1:
        replace(op, operands)
        return
    sizes = [size for size in shape if size is not None]
    if len(sizes) != len(shape):
        raise UnsupportedOp(mlir.name_of(op), "an axis of unknown size", mlir.location_of(op))
    rows = _Rows(axis, sizes)
    used = _used_operands(op)
    key = yield_key(op) if keyed else None
    if key is not None:
        _carry_keyed(op, rows, used, key)
        return
    place_nan(op)
    in_total_order(op)
    with mlir.before(op):
        moved = [rows.matrix(value) for value in operands]
        kinds = [value.type for value in moved]
        reduction = region_carrier([*kinds, mlir.type_of("tensor<1xi1>")])
        _move_comparator(op, reduction, mlir.type_of("tensor<i1>"))
        cast = stand_in([*moved, *reduction.results], kinds, {"kind": "sort", "count": len(kinds)})
        results = [rows.back(value) for value in cast.results]
    replace(op, results)


def _carry_keyed(op: mlir.Op, rows: _Rows, used: set[int], key: Key) -> None:
    """Replace a keyed sort by a marker, which computes only the results that have uses."""
    in_total_order(op)
    first = _first_read(op, rows)
    operands = list(op.operands)
    read = [number for number, result in enumerate(op.results) if list(result.uses)]
    if not read:
        replace(op, operands)
        return
    counts = [number for number in read if number not in used and _counts(operands[number], rows.axis)]
    inputs = [number for number in range(len(operands)) if number in used or number in {*read} - {*counts}]
    note = {
        "kind": "keyed",
        "key": key.bits,
        "order": key.kind,
        "descending": key.descending,
        "operands": inputs,
        "results": [-1 if number in counts else inputs.index(number) for number in read],
    }
    with mlir.before(op):
        reduction = region_carrier(
            [*(value.type for value in operands), mlir.type_of(f"tensor<1xi{key.bits}>")]
        )
        _move_comparator(op, reduction, mlir.type_of(f"tensor<i{key.bits}>"))
        moved = [rows.matrix(operands[number]) for number in inputs]
        count = mlir.sizes_of(moved[0].type)[0] or 0
        kinds = [_shaped(operands[number].type, [count, first]) for number in read]
        cast = stand_in([*moved, *reduction.results], kinds, note)
        results = dict(zip(read, (rows.back(value) for value in cast.results), strict=True))
    replace(op, [results.get(number, value) for number, value in enumerate(operands)])


def _used_operands(op: mlir.Op) -> set[int]:
    """The operands whose elements the comparator uses."""
    arguments = list(mlir.block_of(op).arguments)
    return {number // 2 for number, argument in enumerate(arguments) if list(argument.uses)}


def _first_read(op: mlir.Op, rows: _Rows) -> int:
    """The number of leading elements of the sorted rows that are read."""
    length, most = rows.sizes[rows.axis], 1
    other_sizes = [size for axis, size in enumerate(rows.sizes) if axis != rows.axis]
    for result in op.results:
        for user, _ in mlir.uses(result):
            if mlir.name_of(user) != "stablehlo.slice":
                return length
            starts, limits, strides = (
                mlir.integers(user.attributes[name]) for name in ("start_indices", "limit_indices", "strides")
            )
            limit = limits.pop(rows.axis)
            if any(starts) or any(stride != 1 for stride in strides) or limits != other_sizes:
                return length
            most = max(most, limit)
    return most


def _counts(value: mlir.Value, axis: int) -> bool:
    """Whether ``value`` is an iota along ``axis``."""
    owner = mlir.defining(value)
    if (
        str(mlir.element_type(value.type)).removeprefix("u") not in ("i8", "i16", "i32", "i64")
        or owner is None
    ):
        return False
    if mlir.name_of(owner) == "stablehlo.iota":
        return mlir.int_of(owner.attributes["iota_dimension"]) == axis
    if mlir.name_of(owner) != "stablehlo.broadcast_in_dim":
        return False
    targets = mlir.integers(owner.attributes["broadcast_dimensions"])
    source = owner.operands[0]
    if axis not in targets:
        return False
    source_axis = targets.index(axis)
    same_size = mlir.sizes_of(source.type)[source_axis] == mlir.sizes_of(value.type)[axis]
    return same_size and _counts(source, source_axis)


def _shaped(kind: mlir.Type, sizes: list[int]) -> mlir.Type:
    return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{mlir.element_type(kind)}>")


def _transposed(value: mlir.Value, order: list[int]) -> mlir.Value:
    if order == sorted(order):
        return value
    sizes = mlir.sizes_of(value.type)
    kind = _shaped(value.type, [size for number in order if (size := sizes[number]) is not None])
    permutation = mlir.attribute(f"array<i64: {', '.join(map(str, order))}>")
    return mlir.value("stablehlo.transpose", [value], kind, permutation=permutation)


def _reshaped(value: mlir.Value, sizes: list[int]) -> mlir.Value:
    if mlir.sizes_of(value.type) == sizes:
        return value
    return mlir.value("stablehlo.reshape", [value], _shaped(value.type, sizes))


def _move_comparator(op: mlir.Op, reduction: mlir.Op, result_type: mlir.Type) -> None:
    """Move the comparator of a sort into a reduction, whose last result is the comparator's."""
    source = mlir.block_of(op)
    pairs = list(source.arguments)
    kinds = [pairs[number].type for number in range(0, len(pairs), 2)]
    target = mlir.new_block(reduction, 0, [*kinds, result_type, *kinds, result_type])
    arguments = list(target.arguments)
    firsts, seconds = arguments[: len(kinds)], arguments[len(kinds) + 1 : -1]
    for old, new in zip(pairs[::2], firsts, strict=True):
        old.replace_all_uses_with(new)
    for old, new in zip(pairs[1::2], seconds, strict=True):
        old.replace_all_uses_with(new)
    operations = mlir.operations(source)
    with mlir.at_end(target):
        anchor = mlir.create("stablehlo.return", [*firsts, operations[-1].operands[0]])
    for operation in operations[:-1]:
        operation.move_before(anchor)
    operations[-1].erase()


def mark_sort(cast: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """The marker of a sort.

    Inputs: the rows, twice, for the two elements of a comparison. Outputs: sorted rows, temporary rows, and
    the result of the comparison.
    """
    count = note.pop("count")
    rows = [signless(value) for value in list(cast.operands)[:count]]
    flag = mlir.empty_tensor(mlir.type_of("tensor<1xi1>"))
    empty = [mlir.empty_tensor(value.type) for value in rows * 2]

    def ask(scalars: list[mlir.Value]) -> list[mlir.Value]:
        firsts, seconds = scalars[:count], scalars[count : 2 * count]
        false = mlir.constant(0, "i1")
        *_, first = inline_region(cast, [*firsts, false], [*seconds, false])
        return [*firsts, *seconds, first]

    return list(build_marker("sort", note, [*rows, *rows], [*empty, flag], ask).results)[:count]


def mark_keyed(cast: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """The marker of a keyed sort: the rows to sort; the results that are read, and the key of an element."""
    places: list[int] = note.pop("operands")
    results: list[int] = note["results"]
    rows = [signless(value) for value in list(cast.operands)[: len(places)]]
    element_types = [_element(value.type) for value in list(cast.operands)[len(places) :]]
    outputs = [signless_tensor(result.type) for result in cast.results]
    empty = [mlir.empty_tensor(kind) for kind in [*outputs, mlir.type_of(f"tensor<1x{element_types[-1]}>")]]

    def ask(scalars: list[mlir.Value]) -> list[mlir.Value]:
        side = [
            scalars[places.index(number)] if number in places else zero_constant(kind)
            for number, kind in enumerate(element_types)
        ]
        *_, key = inline_region(cast, side, side)
        # Yields the gathered elements unchanged: bufferization elides operands that the region does not use.
        fetched = [
            zero_constant(_element(kind)) if source < 0 else scalars[source]
            for source, kind in zip(results, outputs, strict=True)
        ]
        return [*fetched, key]

    marker = build_marker("keyed", note, rows, empty, ask)
    return list(marker.results)[:-1]


def _element(kind: mlir.Type) -> mlir.Type:
    return mlir.element_type(signless_tensor(kind))

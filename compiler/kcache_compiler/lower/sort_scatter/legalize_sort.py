"""Sorts: from StableHLO to the markers that launches are made of.

A sort whose comparator compares a key of each element is *keyed*: its region gives the key, not who comes
first. Of such a sort only results that somebody reads are made, of each as many elements as are read from
the front, and an operand that counts along the axis is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.sort_scatter.marker import build_marker, zero_constant
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.comparators import in_total_order, place_nan, yield_key
from kcache_compiler.passes.legalize.elementwise import signless_tensor
from kcache_compiler.passes.legalize.passthrough import carrier, noted, plain, region, replace


@dataclass(frozen=True)
class _Rows:
    """The sorted axis, sizes of a result, and how axes turn so that the sorted one is the last."""

    axis: int
    sizes: list[int]

    @property
    def order(self) -> list[int]:
        return [*(number for number in range(len(self.sizes)) if number != self.axis), self.axis]

    def matrix(self, value: mlir.Value) -> mlir.Value:
        """``value`` as rows to sort."""
        length = self.sizes[self.axis]
        rows = 1
        for size in self.sizes:
            rows *= size
        return _reshaped(_transposed(value, self.order), [rows // length, length])

    def back(self, value: mlir.Value) -> mlir.Value:
        """Rows, which may be shorter now, in the shape that they came from."""
        sizes = list(self.sizes)
        sizes[self.axis] = mlir.sizes_of(value.type)[1] or 0
        turned = _reshaped(value, [sizes[number] for number in self.order])
        return _transposed(turned, [self.order.index(number) for number in range(len(sizes))])


def carry_sort(op: mlir.Op, keyed: bool = True) -> None:
    """Sort rows of a matrix: the sorted axis becomes the last, all others one; by keys where ``keyed``."""
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
    width = yield_key(op) if keyed else 0
    if width:
        _carry_keyed(op, rows, used, width)
        return
    place_nan(op)
    in_total_order(op)
    with mlir.before(op):
        moved = [rows.matrix(value) for value in operands]
        kinds = [value.type for value in moved]
        beside = carrier([*kinds, mlir.type_of("tensor<1xi1>")])
        _move_comparator(op, beside, mlir.type_of("tensor<i1>"))
        cast = noted(op, [*moved, *beside.results], kinds, {"kind": "sort", "count": len(kinds)})
        results = [rows.back(value) for value in cast.results]
    replace(op, results)


def _carry_keyed(op: mlir.Op, rows: _Rows, used: set[int], width: int) -> None:
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
        "key": width,
        "operands": inputs,
        "results": [-1 if number in counts else inputs.index(number) for number in read],
    }
    with mlir.before(op):
        beside = carrier([*(value.type for value in operands), mlir.type_of(f"tensor<1xi{width}>")])
        _move_comparator(op, beside, mlir.type_of(f"tensor<i{width}>"))
        moved = [rows.matrix(operands[number]) for number in inputs]
        count = mlir.sizes_of(moved[0].type)[0] or 0
        kinds = [_shaped(operands[number].type, [count, first]) for number in read]
        cast = noted(op, [*moved, *beside.results], kinds, note)
        results = dict(zip(read, (rows.back(value) for value in cast.results), strict=True))
    replace(op, [results.get(number, value) for number, value in enumerate(operands)])


def _used_operands(op: mlir.Op) -> set[int]:
    """The operands whose elements the comparator asks for."""
    arguments = list(mlir.block_of(op).arguments)
    return {number // 2 for number, argument in enumerate(arguments) if list(argument.uses)}


def _first_read(op: mlir.Op, rows: _Rows) -> int:
    """How many elements of the sorted rows anybody reads."""
    length, most = rows.sizes[rows.axis], 1
    whole = [size for axis, size in enumerate(rows.sizes) if axis != rows.axis]
    for result in op.results:
        for user, _ in mlir.uses(result):
            if mlir.name_of(user) != "stablehlo.slice":
                return length
            starts, limits, strides = (
                mlir.integers(user.attributes[name]) for name in ("start_indices", "limit_indices", "strides")
            )
            limit = limits.pop(rows.axis)
            if any(starts) or any(stride != 1 for stride in strides) or limits != whole:
                return length
            most = max(most, limit)
    return most


def _counts(value: mlir.Value, axis: int) -> bool:
    """``value`` is 0, 1, 2 and so on along ``axis``."""
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
    own = targets.index(axis)
    same = mlir.sizes_of(source.type)[own] == mlir.sizes_of(value.type)[axis]
    return same and _counts(source, own)


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


def _move_comparator(op: mlir.Op, beside: mlir.Op, said: mlir.Type) -> None:
    """The comparator of a sort as the region of a reduction, whose last result is what it says."""
    source = mlir.block_of(op)
    pairs = list(source.arguments)
    kinds = [pairs[number].type for number in range(0, len(pairs), 2)]
    target = mlir.new_block(beside, 0, [*kinds, said, *kinds, said])
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
    """Rows to sort, as first and as second of a pair; sorted rows, rows to work in, who comes first."""
    count = note.pop("count")
    rows = [plain(value) for value in list(cast.operands)[:count]]
    flag = mlir.empty_tensor(mlir.type_of("tensor<1xi1>"))
    empty = [mlir.empty_tensor(value.type) for value in rows * 2]

    def ask(scalars: list[mlir.Value]) -> list[mlir.Value]:
        firsts, seconds = scalars[:count], scalars[count : 2 * count]
        nobody = mlir.constant(0, "i1")
        *_, first = region(cast, [*firsts, nobody], [*seconds, nobody])
        return [*firsts, *seconds, first]

    return list(build_marker("sort", note, [*rows, *rows], [*empty, flag], ask).results)[:count]


def mark_keyed(cast: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """Rows to sort; the results that are read, and the key of an element."""
    places: list[int] = note.pop("operands")
    results: list[int] = note["results"]
    rows = [plain(value) for value in list(cast.operands)[: len(places)]]
    beside = [_element(value.type) for value in list(cast.operands)[len(places) :]]
    outputs = [signless_tensor(result.type) for result in cast.results]
    empty = [mlir.empty_tensor(kind) for kind in [*outputs, mlir.type_of(f"tensor<1x{beside[-1]}>")]]

    def ask(scalars: list[mlir.Value]) -> list[mlir.Value]:
        side = [
            scalars[places.index(number)] if number in places else zero_constant(kind)
            for number, kind in enumerate(beside)
        ]
        *_, key = region(cast, side, side)
        # What is fetched is given as it is: what no region gives or asks for is not read, to bufferization.
        fetched = [
            zero_constant(_element(kind)) if source < 0 else scalars[source]
            for source, kind in zip(results, outputs, strict=True)
        ]
        return [*fetched, key]

    marker = build_marker("keyed", note, rows, empty, ask)
    return list(marker.results)[:-1]


def _element(kind: mlir.Type) -> mlir.Type:
    return mlir.element_type(signless_tensor(kind))

"""Scatters and sorts: from StableHLO to the markers that launches are made of.

The toolchain lowers neither, but knows how to make scalar code of the region of a ``reduce``. So their
regions ride through its legalization in a reduction of nothing, whose body they then take over.
"""

from __future__ import annotations

import json
from typing import Any

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.body import inline_body
from kcache_compiler.codegen.legalize.elementwise import cast, signless_tensor
from kcache_compiler.codegen.shuffles.marker import always, build_marker
from kcache_compiler.codegen.stage import Unit
from kcache_compiler.errors import UnsupportedOp

_CAST = "builtin.unrealized_conversion_cast"
_NOTE = "kcache_shuffle"
_KEYS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def carry_regions(unit: Unit) -> None:
    """Make every scatter and sort a cast that notes what it is, with its region in a reduction beside."""
    for op in reversed(mlir.named(unit.module, "stablehlo.scatter", "stablehlo.sort")):
        if mlir.name_of(op) == "stablehlo.scatter":
            _in_total_order(op)
            _carry_scatter(op)
        else:
            _place_nan(op)
            _in_total_order(op)
            _carry_sort(op)


def _in_total_order(op: mlir.Op) -> None:
    """Compare floats in total order by their bits, as sign and magnitude: the toolchain does not."""
    for compare in mlir.named(op, "stablehlo.compare"):
        kind = str(compare.operands[0].type.element_type)
        given = str(compare.attributes["compare_type"]) if "compare_type" in compare.attributes else ""
        if "TOTALORDER" not in given or kind not in _KEYS:
            continue
        with mlir.before(compare):
            for number in range(2):
                compare.operands[number] = _total_key(compare.operands[number], _KEYS[kind])
        compare.attributes["compare_type"] = mlir.attribute("#stablehlo<comparison_type SIGNED>")


def _place_nan(op: mlir.Op) -> None:
    """Put NaN where PyTorch and NumPy do: after all numbers by ``<``, before them by ``>``.

    Neither says anything of NaN, so StableHLO leaves the order open.
    """
    returned = mlir.operations(mlir.block_of(op))[-1]
    compare = mlir.defining(returned.operands[0])
    if compare is None or mlir.name_of(compare) != "stablehlo.compare":
        return
    given = str(compare.attributes["compare_type"]) if "compare_type" in compare.attributes else ""
    a, b = compare.operands
    way = str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")
    if str(a.type.element_type) not in _KEYS or "TOTALORDER" in given or way not in ("LT", "GT"):
        return

    def ask(direction: str, x: mlir.Value, y: mlir.Value) -> mlir.Value:
        said = mlir.attribute(f"#stablehlo<comparison_direction {direction}>")
        return mlir.value("stablehlo.compare", [x, y], truth, comparison_direction=said)

    with mlir.before(returned):
        truth = compare.results[0].type
        kept = mlir.value("stablehlo.not", [ask("GE" if way == "LT" else "LE", a, b)], truth)
        number = a if way == "LT" else b
        returned.operands[0] = mlir.value("stablehlo.and", [kept, ask("EQ", number, number)], truth)


def _total_key(value: mlir.Value, width: int) -> mlir.Value:
    kind = mlir.type_of(f"tensor<i{width}>")

    def number(value: int) -> mlir.Value:
        return mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{value}> : {kind}"))

    bits = mlir.value("stablehlo.bitcast_convert", [value], kind)
    sign = mlir.value("stablehlo.shift_right_arithmetic", [bits, number(width - 1)], kind)
    return mlir.value(
        "stablehlo.xor", [bits, mlir.value("stablehlo.shift_right_logical", [sign, number(1)], kind)], kind
    )


def _carrier(kinds: list[mlir.Type]) -> mlir.Op:
    """A reduction of nothing over elements of ``kinds``, without its region, at the current point."""
    rows = [mlir.type_of(f"tensor<2x{kind.element_type}>") for kind in kinds]
    scalars = [mlir.type_of(f"tensor<{kind.element_type}>") for kind in kinds]
    nothing = [
        cast(mlir.value("tensor.empty", (), signless_tensor(kind)), kind) for kind in (*rows, *scalars)
    ]
    return mlir.create(
        "stablehlo.reduce", nothing, scalars, {"dimensions": mlir.attribute("array<i64: 0>")}, regions=1
    )


def _noted(op: mlir.Op, operands: list[mlir.Value], kinds: list[mlir.Type], note: dict[str, Any]) -> mlir.Op:
    return mlir.create(_CAST, operands, kinds, {_NOTE: mlir.string_attr(json.dumps(note))})


def _carry_scatter(op: mlir.Op) -> None:
    count = len(op.results)
    operands = list(op.operands)
    kinds = [result.type for result in op.results]
    updates = operands[count + 1 :]
    if any(a.type.element_type != b.element_type for a, b in zip(updates, kinds, strict=True)):
        raise UnsupportedOp(mlir.name_of(op), "updates of another type", mlir.location_of(op))
    note = {"kind": "scatter", "count": count, **mlir.scatter_dimensions(op)}
    indices = operands[count].type
    note["unsigned"] = str(indices.element_type).startswith("ui")
    note["rank"] = indices.rank
    with mlir.before(op):
        if not note["scatter_dims_to_operand_dims"]:  # vectors of no elements, which are not read
            operands[count] = mlir.value("tensor.empty", (), mlir.type_of("tensor<1xi32>"))
        carrier = _carrier(kinds)
        mlir.move_block(op, carrier, 0)
        noted = _noted(op, [*operands, *carrier.results], kinds, note)
    _replace(op, list(noted.results))


def _replace(op: mlir.Op, results: list[mlir.Value]) -> None:
    for before, after in zip(op.results, results, strict=True):
        before.replace_all_uses_with(after)
    op.erase()


def _carry_sort(op: mlir.Op) -> None:
    """Sort rows of a matrix: the sorted axis becomes the last, all others one."""
    operands = list(op.operands)
    shape = mlir.sizes_of(operands[0].type)
    axis = mlir.int_of(op.attributes["dimension"]) % max(1, len(shape))
    if not shape or 0 in shape or shape[axis] == 1:
        _replace(op, operands)
        return
    sizes = [size for size in shape if size is not None]
    if len(sizes) != len(shape):
        raise UnsupportedOp(mlir.name_of(op), "an axis of unknown size", mlir.location_of(op))
    order = [*(number for number in range(len(shape)) if number != axis), axis]
    length = sizes[axis]
    rows = 1
    for number in order[:-1]:
        rows *= sizes[number]
    with mlir.before(op):
        moved = [_reshaped(_transposed(value, order), [rows, length]) for value in operands]
        kinds = [value.type for value in moved]
        carrier = _carrier([*kinds, mlir.type_of("tensor<1xi1>")])
        _move_comparator(op, carrier)
        noted = _noted(op, [*moved, *carrier.results], kinds, {"kind": "sort", "count": len(kinds)})
        back = [order.index(number) for number in range(len(order))]
        turned = [sizes[number] for number in order]
        results = [_transposed(_reshaped(value, turned), back) for value in noted.results]
    _replace(op, results)


def _shaped(kind: mlir.Type, sizes: list[int]) -> mlir.Type:
    return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{kind.element_type}>")


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


def _move_comparator(op: mlir.Op, carrier: mlir.Op) -> None:
    """The comparator of a sort as the region of a reduction, whose last result is what it says."""
    source = mlir.block_of(op)
    pairs = list(source.arguments)
    kinds = [pairs[number].type for number in range(0, len(pairs), 2)]
    flag = mlir.type_of("tensor<i1>")
    target = mlir.new_block(carrier, 0, [*kinds, flag, *kinds, flag])
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


def mark_shuffles(unit: Unit) -> None:
    """Make a marker of every cast that notes a scatter or sort, with the region that rode beside it."""
    for noted in mlir.named(unit.module, _CAST):
        if _NOTE not in noted.attributes:
            continue
        note = json.loads(noted.attributes[_NOTE].value)
        with mlir.before(noted):
            results = (_mark_scatter if note.pop("kind") == "scatter" else _mark_sort)(noted, note)
            plain = [cast(value, result.type) for value, result in zip(results, noted.results, strict=True)]
        _replace(noted, plain)


def _region(noted: mlir.Op, firsts: list[mlir.Value], seconds: list[mlir.Value]) -> list[mlir.Value]:
    """The region that rode beside ``noted``, at the current point, applied to two lists of scalars."""
    last = list(noted.operands)[-1]
    owner = mlir.defining(last)
    while owner is not None and mlir.name_of(owner) == _CAST:
        owner = mlir.defining(owner.operands[0])
    if owner is None or mlir.name_of(owner) != "linalg.generic":
        raise UnsupportedOp("stablehlo.reduce", "a region without a lowering", mlir.location_of(noted))
    body = mlir.block_of(owner)
    return inline_body(body, dict(zip(body.arguments, [*seconds, *firsts], strict=True)), None)


def _plain(value: mlir.Value) -> mlir.Value:
    return cast(value, signless_tensor(value.type))


def _mark_scatter(noted: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """Indices, updates and a pair of nothing; operands, whose old elements count even where none is kept."""
    count = note.pop("count")
    operands = [_plain(value) for value in list(noted.operands)[: 2 * count + 1]]
    pair = mlir.value("tensor.empty", (), mlir.type_of("tensor<2xi8>"))
    inputs = [*operands[count:], pair]
    dim = sum(value.type.rank for value in inputs) - 1

    def region(scalars: list[mlir.Value]) -> list[mlir.Value]:
        updates, old = scalars[1 : count + 1], scalars[count + 2 :]
        new = _region(noted, old, updates)
        return [
            mlir.value("arith.select", [always(dim), a, b], a.type) for a, b in zip(new, old, strict=True)
        ]

    return list(build_marker("scatter", note, inputs, operands[:count], region).results)


def _mark_sort(noted: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """Rows to sort, as first and as second of a pair; sorted rows, rows to work in, who comes first."""
    count = note.pop("count")
    rows = [_plain(value) for value in list(noted.operands)[:count]]
    flag = mlir.value("tensor.empty", (), mlir.type_of("tensor<1xi1>"))
    empty = [mlir.value("tensor.empty", (), value.type) for value in rows * 2]

    def region(scalars: list[mlir.Value]) -> list[mlir.Value]:
        firsts, seconds = scalars[:count], scalars[count : 2 * count]
        nobody = mlir.constant(0, "i1")
        *_, first = _region(noted, [*firsts, nobody], [*seconds, nobody])
        return [*firsts, *seconds, first]

    return list(build_marker("sort", note, [*rows, *rows], [*empty, flag], region).results)[:count]

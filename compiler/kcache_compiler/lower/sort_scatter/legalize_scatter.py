"""Legalizes scatters from StableHLO to markers, and runs the two passes for all that becomes a marker.

Upstream lowers neither scatters nor sorts (``legalize_sort.py``): before its legalization ``carry_regions``
replaces them by stand-ins (``passes/legalize/stand_ins.py``), and after it
``replace_stand_ins_by_markers`` replaces these, and those of subkernels, by markers, which become launches.
"""

from __future__ import annotations

import json
from typing import Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.sort_scatter.legalize_sort import carry_sort, mark_keyed, mark_sort
from kcache_compiler.lower.sort_scatter.marker import build_marker, compare_with_zero, opaque_true
from kcache_compiler.lower.subkernels.outline import SUBKERNEL, mark_subkernel
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.legalize.comparators import in_total_order
from kcache_compiler.passes.legalize.elementwise import cast
from kcache_compiler.passes.legalize.stand_ins import (
    CAST,
    NOTE,
    inline_region,
    region_carrier,
    replace,
    signless,
    stand_in,
)
from kcache_compiler.passes.stage import Unit


def carry_regions(unit: Unit) -> None:
    """Replace every scatter and sort by a stand-in, and move its region into a region carrier."""
    for op in reversed(mlir.named(unit.module, "stablehlo.scatter", "stablehlo.sort")):
        if mlir.name_of(op) == "stablehlo.scatter":
            in_total_order(op)
            _carry_scatter(op)
        else:
            carry_sort(op, keyed=not isinstance(unit.target, Device))  # GPU kernels have no scratch


def _carry_scatter(op: mlir.Op) -> None:
    count = len(op.results)
    operands = list(op.operands)
    kinds = [result.type for result in op.results]
    updates = operands[count + 1 :]
    if any(mlir.element_type(a.type) != mlir.element_type(b) for a, b in zip(updates, kinds, strict=True)):
        raise UnsupportedOp(mlir.name_of(op), "updates of another type", mlir.location_of(op))
    note: dict[str, object] = {"kind": "scatter", "count": count, **mlir.scatter_dimensions(op)}
    indices = operands[count].type
    note["unsigned"] = str(mlir.element_type(indices)).startswith("ui")
    note["rank"] = mlir.rank_of(indices)
    with mlir.before(op):
        if not note["scatter_dims_to_operand_dims"]:  # index vectors without elements are not read
            operands[count] = mlir.empty_tensor(mlir.type_of("tensor<1xi32>"))
        reduction = region_carrier(kinds)
        mlir.move_block(op, reduction, 0)
        stand_in_op = stand_in([*operands, *reduction.results], kinds, note)
    replace(op, list(stand_in_op.results))


def replace_stand_ins_by_markers(unit: Unit) -> None:
    """Replace every stand-in by a marker with the legalized region."""
    marks = {"scatter": _mark_scatter, "sort": mark_sort, "keyed": mark_keyed, SUBKERNEL: mark_subkernel}
    for stand_in_op in mlir.named(unit.module, CAST):
        if NOTE not in stand_in_op.attributes:
            continue
        note = json.loads(mlir.string_of(stand_in_op.attributes[NOTE]))
        with mlir.before(stand_in_op):
            results = marks[note.pop("kind")](stand_in_op, note)
            typed = [
                cast(value, result.type) for value, result in zip(results, stand_in_op.results, strict=True)
            ]
        replace(stand_in_op, typed)


def _mark_scatter(stand_in_op: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """The marker of a scatter: indices, updates and an unused pair; operands, whose old elements are read."""
    count = note.pop("count")
    operands = [signless(value) for value in list(stand_in_op.operands)[: 2 * count + 1]]
    pair = mlir.empty_tensor(mlir.type_of("tensor<2xi8>"))
    inputs = [*operands[count:], pair]
    dim = sum(mlir.rank_of(value.type) for value in inputs) - 1

    def combine(scalars: list[mlir.Value]) -> list[mlir.Value]:
        updates, old = scalars[1 : count + 1], scalars[count + 2 :]
        new = inline_region(stand_in_op, old, updates)
        keeps_new = arith.ori(opaque_true(dim), compare_with_zero(scalars[0]))
        return [arith.select(keeps_new, a, b) for a, b in zip(new, old, strict=True)]

    return list(build_marker("scatter", note, inputs, operands[:count], combine).results)

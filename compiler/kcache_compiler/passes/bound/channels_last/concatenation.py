"""Concatenation along channels that are last: operands are inserted into one buffer.

In a chain of concatenations, each of which appends channels to the result of the one before as the layers of
a dense block do, all results are the first channels of one buffer, and nothing is copied twice.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.state import Laid, Layouts


def insert_operands(op: mlir.Op, layouts: Layouts, first: Laid) -> None:
    """Compute the concatenation ``op`` along the last axis of the form of ``first``."""
    form, operands = first.form, _whole_operands(op)
    axis = mlir.int_of(op.attributes["dimension"])
    start = 0
    whole = layouts.longer.get(operands[0])
    if whole is not None and layouts.laid[operands[0]].form == form:
        start = build.static_sizes(operands.pop(0))[axis]
    else:
        kind = _last(op).results[0].type
        whole = mlir.empty_tensor(form.type(kind))
    for operand in operands:
        part = layouts.tensor(operand, form, first.region)
        whole = mlir.insert_slice(part, whole, [0] * (form.rank - 1) + [start])
        start += build.static_sizes(operand)[axis]
    layouts.set(op.results[0], build.leading(whole, form.rank - 1, start), form, first.region)
    if _next(op) is not None:
        layouts.longer[op.results[0]] = whole


def _last(op: mlir.Op) -> mlir.Op:
    """The last concatenation of the chain that ``op`` belongs to."""
    while (following := _next(op)) is not None:
        op = following
    return op


def _next(op: mlir.Op) -> mlir.Op | None:
    """The only concatenation that appends to the result of ``op``."""
    readers = [
        reader
        for reader, position in mlir.uses(op.results[0])
        if mlir.name_of(reader) == "stablehlo.concatenate"
        and position == 0
        and reader.attributes["dimension"] == op.attributes["dimension"]
        and list(reader.operands).count(op.results[0]) == 1
    ]
    return readers[0] if len(readers) == 1 and build.is_static(readers[0]) else None


def _whole_operands(op: mlir.Op) -> list[mlir.Value]:
    """The operands of a concatenation: adjacent slices that make up a value are that value."""
    axis = mlir.int_of(op.attributes["dimension"])
    results: list[mlir.Value] = []
    operands = list(op.operands)
    while operands:
        whole, count = _whole(operands, axis)
        results.append(whole)
        del operands[:count]
    return results


def _whole(operands: list[mlir.Value], axis: int) -> tuple[mlir.Value, int]:
    """The value that the first operands are adjacent slices of along ``axis``, and their number, or the first
    one.
    """
    source, end = None, 0
    for number, operand in enumerate(operands):
        owner = mlir.defining(operand)
        if owner is None or mlir.name_of(owner) != "stablehlo.slice":
            break
        source = owner.operands[0] if source is None else source
        begins, ends = (mlir.integers(owner.attributes[f"{name}_indices"]) for name in ("start", "limit"))
        sizes = build.static_sizes(source)
        expected = [end if each == axis else 0 for each in range(len(sizes))]
        apart = [size for each, size in enumerate(sizes) if each != axis]
        if owner.operands[0] != source or begins != expected or set(_strides(owner)) != {1}:
            break
        if [each for place, each in enumerate(ends) if place != axis] != apart:
            break
        end = ends[axis]
        if end == sizes[axis]:
            return source, number + 1
    return operands[0], 1


def _strides(op: mlir.Op) -> list[int]:
    return mlir.integers(op.attributes["strides"]) if "strides" in op.attributes else [1]

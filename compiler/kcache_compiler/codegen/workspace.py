"""Workspace planning: every allocation of ``main`` becomes an offset in one workspace.

A buffer lives from the first to the last statement of the function's block that touches it or a
view of it; buffers inside a loop or branch live as long as that whole statement. Slots are used
again by buffers whose lives do not meet; slots of symbolic size only by buffers that never need more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.formula import Formula, add, apply, mul, product
from kcache_compiler.codegen.polynomial import normal, settled
from kcache_compiler.codegen.shape import Shapes

ALIGNMENT = 64


@dataclass
class _Slot:
    size: Formula
    busy_until: int


@dataclass
class Plan:
    """Byte offsets of the allocations, and the size of the workspace."""

    offsets: list[tuple[mlir.Op, Formula]] = field(default_factory=list[tuple[mlir.Op, Formula]])
    size: Formula = 0


def plan(
    main: mlir.Op, shapes: Shapes, launches: Sequence[Sequence[mlir.Op]] = (), spared: Sequence[mlir.Op] = ()
) -> Plan:
    """Give every ``memref.alloc`` of ``main`` a place, but for those in ``spared``.

    The operations of one launch run interleaved: what one of them touches lives through all of them.
    """
    statements = mlir.operations(mlir.block_of(main))
    position = {inner: number for number, outer in enumerate(statements) for inner in mlir.walk(outer)}
    for launch in launches:
        position |= dict.fromkeys(launch, position[launch[0]])
    slots: list[_Slot] = []
    placed: list[tuple[mlir.Op, int]] = []
    lives = [
        (_life(alloc, position), alloc) for alloc in mlir.named(main, "memref.alloc") if alloc not in spared
    ]
    for (first, last), alloc in sorted(lives, key=lambda entry: entry[0][0]):
        placed.append((alloc, _place(slots, _bytes_of(alloc, shapes), first, last)))
    offsets: list[Formula] = []
    total: Formula = 0
    for slot in slots:
        offsets.append(total)
        total = add(total, aligned(slot.size))
    return Plan([(alloc, offsets[slot]) for alloc, slot in placed], _sum([aligned(s.size) for s in slots]))


def aligned(size: Formula) -> Formula:
    return apply("roundup", size, ALIGNMENT)


def _sum(sizes: list[Formula]) -> Formula:
    """All sizes, equal ones as one product: manifests hold it as text."""
    total: Formula = 0
    for size in dict.fromkeys(sizes):
        total = add(total, mul(sizes.count(size), size))
    return total


def _bytes_of(alloc: mlir.Op, shapes: Shapes) -> Formula:
    buffer = alloc.results[0]
    width = memory.element_bytes(buffer.type.element_type)
    size = normal(mul(width, product(shapes.sizes(buffer))))
    return aligned(size) if isinstance(size, int) else size


def _place(slots: list[_Slot], size: Formula, first: int, last: int) -> int:
    free = [number for number, slot in enumerate(slots) if slot.busy_until < first]
    chosen = _choose(slots, free, size)
    if chosen is None:
        slots.append(_Slot(size, last))
        return len(slots) - 1
    slot = slots[chosen]
    if isinstance(slot.size, int) and isinstance(size, int):
        slot.size = max(slot.size, size)
    slot.busy_until = last
    return chosen


def _choose(slots: list[_Slot], free: list[int], size: Formula) -> int | None:
    """The free slot that fits best: the smallest large enough, else the largest."""
    if not isinstance(size, int):
        equal = next((number for number in free if slots[number].size == size), None)
        if equal is not None:
            return equal
        return next((number for number in free if settled(size, slots[number].size, equal=False)), None)
    static = [(slots[number].size, number) for number in free]
    known = [(have, number) for have, number in static if isinstance(have, int)]
    enough = [entry for entry in known if entry[0] >= size]
    if enough:
        return min(enough)[1]
    return max(known)[1] if known else None


def _life(alloc: mlir.Op, position: dict[Any, int]) -> tuple[int, int]:
    """First and last statement that touches the allocation or anything that may be a view of it."""
    first = last = position[alloc]
    touched: list[int] = []
    seen: set[Any] = set()
    pending = [alloc.results[0]]
    while pending:
        buffer = pending.pop()
        if buffer in seen:
            continue
        seen.add(buffer)
        for user, _ in mlir.uses(buffer):
            touched.append(position[user])
            pending.extend(_may_be_views(user))
    nested = mlir.name_of(alloc.operation.parent) != "func.func"
    if touched:
        first, last = (min(first, *touched), max(first, *touched)) if nested else (min(touched), max(touched))
    return first, last


def _may_be_views(user: mlir.Op) -> list[mlir.Value]:
    name = mlir.name_of(user)
    if name in ("scf.yield", "scf.condition"):
        return _buffers_of(user.operation.parent)
    if name.startswith("scf."):
        return _buffers_of(user)
    return [result for result in user.results if mlir.is_memref(result.type)]


def _buffers_of(control: mlir.Op) -> list[mlir.Value]:
    """Results and region arguments of a control flow operation that are buffers."""
    found = list(control.results)
    for region in control.operation.regions:
        for block in region.blocks:
            found.extend(block.arguments)
    return [value for value in found if mlir.is_memref(value.type)]

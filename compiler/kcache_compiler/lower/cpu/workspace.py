"""Workspace planning: every allocation of ``main`` becomes an offset in one workspace.

A buffer is live from the first to the last statement of the function's block that accesses it or a view of
it; a buffer inside a loop or branch is live during that whole statement. Buffers with disjoint live ranges
share slots; a slot of symbolic size is reused only by buffers that are provably not larger.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import Formula, add, apply, mul, product
from kcache_compiler.shapes.guards import proves
from kcache_compiler.shapes.polynomial import normalize, polynomial

ALIGNMENT = 64


@dataclass
class Plan:
    """Byte offsets of the allocations, and the size of the workspace."""

    offsets: list[tuple[mlir.Op, Formula]] = field(default_factory=list[tuple[mlir.Op, Formula]])
    size: Formula = 0


def plan(
    main: mlir.Op,
    shapes: Shapes,
    launches: Sequence[Sequence[mlir.Op]] = (),
    spared: Sequence[mlir.Op] = (),
    counted: bool = False,
) -> Plan:
    """Assign an offset to every ``memref.alloc`` of ``main`` except those of ``spared``.

    The operations of one launch run interleaved: a buffer that one of them accesses is live during all of
    them. ``counted``: no slot has a negative size, even for sizes that are rejected, because ``main`` reads
    from slots.
    """
    statements = mlir.operations(mlir.block_of(main))
    position = _Positions({statement: number for number, statement in enumerate(statements)})
    for launch in launches:
        position.update(dict.fromkeys(launch, position[launch[0]]))
    excluded = set(spared)
    slots = Slots()
    placed: list[tuple[mlir.Op, int]] = []
    lives = [
        (_life(alloc, position), alloc) for alloc in mlir.named(main, "memref.alloc") if alloc not in excluded
    ]
    for (first, last), alloc in sorted(lives, key=lambda entry: entry[0][0]):
        placed.append((alloc, slots.place(_bytes_of(alloc, shapes), first, last)))
    sizes = [aligned(_at_least_none(size) if counted else size) for size in slots.sizes]
    offsets = ends([0, *sizes[:-1]])
    return Plan([(alloc, offsets[slot]) for alloc, slot in placed], _sum(Counter(sizes)))


class _Positions(dict[mlir.Op, int]):
    """The number of the statement that an operation is or is nested in."""

    def __missing__(self, operation: mlir.Op) -> int:
        return self[mlir.parent_of(operation)]


def _at_least_none(size: Formula) -> Formula:
    terms = polynomial(size)
    if terms is not None and all(coefficient > 0 for coefficient in terms.values()):
        return size
    return apply("max", size, 0)


def aligned(size: Formula) -> Formula:
    return apply("roundup", size, ALIGNMENT)


def _sum(sizes: Counter[Formula]) -> Formula:
    """The sum of sizes, with equal terms as one product: manifests contain it as text."""
    total: Formula = 0
    for size, count in sizes.items():
        total = add(total, mul(count, size))
    return total


def ends(sizes: list[Formula]) -> list[Formula]:
    """The end offsets of consecutive areas.

    Each is a sum of one term per distinct size: a formula as deep as a long program would exceed Python's
    recursion limit.
    """
    static = 0
    counts: Counter[Formula] = Counter()
    symbolic: Formula = 0
    results: list[Formula] = []
    for size in sizes:
        if isinstance(size, int):
            static += size
        else:
            counts[size] += 1
            symbolic = _sum(counts)
        results.append(add(symbolic, static))
    return results


def _bytes_of(alloc: mlir.Op, shapes: Shapes) -> Formula:
    buffer = alloc.results[0]
    width = memory.element_bytes(mlir.element_type(buffer.type))
    size = normalize(mul(width, product(shapes.sizes(buffer))))
    return aligned(size) if isinstance(size, int) else size


class Slots:
    """The slots of the workspace; buffers are placed in the order in which their live ranges begin."""

    def __init__(self) -> None:
        self.sizes: list[Formula] = []
        self._busy: list[tuple[int, int]] = []
        #: Free slots: those of static size as (size, number), those of symbolic size as number.
        self._known: list[tuple[int, int]] = []
        self._open: list[int] = []

    def place(self, size: Formula, first: int, last: int) -> int:
        """The slot of a buffer of ``size`` that is live from ``first`` to ``last``."""
        while self._busy and self._busy[0][0] < first:
            self._release(heapq.heappop(self._busy)[1])
        number = self._known_fit(size) if isinstance(size, int) else self._open_fit(size)
        if number is None:
            number = len(self.sizes)
            self.sizes.append(size)
        heapq.heappush(self._busy, (last, number))
        return number

    def _release(self, number: int) -> None:
        size = self.sizes[number]
        if isinstance(size, int):
            bisect.insort(self._known, (size, number))
        else:
            bisect.insort(self._open, number)

    def _known_fit(self, size: int) -> int | None:
        """The smallest free slot that is large enough, else the largest, which grows."""
        if not self._known:
            return None
        place = bisect.bisect_left(self._known, (size, 0))
        capacity, number = self._known.pop(min(place, len(self._known) - 1))
        self.sizes[number] = max(capacity, size)
        return number

    def _open_fit(self, size: Formula) -> int | None:
        """A free slot of the same size, else the first that is provably large enough."""
        free = sorted([*self._open, *(number for _, number in self._known)])
        number = next((number for number in free if self.sizes[number] == size), None)
        if number is None:
            number = next((slot for slot in free if proves(size, self.sizes[slot], equal=False)), None)
        if number in self._open:
            self._open.remove(number)
        elif number is not None:
            self._known = [entry for entry in self._known if entry[1] != number]
        return number


def _life(alloc: mlir.Op, position: _Positions) -> tuple[int, int]:
    """The first and the last statement that accesses the allocation or a possible view of it."""
    first = last = position[alloc]
    touched: list[int] = []
    visited: set[mlir.Value] = set()
    pending = [alloc.results[0]]
    while pending:
        buffer = pending.pop()
        if buffer in visited:
            continue
        visited.add(buffer)
        for user, _ in mlir.uses(buffer):
            touched.append(position[user])
            pending.extend(_may_be_views(user))
    nested = mlir.name_of(mlir.parent_of(alloc)) != "func.func"
    if touched:
        first, last = (min(first, *touched), max(first, *touched)) if nested else (min(touched), max(touched))
    return first, last


def _may_be_views(user: mlir.Op) -> list[mlir.Value]:
    name = mlir.name_of(user)
    if name in ("scf.yield", "scf.condition"):
        return _buffers_of(mlir.parent_of(user))
    if name.startswith("scf."):
        return _buffers_of(user)
    return [result for result in user.results if mlir.is_memref(result.type)]


def _buffers_of(control: mlir.Op) -> list[mlir.Value]:
    """The results and region arguments of a control flow operation that are buffers."""
    values = list(control.results)
    for region in control.operation.regions:
        for block in region.blocks:
            values.extend(block.arguments)
    return [value for value in values if mlir.is_memref(value.type)]

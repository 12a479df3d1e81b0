"""Workspace planning: every allocation of ``main`` becomes an offset in one workspace.

A buffer is live from the first to the last statement of the function's block that accesses it or a view of
it; a buffer inside a loop or branch is live during that whole statement. Buffers with disjoint live ranges
share bytes: those whose sizes are multiples of one monomial of symbols, such as all static ones, have an area
in which each is at the lowest offset that is free during its life, the largest first. Other buffers, and the
smallest of long programs, share slots; a slot of symbolic size is reused only by buffers that are provably
not larger.
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
from kcache_compiler.shapes.formula import Formula, add, apply, mul, normalize, polynomial, product, proves

ALIGNMENT = 64
#: Buffers of an area at most: placing takes time quadratic in their number.
AREA_BUFFERS = 1024

#: The first and the last statement during which a buffer is live.
_Life = tuple[int, int]


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
    lives = [
        (_life(alloc, position), alloc) for alloc in mlir.named(main, "memref.alloc") if alloc not in excluded
    ]
    lives.sort(key=lambda entry: entry[0][0])
    sizes = [_bytes_of(alloc, shapes) for _, alloc in lives]
    areas, rest = _areas([life for life, _ in lives], sizes)
    offsets: dict[int, Formula] = {}
    end: Formula = 0
    for area in areas:
        offsets |= {number: add(end, mul(unit, area.monomial)) for number, unit in area.offsets.items()}
        end = add(end, mul(area.size, area.monomial))
    slots = Slots()
    numbers = {number: slots.place(sizes[number], *lives[number][0]) for number in rest}
    ended = ends([aligned(_at_least_none(size) if counted else size) for size in slots.sizes])
    begins = [0, *ended]
    offsets |= {number: add(end, begins[slot]) for number, slot in numbers.items()}
    placed = [(alloc, offsets[number]) for number, (_, alloc) in enumerate(lives)]
    return Plan(placed, add(end, ended[-1]) if ended else end)


@dataclass(frozen=True)
class _Area:
    """Buffers whose sizes and ``offsets``, by number, are multiples of ``monomial``, as is ``size``."""

    monomial: Formula
    offsets: dict[int, int]
    size: int


def _areas(lives: Sequence[_Life], sizes: Sequence[Formula]) -> tuple[list[_Area], list[int]]:
    """The areas of buffers, and the buffers that are in none."""
    grouped: dict[tuple[str, ...], dict[int, int]] = {}
    rest: list[int] = []
    for number, size in enumerate(sizes):
        terms = {(): 0} if size == 0 else polynomial(size) or {}
        if len(terms) != 1:
            rest.append(number)
            continue
        ((names, bytes_of_one),) = terms.items()
        rounded = -(-bytes_of_one // ALIGNMENT) * ALIGNMENT
        if names and 8 * rounded > 9 * bytes_of_one:
            rest.append(number)
        else:
            grouped.setdefault(names, {})[number] = rounded
    areas: list[_Area] = []
    for names, units in grouped.items():
        chosen = sorted(units, key=lambda number: (-units[number], number))
        rest += chosen[AREA_BUFFERS:]
        del chosen[AREA_BUFFERS:]
        offsets, end = lowest_offsets([(*lives[number], units[number]) for number in chosen])
        areas.append(_Area(product(list(names)), dict(zip(chosen, offsets, strict=True)), end))
    return areas, sorted(rest)


def lowest_offsets(buffers: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """For buffers of first and last statement and size, in order, the lowest offset at which each is apart
    from those before it that are live during its life; and the end of all.
    """
    placed: list[tuple[int, int, int, int]] = []
    offsets: list[int] = []
    for first, last, size in buffers:
        offset = 0
        for begin, end, other_first, other_last in placed:
            if other_first <= last and first <= other_last:
                if begin - offset >= size:
                    break
                offset = max(offset, end)
        bisect.insort(placed, (offset, offset + size, first, last))
        offsets.append(offset)
    return offsets, max((end for _, end, _, _ in placed), default=0)


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

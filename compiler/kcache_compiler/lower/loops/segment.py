"""The loops of one segment of a launch, as IR.

Accumulators stay in registers over the loops that only reduce.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kcache_compiler.lower.loops import masked_remainder as tails
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops import streaming_stores as streams
from kcache_compiler.lower.loops.elements import Elements, Registers, forget, minus
from kcache_compiler.lower.loops.selections import chooses
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.passes.expand_math import length_of
from kcache_compiler.passes.fast_math import free_results, free_sums
from kcache_compiler.schedule.loop_nest import Access, Nest
from kcache_compiler.schedule.loops import Statement
from kcache_compiler.shapes.formula import Formula

#: Operations that an innermost loop may come to when it is written out.
UNROLLED = 64
#: Elements that one accumulator takes before it is added to the total, where the order of sums is free.
BLOCK = 4096

#: Operations that the body of a pass over accumulators in memory may come to, for each row that it takes in.
ROW_OPERATIONS = 8

#: Elements that are first asked at once whether any of them changes a total.
ASKED = 64


@dataclass(frozen=True)
class Slot:
    """An accumulator or result of a statement: which of its accesses, and the loop it is carried from."""

    statement: int
    access: int
    level: int


Key = TypeVar("Key")
#: One iteration: new values of what the loop carries.
LoopBody: TypeAlias = Callable[[mlir.Value, "dict[Slot, mlir.Value]"], "dict[Slot, mlir.Value]"]


def slots_of(segment: tuple[Statement, ...], shared: int) -> list[Slot]:
    return [
        Slot(number, position, level_of(one.nest, access, shared))
        for number, one in enumerate(segment)
        for position, access in enumerate(one.nest.accesses)
        if access.written
    ]


def for_loop(
    bounds: tuple[mlir.Value, mlir.Value],
    step: int,
    carried: list[mlir.Value],
    annotation: mlir.Attribute | None = None,
) -> mlir.Op:
    return mlir.for_loop(bounds, mlir.constant(step), carried, annotation)


def carry(
    bounds: tuple[mlir.Value, mlir.Value],
    step: int,
    values: dict[Key, mlir.Value],
    body: Callable[[mlir.Value, dict[Key, mlir.Value]], dict[Key, mlir.Value]],
    annotation: mlir.Attribute | None = None,
) -> dict[Key, mlir.Value]:
    """A loop that carries ``values``; ``body`` gives them for the next iteration."""
    kinds = [value.type for value in values.values()]
    loop = for_loop(bounds, step, [memory.to_carried(value) for value in values.values()], annotation)
    with mlir.at_end(mlir.block_of(loop)):
        counter, *raw = list(mlir.block_of(loop).arguments)
        inside = [memory.from_carried(value, kind) for value, kind in zip(raw, kinds, strict=True)]
        results = body(counter, dict(zip(values, inside, strict=True)))
        scf.yield_([memory.to_carried(results[slot]) for slot in values])
    final = [memory.from_carried(value, kind) for value, kind in zip(loop.results, kinds, strict=True)]
    return dict(zip(values, final, strict=True))


def _bits(value: mlir.Value) -> mlir.Value:
    """A number as an integer of as many bits."""
    kind = str(value.type)
    if not kind.startswith(("f", "bf")):
        return value
    return arith.bitcast(mlir.type_of("i" + kind.lstrip("bf")), value)


def level_of(nest: Nest, access: Access, shared: int) -> int:
    """The outermost loop of the segment from which on ``access`` stays at one element."""
    level = len(nest.axes)
    while level > shared and access.strides[level - 1] == 0:
        level -= 1
    return level


@dataclass
class Loops:
    """The loops of one segment."""

    writer: Elements
    segment: tuple[Statement, ...]
    slots: list[Slot]

    def access(self, slot: Slot) -> Access:
        return self.segment[slot.statement].nest.accesses[slot.access]

    @property
    def depth(self) -> int:
        return len(self.segment[0].nest.axes)

    def run(
        self,
        position: int,
        counters: list[mlir.Value],
        registers: Registers,
        carried: dict[Slot, mlir.Value],
    ) -> dict[Slot, mlir.Value]:
        """Loops from ``position`` inwards; new values of what is ``carried`` into them."""
        if position == self.depth:
            return self.bodies(counters, registers, carried)
        starting = [slot for slot in self.slots if slot.level == position]
        before = {slot: self.writer.read(self.access(slot), counters, registers) for slot in starting}
        rows = self._sums(before) if self._of_rows(position) else set[Slot]()
        rows = {slot for slot in rows if self.access(slot).buffer in self.writer.totals}
        zeros = {slot: mlir.float_constant(0, before[slot].type) for slot in rows}
        results = self._loop(position, counters, registers, {**carried, **before, **zeros})
        for slot in rows:  # a row's own sum, so that errors do not grow with all the rows of a chunk
            results[slot] = arith.addf(before[slot], results[slot])
        for slot in starting:
            self.writer.write_back(self.access(slot), counters, registers, results[slot])
        return {slot: results[slot] for slot in carried}

    def _of_rows(self, position: int) -> bool:
        """Whether the loop is that over one row of several, whose totals a chunk adds up."""
        fused = self.writer.fused
        return position == fused.shared and len(fused.segments) > 1

    def _loop(
        self,
        position: int,
        counters: list[mlir.Value],
        registers: Registers,
        values: dict[Slot, mlir.Value],
    ) -> dict[Slot, mlir.Value]:
        forget(registers, {self.access(slot).buffer for slot in self.slots})
        nest = self.segment[0].nest
        size = nest.axes[position].size
        innermost = position == self.depth - 1
        known = isinstance(size, int) and position not in self.writer.fused.cut

        def step(counter: mlir.Value, inside: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            return self.run(position + 1, [*counters, counter], dict(registers), inside)

        if innermost and known and isinstance(size, int) and size * self._operations() <= UNROLLED:
            for number in range(size):
                values = step(mlir.constant(number), values)
            return values
        bounds = self.writer.bounds_of(nest, position)
        if innermost and not (known and isinstance(size, int) and size <= 2 * BLOCK) and self._sums(values):
            return self._in_blocks(bounds, values, step)
        if innermost and self._asks(size, values):
            return self._asked(bounds, values, step)
        if not values and self._side_by_side(position):
            self._jammed(bounds, counters, registers)
            return {}
        rows = self._rows(position) if not values else 1
        if rows > 1:
            self._by_rows(bounds, counters, rows, registers, step)
            return {}
        passing = [self.access(slot) for slot in self.slots if self.access(slot).buffer in self.writer.blocks]
        if innermost and passing and not values:
            self._past_caches(bounds, counters, passing, step)
            return {}
        mark = self._interleaved(values) if innermost else None
        if innermost and known and isinstance(size, int) and self._splits(size, values):
            lanes = self.writer.fused.lanes
            middle = mlir.constant(size - size % (tails.UNROLLED * lanes))
            values = carry((bounds[0], middle), 1, values, step, mark)
            return carry((middle, bounds[1]), 1, values, step, tails.masked_annotation(lanes))
        return carry(bounds, 1, values, step, mark)

    def _interleaved(self, values: dict[Slot, mlir.Value]) -> mlir.Attribute | None:
        """Long bodies wait for their own results, and LLVM leaves them alone: two vectors in turns do not."""
        if self.writer.fused.turns:
            return tails.interleave_annotation(self.writer.fused.turns) if self._suits() else None
        long = tails.LONG <= self._operations() <= tails.LONGEST and not values
        return tails.interleave_annotation(4) if long and self.writer.fused.lanes and self._suits() else None

    def _suits(self) -> bool:
        return tails.suits(self.segment, self.writer.codes, self.writer.fused.unstored)

    def _splits(self, size: int, values: dict[Slot, mlir.Value]) -> bool:
        """Whole vectors leave something of a row, and nothing that it carries has an order to keep."""
        lanes = self.writer.fused.lanes
        if not lanes or size < lanes or size % (tails.UNROLLED * lanes) == 0:
            return False
        free: set[Slot] = set()
        for number, statement in enumerate(self.segment):
            found = free_results(self.writer.codes[statement.number].generic)
            slots = [slot for slot in self.slots if slot.statement == number]
            free |= {slot for slot, one in zip(slots, found, strict=True) if one}
        return set(values) <= free and self._suits()

    def _side_by_side(self, position: int) -> bool:
        """Whether this is the split axis, right around one that its totals lie along."""
        nests = [statement.nest for statement in self.segment]
        if position != self.depth - 2 or position != self.writer.fused.cut[1]:
            return False
        size = nests[0].axes[-1].size
        few = isinstance(size, int) and size * self._operations() <= UNROLLED
        return few and all(nest.axes[-1].parallel for nest in nests)

    def _jammed(
        self, bounds: tuple[mlir.Value, mlir.Value], counters: list[mlir.Value], registers: Registers
    ) -> None:
        """The loop over the split axis, the innermost written out, with all totals in registers."""
        size = self.segment[0].nest.axes[-1].size
        assert isinstance(size, int)
        slots = [slot for slot in self.slots if self.access(slot).buffer in self.writer.totals]
        along = [mlir.constant(number) for number in range(size)]
        keys = [(slot, number) for number in range(size) for slot in slots]

        def step(
            counter: mlir.Value, inside: dict[tuple[Slot, int], mlir.Value]
        ) -> dict[tuple[Slot, int], mlir.Value]:
            results: dict[tuple[Slot, int], mlir.Value] = {}
            for number, last in enumerate(along):
                carried = {slot: inside[slot, number] for slot in slots}
                found = self.bodies([*counters, counter, last], dict(registers), carried)
                results |= {(slot, number): value for slot, value in found.items()}
            return results

        def here(number: int) -> list[mlir.Value]:
            return [*counters, mlir.constant(0), along[number]]

        start = {(slot, n): self.writer.read(self.access(slot), here(n), dict(registers)) for slot, n in keys}
        final = carry(bounds, 1, start, step)
        for slot, number in keys:
            self.writer.write_back(self.access(slot), here(number), {}, final[slot, number])

    def _rows(self, position: int) -> int:
        """How many iterations one pass of the innermost loop takes in: of a reduction right around it into
        accumulators along it, each of which is then read and written once for so many.
        """
        nests = [statement.nest for statement in self.segment]
        inner = self.depth - 1
        around = position == inner - 1 and position != self.writer.fused.sliced
        if not around or any(nest.axes[position].parallel or not nest.axes[inner].parallel for nest in nests):
            return 1
        strides = [self.access(slot).strides for slot in self.slots]
        if any(one[position] != 0 or one[inner] == 0 for one in strides):
            return 1
        rows = most = self.writer.fused.together
        while rows * self._operations() > ROW_OPERATIONS * most:
            rows //= 2
        size = nests[0].axes[position].size
        return rows if not isinstance(size, int) or size >= rows else 1

    def _by_rows(
        self,
        bounds: tuple[mlir.Value, mlir.Value],
        counters: list[mlir.Value],
        rows: int,
        known: Registers,
        step: LoopBody,
    ) -> None:
        """``rows`` iterations inside the innermost loop, in their order, then what is left one by one."""
        low, high = bounds
        left = arith.andi(minus(high, low), mlir.constant(rows - 1))
        middle = minus(high, left)
        outer = for_loop((low, middle), rows, [])
        with mlir.at_end(mlir.block_of(outer)):
            first = mlir.block_of(outer).arguments[0]
            inner = for_loop(self.writer.bounds_of(self.segment[0].nest, self.depth - 1), 1, [])
            with mlir.at_end(mlir.block_of(inner)):
                along = mlir.block_of(inner).arguments[0]
                registers = dict(known)
                for row in range(rows):
                    at = memory.plus(first, mlir.constant(row))
                    self.bodies([*counters, at, along], registers, {})
                scf.yield_([])
            scf.yield_([])
        carry((middle, high), 1, {}, step)

    def _past_caches(
        self,
        bounds: tuple[mlir.Value, mlir.Value],
        counters: list[mlir.Value],
        passing: list[Access],
        step: LoopBody,
    ) -> None:
        """The loop in blocks that begin at multiples of their length, each flushed at its end."""
        low, high = bounds
        first = arith.andi(low, mlir.constant(-streams.BLOCK))
        outer = for_loop((first, high), streams.BLOCK, [])
        with mlir.at_end(mlir.block_of(outer)):
            begun = mlir.block_of(outer).arguments[0]
            start = arith.maxsi(begun, low)
            end = memory.plus(begun, mlir.constant(streams.BLOCK))
            end = arith.minsi(end, high)
            self.writer.begun = begun
            self.writer.prefetch([*counters, begun])
            carry((start, end), 1, {}, step, self._interleaved({}))
            for access in passing:
                self.writer.flush(access, [*counters, start], end)
            scf.yield_([])
        self.writer.begun = None

    def _operations(self) -> int:
        """Operations of one innermost iteration."""
        codes = (self.writer.codes[statement.number] for statement in self.segment)
        return sum(length_of(op) for code in codes for op in mlir.operations(code.body))

    def _sums(self, values: dict[Slot, mlir.Value]) -> set[Slot]:
        """Those of ``values`` that are sums whose order is free."""
        found: set[Slot] = set()
        for number, statement in enumerate(self.segment):
            free = free_sums(self.writer.codes[statement.number].generic)
            slots = [slot for slot in self.slots if slot.statement == number]
            found |= {slot for slot, one in zip(slots, free, strict=True) if one and slot in values}
        return found

    def _in_blocks(
        self, bounds: tuple[mlir.Value, mlir.Value], values: dict[Slot, mlir.Value], step: LoopBody
    ) -> dict[Slot, mlir.Value]:
        """Sums of blocks, then their sum: so errors grow with the length of a block, not of the whole."""
        sums = self._sums(values)

        def block(start: mlir.Value, before: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            end = memory.plus(start, mlir.constant(BLOCK))
            end = arith.minsi(end, bounds[1])
            first = {
                slot: mlir.float_constant(0, value.type) if slot in sums else value
                for slot, value in before.items()
            }
            after = carry((start, end), 1, first, step, self._interleaved(first))
            return {
                slot: arith.addf(before[slot], value) if slot in sums else value
                for slot, value in after.items()
            }

        return carry(bounds, BLOCK, values, block)

    def _asks(self, size: Formula, values: dict[Slot, mlir.Value]) -> bool:
        """Whether totals are elements that are chosen, which few elements of a long row change."""
        long = not isinstance(size, int) or size >= 4 * ASKED
        if (
            not self.writer.asks
            or not long
            or len(self.segment) != 1
            or not values
            or set(values) != set(self.slots)
        ):
            return False
        return chooses(self.writer.codes[self.segment[0].number].generic)

    def _asked(
        self, bounds: tuple[mlir.Value, mlir.Value], values: dict[Slot, mlir.Value], step: LoopBody
    ) -> dict[Slot, mlir.Value]:
        """Blocks in which no element changes a total by a bit are left out, the others taken in order."""
        low, high = bounds
        rest = arith.remsi(minus(high, low), mlir.constant(ASKED))
        middle = minus(high, rest)
        kinds = [memory.to_carried(value).type for value in values.values()]

        def block(start: mlir.Value, before: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            inside = (start, memory.plus(start, mlir.constant(ASKED)))

            def ask(place: mlir.Value, known: dict[str, mlir.Value]) -> dict[str, mlir.Value]:
                after, changed = step(place, before), known["changed"]
                for slot, value in before.items():
                    other = arith.cmpi(arith.CmpIPredicate.ne, _bits(after[slot]), _bits(value))
                    changed = arith.ori(changed, other)
                return {"changed": changed}

            changed = carry(inside, 1, {"changed": mlir.constant(0, "i1")}, ask)["changed"]
            chosen = mlir.if_else(changed, kinds)
            with mlir.at_end(mlir.block_of(chosen, 0)):
                after = carry(inside, 1, before, step)
                scf.yield_([memory.to_carried(after[slot]) for slot in before])
            with mlir.at_end(mlir.block_of(chosen, 1)):
                scf.yield_([memory.to_carried(value) for value in before.values()])
            return {
                slot: memory.from_carried(raw, value.type)
                for (slot, value), raw in zip(before.items(), chosen.results, strict=True)
            }

        return carry((middle, high), 1, carry((low, middle), ASKED, values, block), step)

    def bodies(
        self, counters: list[mlir.Value], registers: Registers, carried: dict[Slot, mlir.Value]
    ) -> dict[Slot, mlir.Value]:
        """All statements of the segment, once; new values of what is ``carried``."""
        results: dict[Slot, mlir.Value] = {}
        for number, statement in enumerate(self.segment):
            slots = [slot for slot in self.slots if slot.statement == number]
            yielded = self._body(statement, slots, counters, registers, carried)
            for slot, value in zip(slots, yielded, strict=True):
                if slot in carried:
                    results[slot] = value
                else:
                    self.writer.write_back(self.access(slot), counters, registers, value)
        return results

    def _body(
        self,
        statement: Statement,
        slots: list[Slot],
        counters: list[mlir.Value],
        registers: Registers,
        carried: dict[Slot, mlir.Value],
    ) -> list[mlir.Value]:
        """Clone the body of a statement at the current point; gives the values it yields."""
        writer = self.writer
        code = writer.codes[statement.number]
        operands = list(code.generic.operands)
        accesses = dict(zip(code.numbers, statement.nest.accesses, strict=True))
        outputs = iter(slots)
        mapping = dict(writer.scalars)
        for number, argument in enumerate(code.body.arguments):
            slot = next(outputs) if number >= code.inputs else None
            if not list(argument.uses):
                continue
            if slot in carried:
                mapping[argument] = carried[slot]
            elif number in accesses:
                mapping[argument] = writer.read(accesses[number], counters, registers)
            elif operands[number] in mapping:
                mapping[argument] = mapping[operands[number]]
            else:
                mapping[argument] = mlir.clone(mlir.definition(operands[number])).results[0]
        indices = {
            axis.sources[0]: counter
            for axis, counter in zip(statement.nest.axes, counters, strict=True)
            if len(axis.sources) == 1
        }
        return memory.clone_body(code.body, mapping, writer.views, indices)

"""The body of a slice function: the loops of a group and what runs in them, as IR.

A value that was just computed is taken from its register; memory is read where none is known. Accumulators
stay in registers over the loops that only reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kcache_compiler.codegen import memory, mlir, streams, tails
from kcache_compiler.codegen.combiners import Combiner
from kcache_compiler.codegen.formula import Formula
from kcache_compiler.codegen.memory import Pointer
from kcache_compiler.codegen.nest import Access, Nest
from kcache_compiler.codegen.numerics import free_results, free_sums
from kcache_compiler.codegen.turned import Tiles
from kcache_compiler.errors import CompileFailed
from kcache_compiler.schedule.loops import Fused, Statement, Turn
from kcache_compiler.schedule.split import Split, Totals

#: Operations that an innermost loop may come to when it is written out.
UNROLLED = 64
#: Elements that one accumulator takes before it is added to the total, where the order of sums is free.
BLOCK = 4096

#: Operations that the body of a pass over accumulators in memory may come to, for each row that it takes in.
ROW_OPERATIONS = 8

#: An element of a buffer at the current iteration: buffer, offset, strides up to the last that moves.
Element: TypeAlias = tuple[int, Formula, tuple[Formula, ...]]
Registers: TypeAlias = dict[Element, mlir.Value]


@dataclass(frozen=True)
class Code:
    """What a statement runs: its generic and the operand numbers of the nest's accesses."""

    generic: mlir.Op
    numbers: Sequence[int]

    @property
    def inputs(self) -> int:
        return int(next(iter(self.generic.attributes["operandSegmentSizes"])))

    @property
    def body(self) -> mlir.Block:
        return mlir.block_of(self.generic)


@dataclass(frozen=True)
class Slot:
    """An accumulator or result of a statement: which of its accesses, and the loop it is carried from."""

    statement: int
    access: int
    level: int


@dataclass(frozen=True)
class Chunks:
    """Where the totals of the chunks of a split axis are, and what combines them, by buffer."""

    base: mlir.Value
    combiners: Mapping[int, Combiner]


Key = TypeVar("Key")
#: One iteration: new values of what the loop carries.
Step: TypeAlias = Callable[[mlir.Value, "dict[Slot, mlir.Value]"], "dict[Slot, mlir.Value]"]


class Writer:
    """Writes the loops of ``fused`` at the current point.

    ``pointers`` by buffer number, ``views`` by captured buffer; ``emit`` gives the i64 of a formula;
    ``scalars`` maps values from outside.
    """

    def __init__(
        self,
        fused: Fused,
        codes: Mapping[int, Code],
        pointers: Mapping[int, Pointer],
        views: dict[Any, Pointer],
        scalars: Mapping[Any, mlir.Value],
        dims: mlir.Value,
        bounds: tuple[mlir.Value, mlir.Value],
        chunks: Chunks | None = None,
    ) -> None:
        self.fused = fused
        self.chunks = chunks
        #: Of the chunk at hand: first and last step of the split axis, and its totals by buffer.
        self.chunk = bounds
        self.totals: dict[int, Pointer] = {}
        self.codes = codes
        self.pointers = pointers
        self.views = views
        self.scalars = scalars
        self.dims = dims
        self.bounds = bounds
        self.cache: dict[Formula, mlir.Value] = {}
        self.starts: dict[tuple[int, Formula], Pointer] = {}
        #: Of results that go past the caches the block on the stack; while one is filled, its first counter.
        self.blocks: dict[int, Pointer] = {
            number: streams.block(pointers[number].element) for number in sorted(fused.streamed)
        }
        self.begun: mlir.Value | None = None
        for statement in fused.statements:
            self._prepare(statement.nest)

    def _prepare(self, nest: Nest) -> None:
        """Emit sizes, strides and starts of accesses where all loops see them."""
        for axis in nest.axes:
            self._value(axis.size)
        for access in nest.accesses:
            for stride in access.strides:
                self._value(stride)
            if access.buffer in self.pointers and self._totals(access) is None:
                self._start(access)

    def _value(self, formula: Formula) -> mlir.Value:
        return memory.emit_formula(formula, self.dims, self.cache)

    def _totals(self, access: Access) -> Totals | None:
        return None if self.fused.split is None else self.fused.split.of(access.buffer)

    def _start(self, access: Access) -> Pointer:
        if access.buffer in self.totals:
            return self.totals[access.buffer]
        key = (access.buffer, access.offset)
        if key not in self.starts:
            base = self.pointers[access.buffer]
            self.starts[key] = Pointer(memory.shift(base, self._value(access.offset)), base.element, [])
        return self.starts[key]

    def write(self) -> None:
        if self.fused.split is not None:
            self._chunked(self.fused.split)
        elif self.fused.turn is None:
            self._shared(0, [], {})
        else:
            self._turned(self.fused.turn)
        if self.fused.streamed:
            streams.fence()

    def _chunked(self, split: Split) -> None:
        """All loops once for each chunk, with totals of its own."""
        assert self.chunks is not None
        size = self._value(self.fused.statements[0].nest.axes[split.position].size)
        length = self._value(split.length)
        places = [self._value(one.offset) for one in split.totals]
        loop = for_loop(self.bounds, 1, [])
        with mlir.at_end(mlir.block_of(loop)):
            number = mlir.block_of(loop).arguments[0]
            low = memory.times(number, length)
            high = mlir.value("arith.minsi", [memory.plus(low, length), size], memory.i64())
            self.chunk = low, high
            for one, place in zip(split.totals, places, strict=True):
                moved = memory.plus(place, memory.times(number, mlir.constant(one.bytes)))
                base = memory.advance(self.chunks.base, mlir.type_of("i8"), moved)
                pointer = Pointer(base, self.pointers[one.buffer].element, [])
                self.totals[one.buffer] = pointer
                for place in range(0 if split.begun else one.count):
                    neutral = self.chunks.combiners[one.buffer].neutral(pointer.element)
                    memory.store(pointer, mlir.constant(place), neutral)
            self._shared(0, [], {})
            mlir.create("scf.yield")

    def _turned(self, turn: Turn) -> None:
        """Loops over all axes but the two of the tiles, then these."""
        segment = self.fused.segments[0]
        nest = segment[0].nest
        slots = slots_of(segment, len(nest.axes))

        def bodies(counters: list[mlir.Value], known: dict[Access, mlir.Value]) -> None:
            registers = {element_of(access): value for access, value in known.items()}
            Loops(self, segment, slots).run(len(counters), counters, registers, {})

        def step(access: Access) -> mlir.Value:
            return self._value(access.strides[turn.along])

        starts = [self._start(access) for access in turn.accesses]
        tiles = Tiles(turn, starts, self._offset, step, bodies)
        others = [p for p in range(len(nest.axes)) if p not in (turn.across, turn.along)]
        self._around(nest, others, {}, tiles)

    def _around(
        self, nest: Nest, positions: list[int], counters: dict[int, mlir.Value], tiles: Tiles
    ) -> None:
        if not positions:
            across, along = (self.bounds_of(nest, p) for p in (tiles.turn.across, tiles.turn.along))
            tiles.write(counters, across, along)
            return
        loop = self.loop(nest, positions[0])
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            self._around(nest, positions[1:], {**counters, positions[0]: body.arguments[0]}, tiles)
            mlir.create("scf.yield")

    def _shared(self, position: int, counters: list[mlir.Value], registers: Registers) -> None:
        if position == self.fused.shared:
            for segment in self.fused.segments:
                self._segment(segment, counters, registers)
            return
        loop = self.loop(self.fused.statements[0].nest, position)
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            self._shared(position + 1, [*counters, body.arguments[0]], {})
            mlir.create("scf.yield")

    def bounds_of(self, nest: Nest, position: int) -> tuple[mlir.Value, mlir.Value]:
        if position == self.fused.sliced:
            return self.bounds
        if self.fused.split is not None and position == self.fused.split.position:
            return self.chunk
        return mlir.constant(0), self._value(nest.axes[position].size)

    def loop(self, nest: Nest, position: int) -> mlir.Op:
        return for_loop(self.bounds_of(nest, position), 1, [])

    def _segment(
        self, segment: tuple[Statement, ...], counters: list[mlir.Value], registers: Registers
    ) -> None:
        slots = slots_of(segment, self.fused.shared)
        Loops(self, segment, slots).run(len(counters), counters, registers, {})

    def read(self, access: Access, counters: list[mlir.Value], registers: Registers) -> mlir.Value:
        known = registers.get(element_of(access))
        if known is not None:
            return known
        if access.buffer in self.fused.unstored | self.fused.streamed:
            raise CompileFailed("launches", "a value that is not stored is read before it is computed")
        return memory.load(self._start(access), self._offset(access, counters))

    def write_back(
        self, access: Access, counters: list[mlir.Value], registers: Registers, value: mlir.Value
    ) -> None:
        """Store an element, unless nobody reads it from memory, and keep it in its register."""
        forget(registers, {access.buffer})
        registers[element_of(access)] = value
        if access.buffer in self.blocks and self.begun is not None:
            memory.store(self.blocks[access.buffer], minus(counters[-1], self.begun), value)
        elif access.buffer not in self.fused.unstored and not self._silent(access):
            memory.store(self._start(access), self._offset(access, counters), value)

    def _silent(self, access: Access) -> bool:
        split = self.fused.split
        return split is not None and split.totals_only and access.buffer not in self.totals

    def flush(self, access: Access, counters: list[mlir.Value], end: mlir.Value) -> None:
        """Store a block from the last of ``counters`` to ``end`` in the place of the result."""
        start, block = self._start(access), self.blocks[access.buffer]
        target = Pointer(memory.shift(start, self._offset(access, counters)), start.element, [])
        source = Pointer(memory.shift(block, minus(counters[-1], self.begun)), block.element, [])
        streams.flush(target, source, minus(end, counters[-1]))

    def prefetch(self, counters: list[mlir.Value]) -> None:
        """Ask for the block at ``counters`` of the rows to come."""
        if len(counters) != 2:
            return
        elements = {number: pointer.element for number, pointer in self.pointers.items()}
        for access, apart in streams.coming(self.fused, elements):
            start = self._start(access)
            place = Pointer(memory.shift(start, self._offset(access, counters)), start.element, [])
            streams.prefetch(place, apart)

    def _offset(self, access: Access, counters: list[mlir.Value]) -> mlir.Value:
        offset = mlir.constant(0)
        totals = self._totals(access)
        strides = access.strides if totals is None else totals.strides
        for counter, stride in zip(counters, strides, strict=False):
            if stride != 0:
                offset = memory.plus(offset, memory.times(counter, self._value(stride)))
        return offset


def slots_of(segment: tuple[Statement, ...], shared: int) -> list[Slot]:
    return [
        Slot(number, position, level_of(one.nest, access, shared))
        for number, one in enumerate(segment)
        for position, access in enumerate(one.nest.accesses)
        if access.written
    ]


def minus(a: mlir.Value, b: mlir.Value | None) -> mlir.Value:
    return mlir.value("arith.subi", [a, b], memory.i64())


def element_of(access: Access) -> Element:
    strides = list(access.strides)
    while strides and strides[-1] == 0:
        strides.pop()
    return access.buffer, access.offset, tuple(strides)


def forget(registers: Registers, buffers: set[int]) -> None:
    """Drop what is known of ``buffers``: it is written."""
    for key in [key for key in registers if key[0] in buffers]:
        del registers[key]


def for_loop(
    bounds: tuple[mlir.Value, mlir.Value], step: int, carried: list[mlir.Value], annotation: Any = None
) -> mlir.Op:
    types = [value.type for value in carried]
    marks = {} if annotation is None else {"loop_annotation": annotation}
    loop = mlir.create("scf.for", [*bounds, mlir.constant(step), *carried], types, marks, regions=1)
    mlir.new_block(loop, 0, [memory.i64(), *types])
    return loop


def carry(
    bounds: tuple[mlir.Value, mlir.Value],
    step: int,
    values: dict[Key, mlir.Value],
    body: Callable[[mlir.Value, dict[Key, mlir.Value]], dict[Key, mlir.Value]],
    annotation: Any = None,
) -> dict[Key, mlir.Value]:
    """A loop that carries ``values``; ``body`` gives them for the next iteration."""
    kinds = [value.type for value in values.values()]
    loop = for_loop(bounds, step, [memory.to_carried(value) for value in values.values()], annotation)
    with mlir.at_end(mlir.block_of(loop)):
        counter, *raw = list(mlir.block_of(loop).arguments)
        inside = [memory.from_carried(value, kind) for value, kind in zip(raw, kinds, strict=True)]
        results = body(counter, dict(zip(values, inside, strict=True)))
        mlir.create("scf.yield", [memory.to_carried(results[slot]) for slot in values])
    final = [memory.from_carried(value, kind) for value, kind in zip(loop.results, kinds, strict=True)]
    return dict(zip(values, final, strict=True))


def level_of(nest: Nest, access: Access, shared: int) -> int:
    """The outermost loop of the segment from which on ``access`` stays at one element."""
    level = len(nest.axes)
    while level > shared and access.strides[level - 1] == 0:
        level -= 1
    return level


@dataclass
class Loops:
    """The loops of one segment."""

    writer: Writer
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
        values = dict(carried)
        for slot in starting:
            values[slot] = self.writer.read(self.access(slot), counters, registers)
        results = self._loop(position, counters, registers, values)
        for slot in starting:
            self.writer.write_back(self.access(slot), counters, registers, results[slot])
        return {slot: results[slot] for slot in carried}

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
        if not values and self._side_by_side(position):
            self._jammed(bounds, counters)
            return {}
        rows = self._rows(position) if not values else 1
        if rows > 1:
            self._by_rows(bounds, counters, rows, step)
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
            return carry((middle, bounds[1]), 1, values, step, tails.masks(lanes))
        return carry(bounds, 1, values, step, mark)

    def _interleaved(self, values: dict[Slot, mlir.Value]) -> Any:
        """Long bodies wait for their own results, and LLVM leaves them alone: two vectors in turns do not."""
        if self.writer.fused.turns:
            return tails.turns(self.writer.fused.turns) if self._suits() else None
        long = tails.LONG <= self._operations() <= tails.LONGEST and not values
        return tails.turns(4) if long and self.writer.fused.lanes and self._suits() else None

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

    def _jammed(self, bounds: tuple[mlir.Value, mlir.Value], counters: list[mlir.Value]) -> None:
        """The loop over the split axis, the innermost written out, with all totals in registers."""
        size = self.segment[0].nest.axes[-1].size
        assert isinstance(size, int)
        slots = [slot for slot in self.slots if self.access(slot).buffer in self.writer.totals]
        along = [mlir.constant(number) for number in range(size)]
        keys = [(slot, number) for number in range(size) for slot in slots]

        def step(counter: mlir.Value, inside: dict[tuple[Slot, int], mlir.Value]) -> dict[Any, mlir.Value]:
            results: dict[Any, mlir.Value] = {}
            for number, last in enumerate(along):
                carried = {slot: inside[slot, number] for slot in slots}
                found = self.bodies([*counters, counter, last], {}, carried)
                results |= {(slot, number): value for slot, value in found.items()}
            return results

        def here(number: int) -> list[mlir.Value]:
            return [*counters, mlir.constant(0), along[number]]

        start = {(slot, n): self.writer.read(self.access(slot), here(n), {}) for slot, n in keys}
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
        step: Step,
    ) -> None:
        """``rows`` iterations inside the innermost loop, in their order, then what is left one by one."""
        low, high = bounds
        left = mlir.value("arith.andi", [minus(high, low), mlir.constant(rows - 1)], memory.i64())
        middle = minus(high, left)
        outer = for_loop((low, middle), rows, [])
        with mlir.at_end(mlir.block_of(outer)):
            first = mlir.block_of(outer).arguments[0]
            inner = for_loop(self.writer.bounds_of(self.segment[0].nest, self.depth - 1), 1, [])
            with mlir.at_end(mlir.block_of(inner)):
                along = mlir.block_of(inner).arguments[0]
                registers: Registers = {}
                for row in range(rows):
                    at = memory.plus(first, mlir.constant(row))
                    self.bodies([*counters, at, along], registers, {})
                mlir.create("scf.yield")
            mlir.create("scf.yield")
        carry((middle, high), 1, {}, step)

    def _past_caches(
        self,
        bounds: tuple[mlir.Value, mlir.Value],
        counters: list[mlir.Value],
        passing: list[Access],
        step: Step,
    ) -> None:
        """The loop in blocks that begin at multiples of their length, each flushed at its end."""
        low, high = bounds
        i64 = memory.i64()
        first = mlir.value("arith.andi", [low, mlir.constant(-streams.BLOCK)], i64)
        outer = for_loop((first, high), streams.BLOCK, [])
        with mlir.at_end(mlir.block_of(outer)):
            begun = mlir.block_of(outer).arguments[0]
            start = mlir.value("arith.maxsi", [begun, low], i64)
            end = memory.plus(begun, mlir.constant(streams.BLOCK))
            end = mlir.value("arith.minsi", [end, high], i64)
            self.writer.begun = begun
            self.writer.prefetch([*counters, begun])
            carry((start, end), 1, {}, step, self._interleaved({}))
            for access in passing:
                self.writer.flush(access, [*counters, start], end)
            mlir.create("scf.yield")
        self.writer.begun = None

    def _operations(self) -> int:
        """Operations of one innermost iteration."""
        codes = (self.writer.codes[statement.number] for statement in self.segment)
        return sum(len(mlir.operations(code.body)) for code in codes)

    def _sums(self, values: dict[Slot, mlir.Value]) -> set[Slot]:
        """Those of ``values`` that are sums whose order is free."""
        found: set[Slot] = set()
        for number, statement in enumerate(self.segment):
            free = free_sums(self.writer.codes[statement.number].generic)
            slots = [slot for slot in self.slots if slot.statement == number]
            found |= {slot for slot, one in zip(slots, free, strict=True) if one and slot in values}
        return found

    def _in_blocks(
        self, bounds: tuple[mlir.Value, mlir.Value], values: dict[Slot, mlir.Value], step: Step
    ) -> dict[Slot, mlir.Value]:
        """Sums of blocks, then their sum: so errors grow with the length of a block, not of the whole."""
        sums = self._sums(values)

        def block(start: mlir.Value, before: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            end = memory.plus(start, mlir.constant(BLOCK))
            end = mlir.value("arith.minsi", [end, bounds[1]], end.type)
            first = {
                slot: mlir.float_constant(0, value.type) if slot in sums else value
                for slot, value in before.items()
            }
            after = carry((start, end), 1, first, step, self._interleaved(first))
            return {
                slot: mlir.value("arith.addf", [before[slot], value], value.type) if slot in sums else value
                for slot, value in after.items()
            }

        return carry(bounds, BLOCK, values, block)

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
                mapping[argument] = mlir.clone(mlir.defining(operands[number])).results[0]
        indices = {
            axis.sources[0]: counter
            for axis, counter in zip(statement.nest.axes, counters, strict=True)
            if len(axis.sources) == 1
        }
        return memory.clone_body(code.body, mapping, writer.views, indices)

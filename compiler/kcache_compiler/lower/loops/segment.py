"""The loops of one segment of a launch, as IR.

Accumulators stay in registers across loops that only reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kcache_compiler.lower.loops import masked_remainder, memory
from kcache_compiler.lower.loops import streaming_stores as streams
from kcache_compiler.lower.loops.combiners import Fold, combiners_of
from kcache_compiler.lower.loops.elements import Elements, Registers, forget, minus
from kcache_compiler.lower.loops.selections import chooses
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.passes.fast_math import free_results, free_sums
from kcache_compiler.passes.inline_math_functions import operation_cost
from kcache_compiler.schedule.loop_nest import Access, Nest
from kcache_compiler.schedule.loops import Statement
from kcache_compiler.shapes.formula import Formula, mul

#: Maximum number of operations of an innermost loop that is fully unrolled, unless it is a loop of vectors.
UNROLLED = 64
#: Elements that a window slides at most from one result to the next, for LLVM to load it in vectors.
SLIDING = 4
#: Elements that are summed in one accumulator before it is added to the total, if reassociation is allowed.
BLOCK = 4096

#: Maximum number of operations, per row, in the body of a loop over accumulators in memory.
ROW_OPERATIONS = 8

#: Rows that one pass over sums in memory takes in: they are added up before they join a sum, so that its
#: error grows with a sixteenth of their number.
SUMMED_ROWS = 16
#: Rows that are a multiple of this many bytes apart share sets.
PAGE = 4096

#: Elements of a block that is first tested for an element that changes a total.
ASKED = 64


@dataclass(frozen=True)
class Slot:
    """An accumulator or result: its statement and access by number, and the loop level that carries it."""

    statement: int
    access: int
    level: int


Key = TypeVar("Key")
#: Emits one iteration; returns the new loop-carried values.
LoopBody: TypeAlias = Callable[[mlir.Value, "dict[Slot, mlir.Value]"], "dict[Slot, mlir.Value]"]


def slots_of(segment: tuple[Statement, ...], shared: int) -> list[Slot]:
    return [
        Slot(number, position, level_of(statement.nest, access, shared))
        for number, statement in enumerate(segment)
        for position, access in enumerate(statement.nest.accesses)
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
    """Emit a loop that carries ``values``; ``body`` returns the values of the next iteration."""
    kinds = [value.type for value in values.values()]
    loop = for_loop(bounds, step, [memory.to_carried(value) for value in values.values()], annotation)
    with mlir.at_end(mlir.block_of(loop)):
        counter, *raw = list(mlir.block_of(loop).arguments)
        values_inside = [memory.from_carried(value, kind) for value, kind in zip(raw, kinds, strict=True)]
        results = body(counter, dict(zip(values, values_inside, strict=True)))
        scf.yield_([memory.to_carried(results[slot]) for slot in values])
    final = [memory.from_carried(value, kind) for value, kind in zip(loop.results, kinds, strict=True)]
    return dict(zip(values, final, strict=True))


def _bits(value: mlir.Value) -> mlir.Value:
    """``value`` as an integer of the same width."""
    kind = str(value.type)
    if not kind.startswith(("f", "bf")):
        return value
    return arith.bitcast(mlir.type_of("i" + kind.lstrip("bf")), value)


def level_of(nest: Nest, access: Access, shared: int) -> int:
    """The outermost loop level of the segment in which ``access`` is invariant."""
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
        """Emit the loops from ``position`` inwards; returns the new values of ``carried``."""
        if position == self.depth:
            return self.bodies(counters, registers, carried)
        starting = [slot for slot in self.slots if slot.level == position]
        initial = {slot: self.writer.read(self.access(slot), counters, registers) for slot in starting}
        rows = self._sums(initial) if self._of_rows(position) else set[Slot]()
        rows = {slot for slot in rows if self.access(slot).buffer in self.writer.totals}
        zeros = {slot: mlir.float_constant(0, initial[slot].type) for slot in rows}
        results = self._loop(position, counters, registers, {**carried, **initial, **zeros})
        # A row is summed separately, so that the error does not grow with the number of rows of a chunk.
        for slot in rows:
            results[slot] = arith.addf(initial[slot], results[slot])
        for slot in starting:
            self.writer.write_back(self.access(slot), counters, registers, results[slot])
        return {slot: results[slot] for slot in carried}

    def _of_rows(self, position: int) -> bool:
        """Whether the loop iterates over one row of a chunk of several."""
        fused = self.writer.fused
        return position == fused.shared and len(fused.segments) > 1

    def _loop(
        self,
        position: int,
        counters: list[mlir.Value],
        registers: Registers,
        values: dict[Slot, mlir.Value],
    ) -> dict[Slot, mlir.Value]:
        """Write the loop over axis ``position`` in the form that fits it; returns the sums after it.

        Forms: unrolled, in blocks of independent sums, with a run-time choice between two, jammed with an
        outer loop, several rows together, with streaming stores, or one iteration after another.
        """
        forget(registers, {self.access(slot).buffer for slot in self.slots})
        nest = self.segment[0].nest
        size = nest.axes[position].size
        innermost = position == self.depth - 1
        is_static = isinstance(size, int) and position not in self.writer.fused.cut

        def step(counter: mlir.Value, carried: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            return self.run(position + 1, [*counters, counter], dict(registers), carried)

        short = isinstance(size, int) and size * self._operations() <= UNROLLED
        unrolls = innermost and short and not (isinstance(size, int) and self._splits(size, values))
        if is_static and isinstance(size, int) and (unrolls or self._slides(position)):
            for number in range(size):
                values = step(mlir.constant(number), values)
            return values
        bounds = self.writer.bounds_of(nest, position)
        if (
            innermost
            and not (is_static and isinstance(size, int) and size <= 2 * BLOCK)
            and self._sums(values)
        ):
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
        streamed = [
            self.access(slot) for slot in self.slots if self.access(slot).buffer in self.writer.blocks
        ]
        if innermost and streamed and not values:
            self._past_caches(bounds, counters, streamed, step)
            return {}
        mark = self._interleaved(values, size) if innermost else None
        if innermost and is_static and isinstance(size, int) and self._splits(size, values):
            return self._with_remainder(bounds[1], size, values, step)
        return carry(bounds, 1, values, step, mark)

    def _slides(self, position: int) -> bool:
        """Whether the loops from ``position`` inwards reduce a small window that slides along the loop around
        them, which LLVM vectorizes if it contains no loop.
        """
        around = position - 1
        while around >= self.writer.fused.shared and not self.segment[0].nest.axes[around].parallel:
            around -= 1
        if around < 0:
            return False
        count: Formula = self._operations()
        for statement in self.segment:
            reads = [access for access in statement.nest.accesses if not access.written]
            slides = all(access.strides[around] in range(SLIDING + 1) for access in reads)
            if not slides or any(axis.parallel for axis in statement.nest.axes[around + 1 :]):
                return False
        for axis in self.segment[0].nest.axes[around + 1 :]:
            count = mul(count, axis.size)
        return isinstance(count, int) and count <= UNROLLED

    def _with_remainder(
        self,
        high: mlir.Value,
        size: int,
        values: dict[Slot, mlir.Value],
        step: LoopBody,
    ) -> dict[Slot, mlir.Value]:
        """Emit a loop of whole vectors, then one of masked vectors.

        Totals of the second start from neutral elements, so that it does not wait for those of the first.
        """
        end, main = self._whole_vectors(size, values)
        middle = mlir.constant(end)
        totals = values
        if end > 0:
            totals = carry((mlir.constant(0), middle), 1, values, step, main)
        if end == size:
            return totals
        annotation = masked_remainder.masked_annotation(self.writer.fused.lanes)
        combiners = self._combiners(values)
        if set(combiners) != set(values):
            return carry((middle, high), 1, totals, step, annotation)
        neutral = {slot: combiners[slot].neutral(value.type) for slot, value in values.items()}
        rest = carry((middle, high), 1, neutral, step, annotation)
        return {slot: combiners[slot](totals[slot], rest[slot]) for slot in values}

    def _whole_vectors(self, size: int, values: dict[Slot, mlir.Value]) -> tuple[int, mlir.Attribute | None]:
        """The end of the loop of whole vectors in a row of ``size`` elements, and the loop's annotation."""
        lanes = self.writer.fused.lanes
        if self.writer.fused.short_lanes:
            end = size - size % lanes
            return end, self._interleaved(values, end)
        if self._has_narrow_elements():
            return size - size % (masked_remainder.UNROLLED * lanes), self._interleaved(values)
        count = masked_remainder.interleave_count(size // lanes)
        return size - size % (count * lanes), masked_remainder.vector_annotation(lanes, count)

    def _has_narrow_elements(self) -> bool:
        """Whether LLVM may choose vectors of more than ``lanes`` elements."""
        buffers = {access.buffer for statement in self.segment for access in statement.nest.accesses}
        pointers = [self.writer.pointers[buffer] for buffer in buffers & self.writer.pointers.keys()]
        return any(memory.element_bytes(pointer.element) < 4 for pointer in pointers)

    def _combiners(self, values: dict[Slot, mlir.Value]) -> dict[Slot, Fold]:
        """The combiners of the slots of ``values``, if they have one."""
        combiners: dict[Slot, Fold] = {}
        for number, statement in enumerate(self.segment):
            of_results = combiners_of(self.writer.codes[statement.number].generic, strict=False)
            slots = [slot for slot in self.slots if slot.statement == number]
            combiners |= {slot: of_results[n] for n, slot in enumerate(slots) if n in of_results}
        return {slot: combiner for slot, combiner in combiners.items() if slot in values}

    def _interleaved(
        self, values: dict[Slot, mlir.Value], size: Formula | None = None
    ) -> mlir.Attribute | None:
        """An interleave annotation for long, latency-bound bodies, which LLVM does not interleave itself.

        ``size`` is the number of iterations, if it is known.
        """
        if self.writer.fused.turns:
            return masked_remainder.interleave_annotation(self.writer.fused.turns) if self._suits() else None
        count = self._long_body_count(values, size)
        return masked_remainder.interleave_annotation(count) if count > 1 and self._suits() else None

    def _long_body_count(self, values: dict[Slot, mlir.Value], size: Formula | None) -> int:
        """How many vectors of a long body are interleaved; 0 or 1: as LLVM decides."""
        fused, operations = self.writer.fused, self._operations()
        if fused.short_lanes and masked_remainder.LONG_NARROW <= operations <= masked_remainder.LONGEST:
            count = masked_remainder.short_count(size, fused.short_lanes)
            whole = not isinstance(size, int) or size % (count * fused.short_lanes) == 0
            return count if not values or (whole and set(values) <= self._sums(values)) else 0
        long = masked_remainder.LONG <= operations <= masked_remainder.LONGEST and not values
        return masked_remainder.UNROLLED if fused.lanes and long else 0

    def _suits(self) -> bool:
        return masked_remainder.suits(self.segment, self.writer.codes, self.writer.fused.unstored)

    def _splits(self, size: int, values: dict[Slot, mlir.Value]) -> bool:
        """Whether a row is short or has a remainder, and all loop-carried values may be reassociated."""
        lanes = self.writer.fused.lanes
        if (
            not lanes
            or 2 * size < lanes
            or (size > UNROLLED and size % (masked_remainder.UNROLLED * lanes) == 0)
        ):
            return False
        if self.writer.fused.short_lanes and not self._masks_pay(size % lanes, values):
            return False
        free: set[Slot] = set()
        for number, statement in enumerate(self.segment):
            is_free = free_results(self.writer.codes[statement.number].generic)
            slots = [slot for slot in self.slots if slot.statement == number]
            free |= {slot for slot, slot_free in zip(slots, is_free, strict=True) if slot_free}
        return set(values) <= free and self._suits()

    def _masks_pay(self, rest: int, values: dict[Slot, mlir.Value]) -> bool:
        """Whether masked vectors of 32 bytes take less time than ``rest`` iterations one after another."""
        return rest > 1 and (bool(values) or self._operations() >= masked_remainder.LONG_NARROW)

    def _side_by_side(self, position: int) -> bool:
        """Whether this is the split axis and directly encloses a short parallel axis of the totals."""
        nests = [statement.nest for statement in self.segment]
        if position != self.depth - 2 or position != self.writer.fused.cut[1]:
            return False
        size = nests[0].axes[-1].size
        unrolls = isinstance(size, int) and size * self._operations() <= UNROLLED
        return unrolls and all(nest.axes[-1].parallel for nest in nests)

    def _jammed(
        self, bounds: tuple[mlir.Value, mlir.Value], counters: list[mlir.Value], registers: Registers
    ) -> None:
        """Emit the loop over the split axis with the innermost loop unrolled and all totals in registers."""
        size = self.segment[0].nest.axes[-1].size
        assert isinstance(size, int)
        slots = [slot for slot in self.slots if self.access(slot).buffer in self.writer.totals]
        columns = [mlir.constant(number) for number in range(size)]
        keys = [(slot, number) for number in range(size) for slot in slots]

        def step(
            counter: mlir.Value, values: dict[tuple[Slot, int], mlir.Value]
        ) -> dict[tuple[Slot, int], mlir.Value]:
            results: dict[tuple[Slot, int], mlir.Value] = {}
            for number, last in enumerate(columns):
                carried = {slot: values[slot, number] for slot in slots}
                totals = self.bodies([*counters, counter, last], dict(registers), carried)
                results |= {(slot, number): value for slot, value in totals.items()}
            return results

        def element(number: int) -> list[mlir.Value]:
            return [*counters, mlir.constant(0), columns[number]]

        start = {
            (slot, n): self.writer.read(self.access(slot), element(n), dict(registers)) for slot, n in keys
        }
        final = carry(bounds, 1, start, step)
        for slot, number in keys:
            self.writer.write_back(self.access(slot), element(number), {}, final[slot, number])

    def _rows(self, position: int) -> int:
        """The number of reduction iterations that are unrolled into the innermost loop (unroll and jam).

        More than 1 if the loop is a reduction that directly encloses the loop over its accumulators: each
        accumulator is then loaded and stored once for these iterations.
        """
        nests = [statement.nest for statement in self.segment]
        inner = self.depth - 1
        encloses_inner = position == inner - 1 and position != self.writer.fused.sliced
        if not encloses_inner or any(
            nest.axes[position].parallel or not nest.axes[inner].parallel for nest in nests
        ):
            return 1
        strides = [self.access(slot).strides for slot in self.slots]
        if any(stride[position] != 0 or stride[inner] == 0 for stride in strides):
            return 1
        size = nests[0].axes[position].size
        rows = limit = self.writer.fused.together
        long = isinstance(size, int) and size >= SUMMED_ROWS**2
        if long and self._all_sums() and not self._share_sets(position):
            rows = limit = max(limit, SUMMED_ROWS)
        while rows * self._operations() > ROW_OPERATIONS * limit:
            rows //= 2
        return rows if not isinstance(size, int) or size >= rows else 1

    def _by_rows(
        self,
        bounds: tuple[mlir.Value, mlir.Value],
        counters: list[mlir.Value],
        rows: int,
        outer_registers: Registers,
        step: LoopBody,
    ) -> None:
        """Emit ``rows`` iterations, in order, inside the innermost loop, then the remainder.

        What these iterations add to sums that may be reassociated is summed first.
        """
        low, high = bounds
        free = self._sums(self.slots)
        summed = [slot for slot in self.slots if slot in free]
        remainder = arith.andi(minus(high, low), mlir.constant(rows - 1))
        middle = minus(high, remainder)
        outer = for_loop((low, middle), rows, [])
        with mlir.at_end(mlir.block_of(outer)):
            first = mlir.block_of(outer).arguments[0]
            inner = for_loop(self.writer.bounds_of(self.segment[0].nest, self.depth - 1), 1, [])
            with mlir.at_end(mlir.block_of(inner)):
                column = mlir.block_of(inner).arguments[0]
                registers = dict(outer_registers)
                element = [*counters, first, column]
                totals = {slot: self.writer.read(self.access(slot), element, registers) for slot in summed}
                sums = {slot: mlir.float_constant(-0.0, total.type) for slot, total in totals.items()}
                for row in range(rows):
                    row_counter = memory.plus(first, mlir.constant(row))
                    sums = self.bodies([*counters, row_counter, column], registers, sums)
                for slot, total in totals.items():
                    total = arith.addf(total, sums[slot])
                    self.writer.write_back(self.access(slot), element, registers, total)
                scf.yield_([])
            scf.yield_([])
        carry((middle, high), 1, {}, step)

    def _all_sums(self) -> bool:
        """Whether all results are sums that may be reassociated."""
        return self._sums(self.slots) == set(self.slots)

    def _share_sets(self, position: int) -> bool:
        """Whether rows of an operand are in the same sets of a first-level cache, and displace others."""
        for statement in self.segment:
            for access in statement.nest.accesses:
                stride = access.strides[position]
                pointer = self.writer.pointers.get(access.buffer)
                if pointer is None or not isinstance(stride, int) or not stride:
                    continue
                if stride * memory.element_bytes(pointer.element) % PAGE == 0:
                    return True
        return False

    def _past_caches(
        self,
        bounds: tuple[mlir.Value, mlir.Value],
        counters: list[mlir.Value],
        passing: list[Access],
        step: LoopBody,
    ) -> None:
        """Emit the loop in aligned blocks, each of which is flushed at its end by streaming stores."""
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
        return sum(operation_cost(op) for code in codes for op in mlir.operations(code.body))

    def _sums(self, values: Container[Slot]) -> set[Slot]:
        """The slots of ``values`` that are sums which may be reassociated."""
        sums: set[Slot] = set()
        for number, statement in enumerate(self.segment):
            free = free_sums(self.writer.codes[statement.number].generic)
            slots = [slot for slot in self.slots if slot.statement == number]
            sums |= {slot for slot, is_sum in zip(slots, free, strict=True) if is_sum and slot in values}
        return sums

    def _in_blocks(
        self, bounds: tuple[mlir.Value, mlir.Value], values: dict[Slot, mlir.Value], step: LoopBody
    ) -> dict[Slot, mlir.Value]:
        """Sum blocks, then their sums: the error grows with the length of a block, not of the axis."""
        sums = self._sums(values)

        def block(start: mlir.Value, totals: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            end = memory.plus(start, mlir.constant(BLOCK))
            end = arith.minsi(end, bounds[1])
            partials = {
                slot: mlir.float_constant(0, value.type) if slot in sums else value
                for slot, value in totals.items()
            }
            block_sums = carry((start, end), 1, partials, step, self._interleaved(partials))
            return {
                slot: arith.addf(totals[slot], value) if slot in sums else value
                for slot, value in block_sums.items()
            }

        return carry(bounds, BLOCK, values, block)

    def _asks(self, size: Formula, values: dict[Slot, mlir.Value]) -> bool:
        """Whether the loop is a selection over a long row, in which few elements change the total."""
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
        """Emit the loop in blocks; a block runs only if one of its elements changes a bit of a total."""
        low, high = bounds
        remainder = arith.remsi(minus(high, low), mlir.constant(ASKED))
        middle = minus(high, remainder)
        kinds = [memory.to_carried(value).type for value in values.values()]

        def block(start: mlir.Value, totals: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            block_bounds = (start, memory.plus(start, mlir.constant(ASKED)))

            def ask(counter: mlir.Value, state: dict[str, mlir.Value]) -> dict[str, mlir.Value]:
                new_totals, changed = step(counter, totals), state["changed"]
                for slot, value in totals.items():
                    differs = arith.cmpi(arith.CmpIPredicate.ne, _bits(new_totals[slot]), _bits(value))
                    changed = arith.ori(changed, differs)
                return {"changed": changed}

            changed = carry(block_bounds, 1, {"changed": mlir.constant(0, "i1")}, ask)["changed"]
            chosen = mlir.if_else(changed, kinds)
            with mlir.at_end(mlir.block_of(chosen, 0)):
                new_totals = carry(block_bounds, 1, totals, step)
                scf.yield_([memory.to_carried(new_totals[slot]) for slot in totals])
            with mlir.at_end(mlir.block_of(chosen, 1)):
                scf.yield_([memory.to_carried(value) for value in totals.values()])
            return {
                slot: memory.from_carried(raw, value.type)
                for (slot, value), raw in zip(totals.items(), chosen.results, strict=True)
            }

        return carry((middle, high), 1, carry((low, middle), ASKED, values, block), step)

    def bodies(
        self, counters: list[mlir.Value], registers: Registers, carried: dict[Slot, mlir.Value]
    ) -> dict[Slot, mlir.Value]:
        """Emit one iteration of all statements of the segment; returns the new values of ``carried``."""
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
        """Clone the body of a statement at the insertion point; returns the values that it yields."""
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

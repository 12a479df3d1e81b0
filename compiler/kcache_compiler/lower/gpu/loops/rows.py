"""Rows: a block, or a warp, per iteration of the shared axes of a group.

Softmax, norms, losses, sums: the loops inside a row are distributed over the threads of the row, cyclically,
so that accesses are coalesced. Partial results are combined by shuffles, and across warps through shared
memory; every thread gets the result. Buffers of one row are in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.lower.gpu.intrinsics import barrier, special, warp_barrier
from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, split
from kcache_compiler.lower.gpu.loops.barriers import BarrierPlacement, ElementKey, RowRegisters, SharedAccess
from kcache_compiler.lower.gpu.loops.thread_combiners import Combiner, across_lanes, combiners_of
from kcache_compiler.lower.gpu.loops.vectorized_accesses import Lanes, LaneWriter
from kcache_compiler.lower.gpu.shared_memory import ALIGNMENT, shared_memory
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.elements import Code, Registers, element_of, forget
from kcache_compiler.lower.loops.launch import captured_by
from kcache_compiler.lower.loops.memory import Pointer, i64
from kcache_compiler.lower.loops.segment import Loops, Slot, carry, slots_of
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_else_values, if_then
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.schedule.choices import GpuChoices
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Fused, Statement
from kcache_compiler.shapes.formula import Formula, apply, product

WARP = 32
#: Maximum number of elements of a row that one warp computes, and the rows of a block then.
SHORT, ROWS = 512, 4
#: Threads of a row that a block computes: short, long, and longest or single rows.
BLOCK, LONG_BLOCK, WHOLE = 256, 512, 1024
_LONG, _LONGEST = 8192, 16384
#: Maximum number of operations of a thread in a segment whose loop is fully unrolled: values that are read or
#: computed in one segment then stay in registers for the next.
STRAIGHT = 800

Combiners = dict[tuple[int, int], Combiner]


#: Sizes of the axes that are distributed over threads, and the vector length along the last one.
Dealt: TypeAlias = tuple[list[Formula], Lanes | None]
#: Emits one element, for its counters inside the row and the loop-carried values.
Body: TypeAlias = Callable[[list[mlir.Value], dict[Slot, mlir.Value]], dict[Slot, mlir.Value]]


@dataclass(frozen=True)
class Rows:
    """The plan: threads of a row, rows of a block, and the combiners of each segment's reductions."""

    threads: int
    rows: int
    combiners: tuple[Combiners, ...]


def plan_rows(fused: Fused, codes: Mapping[int, Code], choices: GpuChoices) -> Rows | None:
    """The plan of a group whose rows are distributed over threads; None for others."""
    combiners_by_segment: list[Combiners] = []
    for segment in fused.segments:
        combiners = _combiners(segment, fused.shared, codes)
        if combiners is None:
            return None
        combiners_by_segment.append(combiners)
    inner = [_inner(segment, fused.shared) for segment in fused.segments]
    if len(inner) == 1 and not _along_memory(fused):
        return None
    longest = max((size for size in inner if isinstance(size, int)), default=0)
    if len(fused.segments) == 1 and isinstance(inner[0], int) and inner[0] < WARP:
        return None
    points = product([axis.size for axis in fused.statements[0].nest.axes[: fused.shared]])
    is_static = all(isinstance(size, int) for size in inner)
    if points == 1:
        threads = WHOLE
    elif is_static and longest <= SHORT:
        threads = WARP
    else:
        threads = BLOCK if longest < _LONG else LONG_BLOCK if longest < _LONGEST else WHOLE
        if is_static and longest <= 2 * SHORT:
            threads = BLOCK // 2
    threads = choices.row_threads or threads
    rows = 1 if threads != WARP or points == 1 else choices.rows or ROWS
    fits = rows * sum(size for _, size in fused.rows) <= 32768
    return Rows(threads, rows if fits else 1, tuple(combiners_by_segment))


def _inner(segment: tuple[Statement, ...], shared: int) -> Formula:
    return product([axis.size for axis in segment[0].nest.axes[shared:]])


def _along_memory(fused: Fused) -> bool:
    """Whether a read inside the row is contiguous."""
    return any(
        not access.written and access.strides[fused.shared :] and access.strides[-1] == 1
        for statement in fused.statements
        for access in statement.nest.accesses
    )


def _combiners(segment: tuple[Statement, ...], shared: int, codes: Mapping[int, Code]) -> Combiners | None:
    """The combiners of a segment that only reduces; None if it cannot be distributed over threads."""
    nests = [statement.nest for statement in segment]
    depth = len(nests[0].axes)
    if any(all(nest.axes[p].parallel for nest in nests) for p in range(shared, depth)):
        return {}
    combined: Combiners = {}
    for number, statement in enumerate(segment):
        slots = [slot for slot in slots_of(segment, shared) if slot.statement == number]
        if all(axis.parallel for axis in statement.nest.axes[shared:]):
            continue
        combiners = combiners_of(codes[statement.number])
        if combiners is None or any(slot.level != shared for slot in slots):
            return None
        combined |= {(number, slot.access): combiner for slot, combiner in zip(slots, combiners, strict=True)}
    return combined


class RowWriter(LaneWriter):
    """Writes the segments of one row for one of the threads that share it."""

    def __init__(
        self,
        kernel: Kernel,
        fused: Fused,
        codes: Mapping[int, Code],
        pointers: Mapping[int, Pointer],
        views: dict[mlir.Value, Pointer],
        scalars: Mapping[mlir.Value, mlir.Value],
        moved: Collection[int],
        plan: Rows,
        roots: Mapping[int, mlir.Value],
    ) -> None:
        super().__init__(kernel, fused, codes, pointers, views, scalars, moved)
        self.plan, self.roots = plan, roots
        self.barriers = BarrierPlacement(warp_barrier if plan.threads == WARP else barrier)
        #: Positions of the axes that are distributed over threads, and which thread has which element.
        self._dealt: list[int] = []
        self._distribution: Hashable = None
        self._weight = 0
        #: The current iteration of an unrolled loop over chunks; values of elements across segments.
        self._iteration: int | None = None
        self._row_registers = RowRegisters()
        written = {
            roots[access.buffer]
            for statement in fused.statements
            for access in statement.nest.accesses
            if access.written
        }
        self.constant = {number for number, root in roots.items() if root not in written}
        self._alone = False
        self._slots = 0

    def row(self, counters: list[mlir.Value], thread: mlir.Value) -> None:
        """Write all segments at ``counters`` of the shared axes."""
        self.thread, self.outer = thread, counters
        registers: Registers = {}
        for number, segment in enumerate(self.fused.segments):
            if number:
                self.barriers.place_tentative()
            for captured in [
                shared_access for statement in segment for shared_access in self._captured(statement.number)
            ]:
                self.barriers.record(captured)
                self._row_registers.read(captured.root)
            self._row_segment(number, segment, counters, registers)
        self.barriers.resolve()
        self._row_registers.erase_unread_stores({self.roots[buffer] for buffer, _ in self.fused.rows})

    def _captured(self, number: int) -> list[SharedAccess]:
        """Buffers that a body reads at arbitrary indices."""
        code = self.codes[number]
        captured = captured_by(code.generic, code.numbers)
        return [
            SharedAccess(memory.root_of(value), written=False)
            for value in captured
            if mlir.is_memref(value.type)
        ]

    def _shared_access(self, access: Access, written: bool) -> SharedAccess:
        shared = self.fused.shared
        unshared_axes = [p for p in range(shared, len(access.strides)) if p not in self._dealt]
        if self._distribution is None or unshared_axes:
            return SharedAccess(self.roots[access.buffer], written)
        base = self.pointers[access.buffer].base
        strides = (access.strides[:shared], tuple(access.strides[p] for p in self._dealt))
        return SharedAccess(
            self.roots[access.buffer], written, (self._distribution, base, access.offset, strides)
        )

    def read(self, access: Access, counters: list[mlir.Value], registers: Registers) -> mlir.Value:
        """An element, from its register or from memory."""
        if registers.get(element_of(access)) is None and access.buffer not in self.fused.unstored:
            shared = self._shared_access(access, written=False)
            value = self._row_registers.value(self._element_key(shared))
            if value is not None:
                return value
            self._row_registers.read(shared.root)
            self.barriers.record(shared)
        return super().read(access, counters, registers)

    def _element_key(self, shared: SharedAccess) -> ElementKey | None:
        """What identifies the element of this lane in every segment; None if that is unknown."""
        if self._iteration is None or self.group is None or shared.distribution is None:
            return None
        return ElementKey(shared.root, shared.distribution, self._iteration, self.group.lane)

    def stored(self, access: Access, store: mlir.Op) -> None:
        """Note that a chunk was stored: an earlier store to it that was not read is redundant."""
        shared = self._shared_access(access, written=True)
        if self._iteration is not None and shared.distribution is not None:
            self._row_registers.stored(shared.root, (shared.distribution, self._iteration), store)

    def _row_segment(
        self, number: int, segment: tuple[Statement, ...], counters: list[mlir.Value], registers: Registers
    ) -> None:
        shared, axes = self.fused.shared, segment[0].nest.axes
        loops = Loops(self, segment, slots_of(segment, shared))
        parallel = [
            p
            for p in range(shared, len(axes))
            if all(statement.nest.axes[p].parallel for statement in segment)
        ]
        if len(axes) == shared:
            self._alone = True
            loops.bodies(counters, registers, {})
            self._alone = False
            return
        self._weight = sum(len(mlir.operations(self.codes[statement.number].body)) for statement in segment)
        dealt = self._dealt = parallel or list(range(shared, len(axes)))
        combiners = self.plan.combiners[number]
        sizes = [axes[p].size for p in dealt]
        lanes = self.lanes(segment, whole=False) if len(axes) - 1 == dealt[-1] else None
        if parallel or not combiners:
            self._spread(loops, counters, registers, (sizes, lanes))
        else:
            self._reduce(loops, combiners, counters, registers, (sizes, lanes))

    def _deal(self, dealt: Dealt, values: dict[Slot, mlir.Value], body: Body) -> dict[Slot, mlir.Value]:
        """Write the loop over this thread's elements, distributed cyclically, in vectors if possible."""
        sizes, lanes = dealt
        if lanes is None:
            return self._each(sizes, values, body)
        fits = self.fits(lanes)
        if fits is None:
            return self._chunks(sizes, lanes, values, body)
        branches = (
            lambda: _raw(self._chunks(sizes, lanes, values, body)),
            lambda: _raw(self._each(sizes, values, body)),
        )
        kinds = [value.type for value in values.values()]
        results = if_else_values(fits, [value.type for value in _raw(values)], *branches)
        final = [memory.from_carried(raw, kind) for raw, kind in zip(results, kinds, strict=True)]
        return dict(zip(values, final, strict=True))

    def _each(
        self, sizes: list[Formula], values: dict[Slot, mlir.Value], body: Body
    ) -> dict[Slot, mlir.Value]:
        def step(point: mlir.Value, carried: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            return body(split(point, None, sizes, self.kernel.value), carried)

        self._distribution = ("each", *sizes)
        results = carry((self.thread, self.kernel.value(product(sizes))), self.plan.threads, values, step)
        self._distribution = None
        return results

    def _chunks(
        self, sizes: list[Formula], lanes: Lanes, values: dict[Slot, mlir.Value], body: Body
    ) -> dict[Slot, mlir.Value]:
        """Distribute elements of a row over threads in vectors of ``lanes``; return the carried values."""
        count = lanes.count
        chunk_sizes: list[Formula] = [*sizes[:-1], apply("ceildiv", sizes[-1], count)]

        def step(point: mlir.Value, current: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            chunk_counters = split(point, None, chunk_sizes, self.kernel.value)
            chunk_counters[-1] = memory.times(chunk_counters[-1], mlir.constant(count))

            def lane(counters: list[mlir.Value]) -> None:
                nonlocal current
                current = body(counters[-len(chunk_counters) :], current)

            self.together([*self.outer, *chunk_counters], count, lane)
            return current

        self._distribution = (count, *sizes)
        turns = self._iterations(product(chunk_sizes))
        if turns > 0 and lanes.certain and turns * count * self._weight <= STRAIGHT:
            for self._iteration in range(turns):
                values = step(
                    memory.plus(self.thread, mlir.constant(self._iteration * self.plan.threads)), values
                )
            self._distribution = self._iteration = None
            return values
        carried = carry(
            (self.thread, self.kernel.value(product(chunk_sizes))), self.plan.threads, values, step
        )
        self._distribution = None
        return carried

    def _iterations(self, chunks: Formula) -> int:
        """The number of chunks of each thread of the row; 0 if threads differ."""
        even = isinstance(chunks, int) and chunks % self.plan.threads == 0
        return chunks // self.plan.threads if isinstance(chunks, int) and even else 0

    def _spread(self, loops: Loops, counters: list[mlir.Value], registers: Registers, dealt: Dealt) -> None:
        def body(inner: list[mlir.Value], none: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            indices = [*counters, *inner]
            loops.run(len(indices), indices, dict(registers), {})
            return none

        self._deal(dealt, {}, body)
        forget(registers, {loops.access(slot).buffer for slot in loops.slots})

    def _reduce(
        self,
        loops: Loops,
        combiners: Combiners,
        counters: list[mlir.Value],
        registers: Registers,
        dealt: Dealt,
    ) -> None:
        """Emit reductions of a row: partial results per thread, combined across lanes, then across warps."""
        slots = {
            slot: combiners[key]
            for slot in loops.slots
            if (key := (slot.statement, slot.access)) in combiners
        }
        starts = {slot: self.read(loops.access(slot), counters, registers) for slot in slots}
        forget(registers, {loops.access(slot).buffer for slot in loops.slots})

        def body(inner: list[mlir.Value], partial: dict[Slot, mlir.Value]) -> dict[Slot, mlir.Value]:
            return loops.bodies([*counters, *inner], dict(registers), partial)

        partial = self._deal(dealt, {slot: combiner.neutral() for slot, combiner in slots.items()}, body)
        totals = {slot: across_lanes(combiner, partial[slot]) for slot, combiner in slots.items()}
        if self.plan.threads > WARP:
            totals = self._across_warps(slots, totals)
        self._alone = True
        for slot, combiner in slots.items():
            total = combiner.apply(starts[slot], totals[slot])
            self.write_back(loops.access(slot), counters, registers, total)
        self._alone = False

    def _across_warps(
        self, slots: dict[Slot, Combiner], totals: dict[Slot, mlir.Value]
    ) -> dict[Slot, mlir.Value]:
        """Combine totals of warps through shared memory, separate for each reduction of the kernel."""
        warps = self.plan.threads // WARP
        places: dict[Slot, Pointer] = {}
        warp = arith.shrui(self.thread, mlir.constant(5))
        lane = arith.andi(self.thread, mlir.constant(WARP - 1))
        for slot, combiner in slots.items():
            width = memory.element_bytes(combiner.kind)
            name = f"{self.kernel.name}_partial_{self._slots}"
            self._slots += 1
            places[slot] = Pointer(shared_memory(self.kernel, name, warps * width), combiner.kind, [])

        def leave() -> None:
            for slot, place in places.items():
                memory.store(place, warp, totals[slot])

        if_then(compare("eq", lane, mlir.constant(0)), leave)
        barrier()
        self.barriers.synchronized()
        results: dict[Slot, mlir.Value] = {}
        for slot, place in places.items():
            results[slot] = memory.load(place, mlir.constant(0))
            for number in range(1, warps):
                results[slot] = slots[slot].apply(results[slot], memory.load(place, mlir.constant(number)))
        return results

    def write_back(
        self, access: Access, counters: list[mlir.Value], registers: Registers, value: mlir.Value
    ) -> None:
        """Store an element; a value that all threads have is stored by the first one, after all reads."""
        if not self._alone:
            if access.buffer not in self.fused.unstored:
                shared = self._shared_access(access, written=True)
                self.barriers.record(shared)
                self._row_registers.write(shared.root, self._element_key(shared), value)
            super().write_back(access, counters, registers, value)
            return
        forget(registers, {access.buffer})
        registers[element_of(access)] = value
        if access.buffer in self.fused.unstored:
            return
        self._row_registers.write(self.roots[access.buffer], None, value)
        first_thread = SharedAccess(self.roots[access.buffer], written=True, distribution="first")
        self.barriers.record_after_barrier(first_thread)
        store = (self._start(access), self._offset(access, counters), value)
        if_then(compare("eq", self.thread, mlir.constant(0)), lambda: memory.store(*store))


def write_rows(writer: RowWriter) -> LaunchGeometry:
    """Write the body of the kernel at the insertion point."""
    kernel, fused, plan = writer.kernel, writer.fused, writer.plan
    sizes = [axis.size for axis in fused.statements[0].nest.axes[: fused.shared]]
    points = product(sizes)
    block, thread = (arith.extui(i64(), special(name)) for name in ("ctaid.x", "tid.x"))
    if plan.rows == 1:
        writer.row(split(block, None, sizes, kernel.value), thread)
        return LaunchGeometry((points, 1, 1), (plan.threads, 1, 1))
    row = arith.shrui(thread, mlir.constant(5))
    lane = arith.andi(thread, mlir.constant(WARP - 1))
    number = memory.plus(memory.times(block, mlir.constant(plan.rows)), row)
    limit = kernel.value(points)
    if_then(
        compare("lt", number, limit),
        lambda: writer.row(split(number, None, sizes, kernel.value), lane),
    )
    return LaunchGeometry((apply("ceildiv", points, plan.rows), 1, 1), (plan.threads * plan.rows, 1, 1))


def _raw(values: dict[Slot, mlir.Value]) -> list[mlir.Value]:
    """Values in the types of loop-carried values."""
    return [memory.to_carried(value) for value in values.values()]


def row_memory(kernel: Kernel, rows: Rows | None, number: int, size: int) -> mlir.Value:
    """The memory of one row of a buffer: shared, or local to the thread."""
    with kernel.before():
        if rows is None:
            return memory.stack(size)
        size = -(-size // ALIGNMENT) * ALIGNMENT
        base = shared_memory(kernel, f"{kernel.name}_row_{number}", size * rows.rows)
        if rows.rows == 1:
            return base
        thread = arith.extui(memory.i64(), special("tid.x"))
        row = arith.shrui(thread, mlir.constant(5))
        return memory.advance(base, mlir.type_of("i8"), memory.times(row, mlir.constant(size)))

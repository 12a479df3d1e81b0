"""Vectorized accesses: loads and stores of 16 bytes, with the bodies of their elements in sequence.

Buffers are aligned to 16 bytes, which the runtime checks. Strides of outer axes must be multiples too, which
is known statically or tested in the kernel; otherwise it computes single elements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kcache_compiler.lower.gpu.kernel import Kernel
from kcache_compiler.lower.gpu.loops.points import PointWriter
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.elements import Code, Element, Registers, element_of, forget
from kcache_compiler.lower.loops.memory import Pointer, i64
from kcache_compiler.lower.sort_scatter.loop_builder import compare, logical_and
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Fused, Statement
from kcache_compiler.shapes.formula import Formula

#: Maximum number of operations in the bodies of all lanes.
OPERATIONS = 640


@dataclass(frozen=True)
class Lanes:
    """The elements of a vector access, and the strides that must be multiples of their number."""

    count: int
    multiples: tuple[Formula, ...]
    #: Buffers whose alignment is known at run time only.
    moved: tuple[int, ...]

    @property
    def certain(self) -> bool:
        return not self.multiples and not self.moved


@dataclass
class Chunk:
    """The vector that a thread computes: counters of the first element, and the current lane."""

    counters: list[mlir.Value]
    lanes: int
    lane: int = 0
    vectors: dict[Element, mlir.Value] = field(default_factory=dict[Element, mlir.Value])
    results: dict[Access, list[mlir.Value]] = field(default_factory=dict[Access, list[mlir.Value]])


class LaneWriter(PointWriter):
    """A writer of vectorized accesses; ``moved`` buffers have unknown alignment."""

    def __init__(
        self,
        kernel: Kernel,
        fused: Fused,
        codes: Mapping[int, Code],
        pointers: Mapping[int, Pointer],
        views: dict[mlir.Value, Pointer],
        scalars: Mapping[mlir.Value, mlir.Value],
        moved: Collection[int],
    ) -> None:
        self.moved = moved
        self.group: Chunk | None = None
        #: Buffers that the kernel does not write.
        self.constant: Collection[int] = ()
        super().__init__(kernel, fused, codes, pointers, views, scalars)

    def lanes(self, segment: tuple[Statement, ...], whole: bool) -> Lanes | None:
        """The elements of a vector access along the last axis; ``whole`` if there is no other axis."""
        accesses = [
            access
            for statement in segment
            for access in statement.nest.accesses
            if access.buffer not in self.fused.unstored and not self._is_complex(access)
        ]
        last = len(segment[0].nest.axes) - 1
        contiguous = [access for access in accesses if access.strides[last] == 1]
        if not contiguous or any(access.strides[last] not in (0, 1) for access in accesses):
            return None
        widest = max(memory.element_bytes(self.pointers[access.buffer].element) for access in contiguous)
        count = max(1, self.kernel.sizes.choices.bytes // widest)
        size = sum(len(mlir.operations(self.codes[statement.number].body)) for statement in segment)
        while count > 1 and count * size > OPERATIONS:
            count //= 2
        steps = {formula for access in contiguous for formula in (access.offset, *access.strides[:last])}
        if not whole:
            steps.add(segment[0].nest.axes[last].size)
        while count > 1 and any(isinstance(step, int) and step % count for step in steps):
            count //= 2
        if count == 1:
            return None
        moved = {access.buffer for access in contiguous if access.buffer in self.moved}
        open_steps = sorted((step for step in steps if not isinstance(step, int)), key=repr)
        return Lanes(count, tuple(open_steps), tuple(sorted(moved)))

    def _is_complex(self, access: Access) -> bool:
        return str(self.pointers[access.buffer].element).startswith("complex")

    def fits(self, lanes: Lanes) -> mlir.Value | None:
        """Whether vector accesses are aligned in this call; None if they always are."""
        condition: mlir.Value | None = None
        divisions = [(self.kernel.value(step), lanes.count) for step in lanes.multiples]
        for buffer in lanes.moved:
            base = llvm.ptrtoint(i64(), self.pointers[buffer].base)
            divisions.append((base, lanes.count * memory.element_bytes(self.pointers[buffer].element)))
        for number, unit in divisions:
            remainder = arith.andi(number, mlir.constant(unit - 1))
            is_multiple = compare("eq", remainder, mlir.constant(0))
            condition = is_multiple if condition is None else logical_and(condition, is_multiple)
        return condition

    def together(
        self, counters: list[mlir.Value], lanes: int, run: Callable[[list[mlir.Value]], None]
    ) -> None:
        """Emit ``run`` for each lane at ``counters``, after vector loads and before vector stores."""
        self.group = Chunk(counters, lanes)
        for lane in range(lanes):
            self.group.lane = lane
            run([*counters[:-1], memory.plus(counters[-1], mlir.constant(lane))])
        chunk, self.group = self.group, None
        for access, values in chunk.results.items():
            self.stored(access, self._store(access, counters, values))

    def stored(self, access: Access, store: mlir.Op) -> None:
        """Called after the vector store of a chunk."""

    def read(self, access: Access, counters: list[mlir.Value], registers: Registers) -> mlir.Value:
        """An element, extracted from a vector load if possible."""
        chunk = self.group
        if chunk is None or registers.get(element_of(access)) is not None or not self._runs(access, counters):
            return super().read(access, counters, registers)
        key = element_of(access)
        element = self.pointers[access.buffer].element
        if key not in chunk.vectors:
            kind = _vector(element, chunk.lanes)
            chunk.vectors[key] = llvm.load(
                kind,
                self._place(access, chunk.counters),
                alignment=_alignment(element, chunk.lanes),
                invariant=access.buffer in self.constant,
            )
        lane = mlir.constant(chunk.lane)
        raw = llvm.extractelement(chunk.vectors[key], lane)
        return memory.from_memory(raw, element)

    def _runs(self, access: Access, counters: list[mlir.Value]) -> bool:
        """Whether the access is contiguous along its last counter, which iterates over lanes."""
        stored = access.buffer not in self.fused.unstored and not self._is_complex(access)
        return stored and len(counters) == len(access.strides) and access.strides[-1] == 1

    def write_back(
        self, access: Access, counters: list[mlir.Value], registers: Registers, value: mlir.Value
    ) -> None:
        """Collect an element until all lanes have theirs, or store it."""
        if self.group is None or not self._runs(access, counters):
            super().write_back(access, counters, registers, value)
            return
        forget(registers, {access.buffer})
        registers[element_of(access)] = value
        self.group.results.setdefault(access, []).append(value)

    def _store(self, access: Access, counters: list[mlir.Value], values: list[mlir.Value]) -> mlir.Op:
        element = self.pointers[access.buffer].element
        kind = _vector(element, len(values))
        vector = llvm.mlir_poison(kind)
        for lane, value in enumerate(values):
            vector = llvm.insertelement(vector, memory.to_memory(value), mlir.constant(lane))
        place = self._place(access, counters)
        return llvm.store(vector, place, alignment=_alignment(element, len(values))).operation

    def _place(self, access: Access, counters: list[mlir.Value]) -> mlir.Value:
        return memory.shift(self._start(access), self._offset(access, counters))


def _vector(element: mlir.Type, count: int) -> mlir.Type:
    return mlir.type_of(f"vector<{count}x{memory.stored_type(element)}>")


def _alignment(element: mlir.Type, count: int) -> int:
    return count * memory.element_bytes(element)

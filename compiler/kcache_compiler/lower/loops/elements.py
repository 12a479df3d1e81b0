"""Loads and stores of the elements of a launch, as IR; values that were just computed stay in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.errors import CompileFailed
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops import streaming_stores as streams
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.selections import Combining
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.schedule.loop_nest import Access, Nest
from kcache_compiler.schedule.loops import Fused
from kcache_compiler.schedule.split_reductions import Totals
from kcache_compiler.shapes.formula import Formula

#: An element of a buffer at the current iteration: buffer, offset, strides up to the last nonzero one.
Element: TypeAlias = tuple[int, Formula, tuple[Formula, ...]]
Registers: TypeAlias = dict[Element, mlir.Value]


@dataclass(frozen=True)
class Code:
    """The code of a statement: its ``linalg.generic`` and the operand numbers of the nest's accesses."""

    generic: mlir.Op
    numbers: Sequence[int]

    @property
    def inputs(self) -> int:
        return mlir.input_count(self.generic)

    @property
    def body(self) -> mlir.Block:
        return mlir.block_of(self.generic)


@dataclass(frozen=True)
class Chunks:
    """The base of the totals of the chunks of a split axis, and their combiners by buffer."""

    base: mlir.Value
    combiners: Mapping[int, Combining]


class Elements:
    """Reads and writes elements of the buffers of ``fused`` at the insertion point.

    ``pointers`` are by buffer number, ``views`` by captured buffer; ``scalars`` maps captured scalars.
    """

    #: Whether a selection first tests blocks of elements for a change, since few elements change its result.
    asks = True

    def __init__(
        self,
        fused: Fused,
        codes: Mapping[int, Code],
        pointers: Mapping[int, Pointer],
        views: dict[mlir.Value, Pointer],
        scalars: Mapping[mlir.Value, mlir.Value],
        dims: mlir.Value | None,
        bounds: tuple[mlir.Value, mlir.Value] | None,
        chunks: Chunks | None = None,
    ) -> None:
        self.fused = fused
        self.chunks = chunks
        #: The bounds of the split axis in the current chunk, and the chunk's totals by buffer.
        self.chunk = bounds
        self.totals: dict[int, Pointer] = {}
        self.codes = codes
        self.pointers = pointers
        self.views = views
        self.scalars = scalars
        self.dims = dims
        self._bounds = bounds
        self.cache: dict[Formula, mlir.Value] = {}
        self.starts: dict[tuple[int, Formula], Pointer] = {}
        #: Stack blocks of results that are stored non-temporally, and the first counter of the current block.
        self.blocks: dict[int, Pointer] = {
            number: streams.block(pointers[number].element) for number in sorted(fused.streamed)
        }
        self.begun: mlir.Value | None = None
        for statement in fused.statements:
            self._prepare(statement.nest)

    @property
    def bounds(self) -> tuple[mlir.Value, mlir.Value]:
        """The bounds of the sliced axis; code for single points has none."""
        assert self._bounds is not None
        return self._bounds

    def _prepare(self, nest: Nest) -> None:
        """Emit sizes, strides and start pointers of accesses before the loops, so that they dominate them."""
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

    def bounds_of(self, nest: Nest, position: int) -> tuple[mlir.Value, mlir.Value]:
        if position == self.fused.sliced and not self.fused.whole:
            return self.bounds
        if self.fused.split is not None and position == self.fused.split.position:
            assert self.chunk is not None
            return self.chunk
        return mlir.constant(0), self._value(nest.axes[position].size)

    def read(self, access: Access, counters: list[mlir.Value], registers: Registers) -> mlir.Value:
        value = registers.get(element_of(access))
        if value is not None:
            return value
        if access.buffer in self.fused.unstored | self.fused.streamed:
            raise CompileFailed("launches", "a value that is not stored is read before it is computed")
        return memory.load(self._start(access), self._offset(access, counters))

    def write_back(
        self, access: Access, counters: list[mlir.Value], registers: Registers, value: mlir.Value
    ) -> None:
        """Store an element if it is read from memory, and record its register."""
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
        """Copy the block from the last of ``counters`` to ``end`` into the result."""
        assert self.begun is not None
        start, block = self._start(access), self.blocks[access.buffer]
        target = Pointer(memory.shift(start, self._offset(access, counters)), start.element, [])
        source = Pointer(memory.shift(block, minus(counters[-1], self.begun)), block.element, [])
        streams.flush(target, source, minus(end, counters[-1]))

    def prefetch(self, counters: list[mlir.Value]) -> None:
        """Prefetch the block at ``counters`` of the following rows."""
        if len(counters) != 2:
            return
        elements = {number: pointer.element for number, pointer in self.pointers.items()}
        for access, row_bytes in streams.coming(self.fused, elements):
            start = self._start(access)
            place = Pointer(memory.shift(start, self._offset(access, counters)), start.element, [])
            streams.prefetch(place, row_bytes)

    def _offset(self, access: Access, counters: list[mlir.Value]) -> mlir.Value:
        offset = mlir.constant(0)
        totals = self._totals(access)
        strides = access.strides if totals is None else totals.strides
        for counter, stride in zip(counters, strides, strict=False):
            if stride != 0:
                offset = memory.plus(offset, memory.times(counter, self._value(stride)))
        return offset


def minus(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    return arith.subi(a, b)


def element_of(access: Access) -> Element:
    strides = list(access.strides)
    while strides and strides[-1] == 0:
        strides.pop()
    return access.buffer, access.offset, tuple(strides)


def forget(registers: Registers, buffers: set[int]) -> None:
    """Drop the registers of elements of ``buffers``, which are written."""
    for key in [key for key in registers if key[0] in buffers]:
        del registers[key]

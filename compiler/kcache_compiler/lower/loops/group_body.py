"""The body of a slice function: the loops of a fusion group, as IR.

A value that was just computed is read from its register, any other from memory.
"""

from __future__ import annotations

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops import streaming_stores as streams
from kcache_compiler.lower.loops.elements import Elements, Registers, element_of
from kcache_compiler.lower.loops.masked_remainder import vector_annotation
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.segment import Loops, for_loop, slots_of
from kcache_compiler.lower.loops.tiled_transpose import Tiles
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.schedule.loop_nest import Access, Nest
from kcache_compiler.schedule.loops import Statement, Turn
from kcache_compiler.schedule.split_reductions import Split

#: Iterations of a loop over short rows that are not vectorized together, at most.
FEW_ROWS = 64


class Writer(Elements):
    """Writes the loops of a launch at the insertion point."""

    def write(self, module: mlir.Module) -> None:
        """Write the loops; ``module`` gets functions that launches share."""
        if self.fused.split is not None:
            self._chunked(self.fused.split)
        elif self.fused.turn is None:
            self._shared(0, [], {})
        else:
            self._turned(self.fused.turn, module)
        if self.fused.streamed:
            streams.fence()

    def _chunked(self, split: Split) -> None:
        """Write the loops inside a loop over chunks; each chunk has its own totals."""
        assert self.chunks is not None
        size = self._value(self.fused.statements[0].nest.axes[split.position].size)
        length = self._value(split.length)
        places = [self._value(total.offset) for total in split.totals]
        loop = for_loop(self.bounds, 1, [])
        with mlir.at_end(mlir.block_of(loop)):
            number = mlir.block_of(loop).arguments[0]
            low = memory.times(number, length)
            high = arith.minsi(memory.plus(low, length), size)
            self.chunk = low, high
            for total, place in zip(split.totals, places, strict=True):
                moved = memory.plus(place, memory.times(number, mlir.constant(total.bytes)))
                base = memory.advance(self.chunks.base, mlir.type_of("i8"), moved)
                pointer = Pointer(base, self.pointers[total.buffer].element, [])
                self.totals[total.buffer] = pointer
                for element in range(0 if split.begun else total.count):
                    neutral = self.chunks.combiners[total.buffer].neutral(pointer.element)
                    memory.store(pointer, mlir.constant(element), neutral)
            self._shared(0, [], {})
            scf.yield_([])

    def _turned(self, turn: Turn, module: mlir.Module) -> None:
        """Write loops over the axes that are not tiled, and the loops over tiles inside them."""
        segment = self.fused.segments[0]
        nest = segment[0].nest
        slots = slots_of(segment, len(nest.axes))

        def bodies(counters: list[mlir.Value], values: dict[Access, mlir.Value]) -> None:
            registers = {element_of(access): value for access, value in values.items()}
            Loops(self, segment, slots).run(len(counters), counters, registers, {})

        def step(access: Access) -> mlir.Value:
            return self._value(access.strides[turn.along])

        starts = [self._start(access) for access in turn.accesses]
        tiles = Tiles(module, turn, starts, self._offset, step, bodies)
        outer_axes = [p for p in range(len(nest.axes)) if p not in (turn.across, turn.along)]
        self._around(nest, outer_axes, {}, tiles)

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
            scf.yield_([])

    def _shared(self, position: int, counters: list[mlir.Value], registers: Registers) -> None:
        if position == self.fused.shared:
            for segment in self.fused.segments:
                self._segment(segment, counters, registers)
            return
        loop = self.loop(self.fused.statements[0].nest, position)
        if self._has_short_rows(position):
            loop.attributes["loop_annotation"] = vector_annotation(1, 1)
        body = mlir.block_of(loop)
        with mlir.at_end(body):
            self._shared(position + 1, [*counters, body.arguments[0]], {})
            scf.yield_([])

    def _has_short_rows(self, position: int) -> bool:
        """Whether a loop has few iterations, each of which walks along a few adjacent elements.

        LLVM would shuffle vectors of all rows instead, which is ten times the code.
        """
        if not self.fused.whole or position != self.fused.shared - 1:
            return False
        for segment in self.fused.segments:
            for nest in (statement.nest for statement in segment):
                rows, *inner = [axis.size for axis in nest.axes[position:]]
                if not isinstance(rows, int) or rows > FEW_ROWS or len(inner) > 1:
                    return False
                if inner and any(access.strides[-1] != 1 for access in nest.accesses if access.strides[-1]):
                    return False
        return any(len(segment[0].nest.axes) > self.fused.shared for segment in self.fused.segments)

    def loop(self, nest: Nest, position: int) -> mlir.Op:
        return for_loop(self.bounds_of(nest, position), 1, [])

    def _segment(
        self, segment: tuple[Statement, ...], counters: list[mlir.Value], registers: Registers
    ) -> None:
        slots = slots_of(segment, self.fused.shared)
        Loops(self, segment, slots).run(len(counters), counters, registers, {})

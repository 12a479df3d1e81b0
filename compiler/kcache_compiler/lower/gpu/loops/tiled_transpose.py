"""Transposition: operands that are read across their rows pass through shared memory in tiles.

A warp reads along the rows of the operand and stores them in a padded square; after a barrier, it reads the
columns, along which the result is written.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.lower.gpu.intrinsics import barrier, special
from kcache_compiler.lower.gpu.kernel import LaunchGeometry, split
from kcache_compiler.lower.gpu.loops.points import PointWriter
from kcache_compiler.lower.gpu.shared_memory import ALIGNMENT, shared_memory
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.elements import Registers, element_of
from kcache_compiler.lower.loops.memory import Pointer, i64
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_then, logical_and, loop
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Turn
from kcache_compiler.shapes.formula import Formula, apply, product

#: Elements of a side of a tile, threads of a block, maximum bytes of all tiles.
SIDE, THREADS, BYTES = 32, 256, 40960
_PITCH = SIDE + 1
_ROWS = THREADS // SIDE


def turns(writer: PointWriter) -> Turn | None:
    """The two axes of an elementwise group with transposed reads; None for others."""
    fused = writer.fused
    if len(fused.segments) > 1 or fused.turn is None:
        return None
    widths = [_bytes(writer, access) for access in fused.turn.accesses]
    return fused.turn if sum(widths) <= BYTES else None


def _bytes(writer: PointWriter, access: Access) -> int:
    size = SIDE * _PITCH * memory.element_bytes(writer.pointers[access.buffer].element)
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_turns(writer: PointWriter, turn: Turn) -> LaunchGeometry:
    """Write the body of the kernel at the insertion point."""
    value = writer.kernel.value
    sizes = [axis.size for axis in writer.fused.statements[0].nest.axes]
    outer_axes = [place for place in range(len(sizes)) if place not in (turn.across, turn.along)]
    blocks = [apply("ceildiv", sizes[place], SIDE) for place in (turn.across, turn.along)]
    grid: list[Formula] = [*(sizes[place] for place in outer_axes), *blocks]
    block, thread = (arith.extui(i64(), special(name)) for name in ("ctaid.x", "tid.x"))
    *outer, row, column = split(block, None, grid, value)
    _Tile(writer, turn, dict(zip(outer_axes, outer, strict=True)), (row, column), thread).write()
    return LaunchGeometry((product(grid), 1, 1), (THREADS, 1, 1))


class _Tile:
    """Emits the code of a tile: loads of rows into shared memory, then the body of the group."""

    def __init__(
        self,
        writer: PointWriter,
        turn: Turn,
        outer: dict[int, mlir.Value],
        block: tuple[mlir.Value, mlir.Value],
        thread: mlir.Value,
    ) -> None:
        self.writer, self.turn, self.outer = writer, turn, outer
        self.sizes = [axis.size for axis in writer.fused.statements[0].nest.axes]
        self.first = [memory.times(number, mlir.constant(SIDE)) for number in block]
        self.lane = arith.andi(thread, mlir.constant(SIDE - 1))
        self.row = arith.shrui(thread, mlir.constant(SIDE.bit_length() - 1))
        self.squares = [self._square(number, access) for number, access in enumerate(turn.accesses)]

    def _square(self, number: int, access: Access) -> Pointer:
        kernel = self.writer.kernel
        name = f"{kernel.name}_square_{number}"
        base = shared_memory(kernel, name, _bytes(self.writer, access))
        return Pointer(base, self.writer.pointers[access.buffer].element, [])

    def write(self) -> None:
        self._each(self._bring)
        barrier()
        self._each(self._take)

    def _each(self, part: Callable[[mlir.Value], None]) -> None:
        loop(mlir.constant(0), mlir.constant(SIDE // _ROWS), lambda turn: part(self._line(turn)))

    def _line(self, turn: mlir.Value) -> mlir.Value:
        return memory.plus(memory.times(turn, mlir.constant(_ROWS)), self.row)

    def _inside(self, row: mlir.Value, column: mlir.Value) -> tuple[list[mlir.Value], mlir.Value]:
        """The counters of all axes, and whether they are in bounds."""
        points = [memory.plus(a, b) for a, b in zip(self.first, (row, column), strict=True)]
        places = (self.turn.across, self.turn.along)
        counters = {**self.outer, **dict(zip(places, points, strict=True))}
        limits = [self.writer.kernel.value(self.sizes[place]) for place in places]
        in_bounds = [compare("lt", point, limit) for point, limit in zip(points, limits, strict=True)]
        return [counters[place] for place in range(len(self.sizes))], logical_and(*in_bounds)

    def _bring(self, line: mlir.Value) -> None:
        """Load contiguous elements into a row of each square."""
        counters, in_bounds = self._inside(self.lane, line)

        def bring() -> None:
            for access, square in zip(self.turn.accesses, self.squares, strict=True):
                number = self.writer.read(access, counters, {})
                memory.store(square, _at(line, self.lane), number)

        if_then(in_bounds, bring)

    def _take(self, line: mlir.Value) -> None:
        """Compute the group for a column of each square."""
        counters, in_bounds = self._inside(line, self.lane)

        def take() -> None:
            registers: Registers = {}
            for access, square in zip(self.turn.accesses, self.squares, strict=True):
                registers[element_of(access)] = memory.load(square, _at(self.lane, line))
            self.writer.point(counters, registers)

        if_then(in_bounds, take)


def _at(row: mlir.Value, column: mlir.Value) -> mlir.Value:
    return memory.plus(memory.times(row, mlir.constant(_PITCH)), column)

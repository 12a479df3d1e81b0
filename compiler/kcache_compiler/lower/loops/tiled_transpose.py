"""Tiles for transposed accesses: vectors are loaded along rows, transposed in registers, and stored in a
small square on the stack, which the body reads in the order of its writes. Launches whose elements have one
size share the function that does so.

If elements may be recomputed, the last tile of a row or column is shifted back to end at the edge; otherwise
the remainder runs element by element.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, llvm, scf
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Turn

#: Emits the loop bodies for counters by axis and values of accesses.
Bodies = Callable[[list[mlir.Value], dict[Access, mlir.Value]], None]
Offset = Callable[[Access, list[mlir.Value]], mlir.Value]
_Range = tuple[mlir.Value, mlir.Value]
#: What the names of functions begin with that transpose a tile.
TRANSPOSED = "transposed_"


class Tiles:
    """The two innermost loops of a launch over tiles of ``turn``.

    ``starts`` are the pointers of the transposed accesses; ``offset`` gives an access's element offset.
    ``module`` gets what launches share.
    """

    def __init__(
        self,
        module: mlir.Module,
        turn: Turn,
        starts: list[Pointer],
        offset: Offset,
        step: Callable[[Access], mlir.Value],
        bodies: Bodies,
    ) -> None:
        self.module = module
        self.turn = turn
        self.starts = starts
        self.offset = offset
        self.step = step
        self.bodies = bodies
        self.squares = [_square(start, turn.size) for start in starts]

    def write(self, counters: dict[int, mlir.Value], across: _Range, along: _Range) -> None:
        """Emit the tiles of the ranges of the transposed and the last axis, at the other ``counters``."""
        size = mlir.constant(self.turn.size)
        outer = _for(*across, size)
        with mlir.at_end(mlir.block_of(outer)):
            first = mlir.block_of(outer).arguments[0]
            inner = _for(*along, size)
            with mlir.at_end(mlir.block_of(inner)):
                second = mlir.block_of(inner).arguments[0]
                self._tile(counters, (first, second), (across, along))
                scf.yield_([])
            scf.yield_([])

    def _tile(
        self,
        counters: dict[int, mlir.Value],
        firsts: tuple[mlir.Value, mlir.Value],
        ranges: tuple[_Range, _Range],
    ) -> None:
        """Emit a tile: through registers if it is whole, by scalar loops at an edge."""
        size = mlir.constant(self.turn.size)
        starts = list(firsts)
        fits: list[mlir.Value] = []
        for number, (low, high) in enumerate(ranges):
            last = arith.subi(high, size)
            if self.turn.repeats:
                starts[number] = arith.minsi(firsts[number], last)
                fits.append(arith.cmpi(arith.CmpIPredicate.sge, last, low))
            else:
                fits.append(arith.cmpi(arith.CmpIPredicate.sle, firsts[number], last))
        is_whole = arith.andi(*fits)
        choice = mlir.if_else(is_whole)
        with mlir.at_end(mlir.block_of(choice, 0)):
            self._fill(counters, *starts)
            self._loops(counters, *starts)
            scf.yield_([])
        with mlir.at_end(mlir.block_of(choice, 1)):
            bounds: list[_Range] = []
            for first, (_, high) in zip(firsts, ranges, strict=True):
                end = arith.minsi(memory.plus(first, size), high)
                bounds.append((first, end))
            self._edge(counters, *bounds)
            scf.yield_([])

    def _counters(self, counters: dict[int, mlir.Value], p: mlir.Value, q: mlir.Value) -> list[mlir.Value]:
        by_axis = {**counters, self.turn.across: p, self.turn.along: q}
        return [by_axis[position] for position in sorted(by_axis)]

    def _edge(self, counters: dict[int, mlir.Value], across: _Range, along: _Range) -> None:
        step = mlir.constant(1)
        outer = _for(*across, step)
        with mlir.at_end(mlir.block_of(outer)):
            inner = _for(*along, step)
            with mlir.at_end(mlir.block_of(inner)):
                p, q = mlir.block_of(outer).arguments[0], mlir.block_of(inner).arguments[0]
                self.bodies(self._counters(counters, p, q), {})
                scf.yield_([])
            scf.yield_([])

    def _fill(self, counters: dict[int, mlir.Value], p: mlir.Value, q: mlir.Value) -> None:
        """Load and transpose one tile of each transposed access."""
        size = self.turn.size
        for access, start, square in zip(self.turn.accesses, self.starts, self.squares, strict=True):
            base = self.offset(access, self._counters(counters, p, q))
            first = memory.advance(start.base, square.element, base)
            turning = _turning(self.module, square.element, memory.element_bytes(start.element), size)
            mlir.call_function(turning, [first, self.step(access), square.base])

    def _loops(self, counters: dict[int, mlir.Value], p: mlir.Value, q: mlir.Value) -> None:
        zero, step, size = mlir.constant(0), mlir.constant(1), mlir.constant(self.turn.size)
        outer = _for(zero, size, step)
        with mlir.at_end(mlir.block_of(outer)):
            row = mlir.block_of(outer).arguments[0]
            inner = _for(zero, size, step)
            with mlir.at_end(mlir.block_of(inner)):
                column = mlir.block_of(inner).arguments[0]
                offset = memory.plus(memory.times(row, size), column)
                values = {
                    access: memory.from_memory(
                        llvm.load(square.element, memory.advance(square.base, square.element, offset)),
                        start.element,
                    )
                    for access, start, square in zip(
                        self.turn.accesses, self.starts, self.squares, strict=True
                    )
                }
                at = self._counters(counters, memory.plus(p, row), memory.plus(q, column))
                self.bodies(at, values)
                scf.yield_([])
            scf.yield_([])


def _for(low: mlir.Value, high: mlir.Value, step: mlir.Value) -> mlir.Op:
    return mlir.for_loop((low, high), step)


def _square(start: Pointer, size: int) -> Pointer:
    """Stack memory for one tile, with elements in their memory type."""
    stored = memory.stored_type(start.element)
    base = memory.stack(size * size * memory.element_bytes(start.element))
    return Pointer(base, stored, [])


def _turning(module: mlir.Module, element: mlir.Type, alignment: int, size: int) -> str:
    """The function that stores the transpose of a square of ``size`` rows, which begin at a pointer and are a
    number of elements apart, to memory that no other pointer is to. The module gets it once.
    """
    name = f"{TRANSPOSED}{size}x{size}x{element}"
    if any(mlir.symbol_of(op) == name for op in mlir.operations(module.body)):
        return name
    pointer, integer = mlir.type_of("!llvm.ptr"), mlir.type_of("i64")
    marks = ["{llvm.noalias, llvm.readonly}", "{}", "{llvm.noalias, llvm.writeonly}"]
    function, entry = mlir.private_function(module, name, [pointer, integer, pointer], [], marks)
    source, step, square = entry.arguments
    with mlir.at_end(entry):
        kind = mlir.type_of(f"vector<{size}x{element}>")
        rows: list[mlir.Value] = []
        for row in range(size):
            address = memory.advance(source, element, memory.times(step, mlir.constant(row)))
            rows.append(llvm.load(kind, address, alignment=alignment))
        for number, row in enumerate(_transposed(rows)):
            address = memory.advance(square, element, mlir.constant(number * size))
            llvm.store(row, address, alignment=alignment)
        func.return_([])
    function.verify()
    return name


def _transposed(rows: list[mlir.Value]) -> list[mlir.Value]:
    """``rows`` transposed: repeatedly interleaves each row with the row half the square below."""
    size = len(rows)
    half = size // 2
    low = [lane // 2 + (size if lane % 2 else 0) for lane in range(size)]
    high = [lane + half for lane in low]
    rounds = size.bit_length() - 1
    for _ in range(rounds):
        outputs: list[mlir.Value] = []
        for number in range(half):
            pair = [rows[number], rows[number + half]]
            outputs += [_shuffle(pair, low), _shuffle(pair, high)]
        rows = outputs
    return rows


def _shuffle(pair: list[mlir.Value], lanes: list[int]) -> mlir.Value:
    return llvm.shufflevector(pair[0].type, pair[0], pair[1], lanes)

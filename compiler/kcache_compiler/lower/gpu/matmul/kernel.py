"""The kernel of a contraction: tiles of A and B in shared memory, and an epilogue on each element of C.

Software pipelining with one barrier per step: while the products of one pair of tiles are summed, the next
pairs are loaded into other stages of shared memory, several by asynchronous copies, or one through registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from kcache_compiler.lower.gpu.intrinsics import barrier, commit_copies, special, wait_for_copies
from kcache_compiler.lower.gpu.kernel import (
    Kernel,
    LaunchGeometry,
    no_unroll_annotation,
    split,
    thread_number,
)
from kcache_compiler.lower.gpu.loops.points import PointWriter
from kcache_compiler.lower.gpu.matmul.blocking import Operand, Tiles
from kcache_compiler.lower.gpu.matmul.fma_tile import PlainCore, Shared
from kcache_compiler.lower.gpu.matmul.loader import Loader, fits
from kcache_compiler.lower.gpu.matmul.mma_tile import MatrixCore
from kcache_compiler.lower.gpu.shared_memory import dynamic_bytes, shared_place, tiled_symbol
from kcache_compiler.lower.gpu.tile_sizes import rejected
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.elements import Registers
from kcache_compiler.lower.loops.memory import Pointer, i64
from kcache_compiler.lower.loops.segment import Loops, slots_of
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_then, logical_and, loop, minimum
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.shapes.formula import Formula, apply, product

#: The stage and the sums after a step along K; a step gets its start, the stage and the sums.
Stepped: TypeAlias = tuple[mlir.Value, list[mlir.Value]]
LoopBody: TypeAlias = Callable[[mlir.Value, mlir.Value, list[mlir.Value]], Stepped]


@dataclass(frozen=True)
class SplitK:
    """Split-K: partial sums of all of C for ``count`` parts of K, from byte ``offset`` of the workspace."""

    tiles: Tiles
    count: int
    offset: Formula

    @property
    def sizes(self) -> list[Formula]:
        """The sizes of a part: matrices, rows, columns."""
        groups = self.tiles.groups
        return [product(self.tiles.sizes("batch")), groups.sizes("m"), groups.sizes("n")]

    @property
    def bytes(self) -> Formula:
        return product([*self.sizes, self.count, memory.element_bytes(mlir.type_of(self.tiles.wide))])

    @property
    def depth(self) -> Formula:
        """The steps along K of a part: whole tiles."""
        return apply(
            "roundup", apply("ceildiv", product(self.tiles.sizes("k")), self.count), self.tiles.tile.k
        )

    def place(self, kernel: Kernel, written: bool) -> Pointer:
        """The pointer to the first sum."""
        return Pointer(kernel.workspace(self.offset, written), mlir.type_of(self.tiles.wide), [])


def write_split_k_reduction(writer: PointWriter, parts: SplitK) -> LaunchGeometry:
    """Write the body of the kernel that adds the parts and runs the epilogue: one thread per element of C."""
    kernel, tiles = writer.kernel, parts.tiles
    value, threads, points = kernel.value, kernel.sizes.choices.threads, product(parts.sizes)
    with kernel.before():
        place, limit = parts.place(kernel, written=False), value(points)
    _, number = thread_number(threads)

    def point() -> None:
        total = memory.load(place, number)
        for part in range(1, parts.count):
            partial = memory.load(place, memory.plus(number, memory.times(limit, mlir.constant(part))))
            total = arith.addf(total, partial)
        matrix, m, n = split(number, None, parts.sizes, value)
        batch = split(matrix, None, tiles.sizes("batch"), value) if tiles.sizes("batch") else []
        write_element(writer, tiles, batch, (m, n), total)

    if_then(compare("lt", number, limit), point)
    return LaunchGeometry((apply("ceildiv", points, threads), 1, 1), (threads, 1, 1))


def write_tiles(writer: PointWriter, tiles: Tiles, parts: SplitK | None = None) -> LaunchGeometry:
    """Write the body of the kernel; with ``parts``, it stores partial sums and has no epilogue."""
    value, tile = writer.kernel.value, tiles.tile
    rows = apply("ceildiv", tiles.groups.sizes("m"), tile.m)
    columns = apply("ceildiv", tiles.groups.sizes("n"), tile.n)
    block, thread = (arith.extui(i64(), special(name)) for name in ("ctaid.x", "tid.x"))
    sizes = [*tiles.sizes("batch"), rows, columns]
    if parts is not None:
        sizes = [parts.count, *sizes]
    *batch, row, column = split(block, None, sizes, value)
    part = batch.pop(0) if parts is not None else None
    firsts = (memory.times(row, mlir.constant(tile.m)), memory.times(column, mlir.constant(tile.n)))
    product_code = _Product(writer, tiles, batch, firsts, thread)
    if parts is not None and part is not None:
        product_code.divide(parts, part)
    product_code.write()
    return LaunchGeometry(
        (product(sizes), 1, 1), (tile.threads, 1, 1), dynamic_bytes(product_code.core.shared_bytes)
    )


class _Product:
    """Emits a matrix product: staging of tiles in shared memory, the loop along K, and the epilogue."""

    def __init__(
        self,
        writer: PointWriter,
        tiles: Tiles,
        batch: list[mlir.Value],
        firsts: tuple[mlir.Value, mlir.Value],
        thread: mlir.Value,
    ) -> None:
        self.writer, self.tiles, self.batch, self.firsts, self.thread = writer, tiles, batch, firsts, thread
        self.value = writer.kernel.value
        self.core: PlainCore | MatrixCore = (PlainCore if tiles.tile.own else MatrixCore)(tiles, thread)
        if self.core.shared_bytes > (room := writer.kernel.sizes.room):
            raise rejected(f"a product would take {self.core.shared_bytes} bytes of shared memory, of {room}")
        name = tiled_symbol(writer.kernel.name)
        self.shared = Shared(shared_place(writer.kernel, name, self.core.shared_bytes))
        self.loaders = [
            self._loader(tiles.a, tiles.tile.m, firsts[0]),
            self._loader(tiles.b, tiles.tile.n, firsts[1]),
        ]
        self.bases = [self._base(operand) for operand in (tiles.a, tiles.b)]
        self.parts: tuple[SplitK, Pointer, mlir.Value] | None = None
        self.first: mlir.Value | None = None

    def divide(self, parts: SplitK, part: mlir.Value) -> None:
        """Restrict this block to one of the parts."""
        with self.writer.kernel.before():
            place, depth = parts.place(self.writer.kernel, written=True), self.value(parts.depth)
        self.first = memory.times(part, depth)
        self.parts = parts, place, part

    def _loader(self, operand: Operand, rows: int, first: mlir.Value) -> Loader:
        start = self.writer.start(operand.access)
        tile, sizes = self.tiles.tile, self.tiles.sizes("k")
        return Loader(
            self.writer.kernel, operand, start, rows, tile.k, tile.threads, sizes, self.thread, first
        )

    def _base(self, operand: Operand) -> mlir.Value:
        total = mlir.constant(0)
        for counter, step in zip(self.batch, operand.batch_steps, strict=True):
            total = memory.plus(total, memory.times(counter, self.value(step)))
        return total

    def write(self) -> None:
        sums = (
            self._pipelined_async(self.core)
            if isinstance(self.core, MatrixCore) and self._copies
            else self._pipelined_registers()
        )
        for number in range(self.core.passes):
            self.core.wait(number, left=False)
            self.core.store_sums(self.shared, number, sums)
            self.core.wait(number, left=True)
            self._finish(number)

    @property
    def _copies(self) -> bool:
        return self.tiles.tile.stages > 2

    def _pipelined_async(self, core: MatrixCore) -> list[mlir.Value]:
        """The sums of all products, with asynchronous copies several steps ahead."""
        stages, depth = self.tiles.tile.stages, self.tiles.tile.k
        for number in range(stages - 1):
            self._copy(core, self._from_first(number * depth), mlir.constant(number))

        def step(k: mlir.Value, stage: mlir.Value, sums: list[mlir.Value]) -> Stepped:
            wait_for_copies(stages - 2)
            barrier()
            free = _next_stage(stage, 0, stages - 1, -1)
            self._copy(core, memory.plus(k, mlir.constant((stages - 1) * depth)), free)
            return _next_stage(stage, stages - 1, 0, 1), core.step(self.shared, stage, sums)

        sums = self._steps(step)
        wait_for_copies(0)
        return sums

    def _from_first(self, number: int) -> mlir.Value:
        """A step along K, counted from the first of this block."""
        return mlir.constant(number) if self.first is None else memory.plus(self.first, mlir.constant(number))

    def _copy(self, core: MatrixCore, k: mlir.Value, stage: mlir.Value) -> None:
        for side, (loader, base) in enumerate(zip(self.loaders, self.bases, strict=True)):
            loader.copy(base, k, core.places(self.shared, side, stage, loader))
        commit_copies()

    def _pipelined_registers(self) -> list[mlir.Value]:
        """The sums of all products, with the next tiles in registers."""
        depth = self.tiles.tile.k

        def fetch(k: mlir.Value) -> list[list[mlir.Value]]:
            return [loader.load(base, k) for loader, base in zip(self.loaders, self.bases, strict=True)]

        def store_tiles(chunks: list[list[mlir.Value]], stage: mlir.Value) -> None:
            for side, loader in enumerate(self.loaders):
                self.core.store_tiles(self.shared, side, stage, loader, chunks[side])
            barrier()

        def step(k: mlir.Value, stage: mlir.Value, sums: list[mlir.Value]) -> Stepped:
            chunks = fetch(memory.plus(k, mlir.constant(depth)))
            sums = self.core.step(self.shared, stage, sums)
            next_stage = arith.xori(stage, mlir.constant(1))
            store_tiles(chunks, next_stage)
            return next_stage, sums

        store_tiles(fetch(self._from_first(0)), mlir.constant(0))
        return self._steps(step)

    def _steps(self, step: LoopBody) -> list[mlir.Value]:
        """Write the loop over the tiles of K, which carries the stage and the sums."""
        depth, limit = self.tiles.tile.k, self.value(product(self.tiles.sizes("k")))
        if self.parts is not None:
            limit = minimum(memory.plus(self._from_first(0), self.value(self.parts[0].depth)), limit)
        start = [mlir.constant(0), *self.core.start()]
        bounds = self._from_first(0), limit
        loop = mlir.for_loop(bounds, mlir.constant(depth), start, no_unroll_annotation())
        block = mlir.block_of(loop)
        with mlir.at_end(block):
            k, stage, *sums = list(block.arguments)
            stage, sums = step(k, stage, sums)
            scf.yield_([stage, *sums])
        return list(loop.results)[1:]

    def _finish(self, number: int) -> None:
        """Run the epilogue on the elements that a pass stored, with coalesced accesses."""
        core = self.core
        tile, groups = self.tiles.tile, self.tiles.groups
        limits = [
            None if fits(groups.sizes(name), size) else self.value(groups.sizes(name))
            for name, size in (("m", tile.m), ("n", tile.n))
        ]

        def turn(step: mlir.Value) -> None:
            row, column, offset = core.element(number, step)
            m, n = (memory.plus(first, at) for first, at in zip(self.firsts, (row, column), strict=True))
            in_bounds = [compare("lt", at, limit) for at, limit in ((m, limits[0]), (n, limits[1])) if limit]

            def element() -> None:
                self._element(m, n, self.shared.load(offset, core.wide, core.width))

            if in_bounds:
                if_then(reduce(logical_and, in_bounds), element)
            else:
                element()

        loop(mlir.constant(0), mlir.constant(core.turns), turn)

    def _element(self, m: mlir.Value, n: mlir.Value, total: mlir.Value) -> None:
        if self.parts is None:
            write_element(self.writer, self.tiles, self.batch, (m, n), total)
            return
        parts, place, part = self.parts
        at = part
        for counter, size in zip(
            (*self.batch, m, n), (*self.tiles.sizes("batch"), *parts.sizes[1:]), strict=True
        ):
            at = memory.plus(memory.times(at, self.value(size)), counter)
        memory.store(place, at, total)


def write_element(
    writer: PointWriter,
    tiles: Tiles,
    batch: list[mlir.Value],
    place: tuple[mlir.Value, mlir.Value],
    total: mlir.Value,
) -> None:
    """Run the group's other statements on an element of C, the sum of whose products is ``total``."""
    fused, value = writer.fused, writer.kernel.value
    values = {
        "batch": batch,
        "m": split(place[0], None, tiles.sizes("m"), value),
        "n": split(place[1], None, tiles.sizes("n"), value),
    }
    counters = tiles.counters(fused.shared, values)
    registers: Registers = {}
    for number, segment in enumerate(fused.segments):
        if number != tiles.segment:
            Loops(writer, segment, slots_of(segment, fused.shared)).run(fused.shared, counters, registers, {})
            continue
        access = segment[0].nest.accesses[2]
        old_value = writer.read(access, counters, registers)
        writer.write_back(access, counters, registers, _added(old_value, total))


def _next_stage(stage: mlir.Value, last: int, first: int, step: int) -> mlir.Value:
    """``stage`` plus ``step``, or ``first`` where it is ``last``."""
    moved = memory.plus(stage, mlir.constant(step))
    at_end = compare("eq", stage, mlir.constant(last))
    return arith.select(at_end, mlir.constant(first), moved)


def _added(old_value: mlir.Value, total: mlir.Value) -> mlir.Value:
    """Add in the type of the total and convert to the type of C."""
    kind = old_value.type
    if kind == total.type:
        return arith.addf(old_value, total)
    wide = arith.extf(total.type, old_value)
    return arith.truncf(kind, arith.addf(wide, total))

"""The kernel of a contraction: tiles of A and B through shared memory, what follows on each element of C.

While the products of one pair of tiles are summed, the next pair is on its way in registers; it goes to the
other of two stages of shared memory, with one barrier a step.
"""

from __future__ import annotations

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.formula import apply, product
from kcache_compiler.codegen.fused import Loops, Registers, slots_of
from kcache_compiler.codegen.gpu.cores import MatrixCore, PlainCore, Shared, core_of, index, over, rest
from kcache_compiler.codegen.gpu.intrinsics import barrier, special
from kcache_compiler.codegen.gpu.kernel import Form, split
from kcache_compiler.codegen.gpu.points import PointWriter
from kcache_compiler.codegen.gpu.shared import shared_place
from kcache_compiler.codegen.gpu.tiles import Loader, Operand, Tiles
from kcache_compiler.codegen.memory import i64
from kcache_compiler.codegen.shuffles.code import both, compare, loop, when


def write_tiles(writer: PointWriter, tiles: Tiles) -> Form:
    """The body of the kernel at the current point."""
    value, tile = writer.kernel.value, tiles.tile
    rows = apply("ceildiv", tiles.groups.sizes("m"), tile.m)
    columns = apply("ceildiv", tiles.groups.sizes("n"), tile.n)
    block, thread = (mlir.value("arith.extui", [special(name)], i64()) for name in ("ctaid.x", "tid.x"))
    sizes = [*tiles.sizes("batch"), rows, columns]
    *batch, row, column = split(block, None, sizes, value)
    firsts = (memory.times(row, mlir.constant(tile.m)), memory.times(column, mlir.constant(tile.n)))
    _Product(writer, tiles, batch, firsts, thread).write()
    return Form((product(sizes), 1, 1), (tile.threads, 1, 1))


class _Product:
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
        self.core: PlainCore | MatrixCore = core_of(tiles, thread)
        name = f"{writer.kernel.name}_tiles"
        self.shared = Shared(shared_place(writer.kernel, name, self.core.shared_bytes))
        self.loaders = [
            self._loader(tiles.a, tiles.tile.m, firsts[0]),
            self._loader(tiles.b, tiles.tile.n, firsts[1]),
        ]
        self.bases = [self._base(operand) for operand in (tiles.a, tiles.b)]

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
        self._fetch(mlir.constant(0), mlir.constant(0))
        barrier()
        sums = self._sum()
        for number in range(self.core.passes):
            if number:
                barrier()
            self.core.leave(self.shared, number, sums)
            barrier()
            self._finish(number)

    def _fetch(self, k: mlir.Value, stage: mlir.Value) -> None:
        for side, (loader, base) in enumerate(zip(self.loaders, self.bases, strict=True)):
            self.core.keep(self.shared, side, stage, loader, loader.load(base, k))

    def _sum(self) -> list[mlir.Value]:
        depth, limit = self.tiles.tile.k, self.value(product(self.tiles.sizes("k")))
        start = [mlir.constant(0), *self.core.start()]
        kinds = [one.type for one in start]
        made = mlir.create(
            "scf.for", [mlir.constant(0), limit, mlir.constant(depth), *start], kinds, regions=1
        )
        inside = mlir.new_block(made, 0, [i64(), *kinds])
        with mlir.at_end(inside):
            k, stage, *sums = list(inside.arguments)
            following = memory.plus(k, mlir.constant(depth))
            chunks = [
                loader.load(base, following) for loader, base in zip(self.loaders, self.bases, strict=True)
            ]
            sums = self.core.step(self.shared, stage, sums)
            other = mlir.value("arith.xori", [stage, mlir.constant(1)], i64())
            for side, loader in enumerate(self.loaders):
                self.core.keep(self.shared, side, other, loader, chunks[side])
            barrier()
            mlir.create("scf.yield", [other, *sums])
        return list(made.results)[1:]

    def _finish(self, number: int) -> None:
        """What follows on the elements that a pass left, neighbours by neighbours."""
        tile, core = self.tiles.tile, self.core
        rows, pitch = core.staged
        limits = [self.value(self.tiles.groups.sizes(name)) for name in ("m", "n")]

        def element(at: mlir.Value) -> None:
            row, column = over(at, tile.n), rest(at, tile.n)
            m = memory.plus(self.firsts[0], core.row_of(number, row))
            n = memory.plus(self.firsts[1], column)
            inside = both(compare("lt", m, limits[0]), compare("lt", n, limits[1]))

            def finish() -> None:
                where = index((row, pitch * core.width), (column, core.width))
                self._element(m, n, self.shared.load(where, core.wide, core.width))

            when(inside, finish)

        turns = rows * tile.n // tile.threads

        def turn(step: mlir.Value) -> None:
            element(memory.plus(memory.times(step, mlir.constant(tile.threads)), self.thread))

        loop(mlir.constant(0), mlir.constant(turns), turn)

    def _element(self, m: mlir.Value, n: mlir.Value, total: mlir.Value) -> None:
        writer, tiles = self.writer, self.tiles
        fused = writer.fused
        values = {
            "batch": self.batch,
            "m": split(m, None, tiles.sizes("m"), self.value),
            "n": split(n, None, tiles.sizes("n"), self.value),
        }
        counters = tiles.counters(fused.shared, values)
        registers: Registers = {}
        for place, segment in enumerate(fused.segments):
            if place != tiles.segment:
                Loops(writer, segment, slots_of(segment, fused.shared)).run(
                    fused.shared, counters, registers, {}
                )
                continue
            access = segment[0].nest.accesses[2]
            before = writer.read(access, counters, registers)
            writer.write_back(access, counters, registers, _added(before, total))


def _added(before: mlir.Value, total: mlir.Value) -> mlir.Value:
    """The sum in the type of the total, as the type of C."""
    kind = before.type
    if kind == total.type:
        return mlir.value("arith.addf", [before, total], kind)
    wide = mlir.value("arith.extf", [before], total.type)
    return mlir.value("arith.truncf", [mlir.value("arith.addf", [wide, total], total.type)], kind)

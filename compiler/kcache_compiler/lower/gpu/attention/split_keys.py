"""Attention of few rows and many keys: blocks compute parts of the keys, a second launch combines them.

This is flash-decoding (Dao, Haziza, Massa and Sizov, 2023): each part has the maximum, the sum of the weights
and the weighted values of its keys. The parts are added in order, so that results do not depend on the order
of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.lower.gpu.attention.plan import AttentionPlan
from kcache_compiler.lower.gpu.attention.rows import Partial, Rows
from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, split, thread_number
from kcache_compiler.lower.gpu.tile_sizes import Sizes
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_then
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import scf
from kcache_compiler.shapes.formula import Formula, add, apply, product

#: Blocks per multiprocessor that parts make; fewest steps of a part; most parts, and most for dynamic keys.
BLOCKS, STEPS, PARTS, OPEN_PARTS = 2, 4, 64, 8
#: Parts that the second launch loads at once.
_TOGETHER = 16


@dataclass(frozen=True)
class SplitKeys:
    """Partial results of ``count`` parts of the keys, from byte ``offset`` of the workspace.

    A row of a part has a sum for each column, then the maximum and the total.
    """

    plan: AttentionPlan
    count: int
    offset: Formula

    @property
    def sizes(self) -> list[Formula]:
        """The sizes of a part: matrices, rows, columns."""
        return [self.plan.attention.size(name) for name in ("batch", "rows", "columns")]

    @property
    def bytes(self) -> Formula:
        *rows, columns = self.sizes
        width = memory.element_bytes(mlir.type_of(self.plan.core.wide))
        return product([self.count, *rows, add(columns, 2), width])

    @property
    def keys(self) -> Formula:
        """The keys of a part: whole steps."""
        return apply(
            "roundup", apply("ceildiv", self.plan.attention.size("keys"), self.count), self.plan.core.keys
        )

    def start(self, kernel: Kernel, written: bool) -> Pointer:
        """The pointer to the first part."""
        return Pointer(kernel.workspace(self.offset, written), mlir.type_of(self.plan.core.wide), [])

    def row(self, kernel: Kernel, part: mlir.Value, batch: mlir.Value, row: mlir.Value) -> mlir.Value:
        """The offset of a row of a part, in elements."""
        matrices, rows, columns = (kernel.value(size) for size in self.sizes)
        number = memory.plus(memory.times(part, matrices), batch)
        number = memory.plus(memory.times(number, rows), row)
        return memory.times(number, memory.plus(columns, mlir.constant(2)))


def split_count(plan: AttentionPlan, sizes: Sizes) -> int:
    """The number of parts of the keys: more than 1 if rows are static and give few blocks."""
    attention, core = plan.attention, plan.core
    blocks = product(
        [
            attention.size("batch"),
            apply("ceildiv", attention.size("rows"), core.rows),
            apply("ceildiv", attention.size("columns"), core.columns),
        ]
    )
    multiprocessors, keys = sizes.gpu.multiprocessors, attention.size("keys")
    if not isinstance(blocks, int) or not 0 < 2 * blocks <= multiprocessors:
        return 1
    most = PARTS if isinstance(keys, int) else OPEN_PARTS
    parts = 1
    while 2 * parts <= min(most, BLOCKS * multiprocessors // blocks):
        if isinstance(keys, int) and 2 * parts * STEPS * core.keys > keys:
            break
        parts *= 2
    return parts


def write_combination(
    kernel: Kernel, parts: SplitKeys, views: dict[mlir.Value, Pointer], scalars: dict[mlir.Value, mlir.Value]
) -> LaunchGeometry:
    """Write the body of the kernel that combines the parts: one thread per element of the result."""
    attention, value, threads = parts.plan.attention, kernel.value, kernel.sizes.choices.threads
    points = product(parts.sizes)
    rows = Rows(kernel, attention, views, scalars)
    with kernel.before():
        start, limit = parts.start(kernel, written=False), value(points)
    with kernel.body():
        _, number = thread_number(threads)

        def point() -> None:
            matrix, row, column = split(number, None, parts.sizes, value)
            whole = _combined(rows, parts, start, (matrix, row, column))
            batch = rows.delinearize(attention.batch, matrix)
            place = parts.plan.place(batch, rows.delinearize(attention.rows, row))
            rows.finish(whole, place, rows.delinearize(attention.columns, column))

        if_then(compare("lt", number, limit), point)
    return LaunchGeometry((apply("ceildiv", points, threads), 1, 1), (threads, 1, 1))


def _combined(
    rows: Rows, parts: SplitKeys, start: Pointer, place: tuple[mlir.Value, mlir.Value, mlir.Value]
) -> Partial:
    """The combination of all parts of an element, in order."""
    matrix, row, column = place
    columns = rows.value(parts.sizes[-1])

    def loaded(part: mlir.Value) -> Partial:
        first = parts.row(rows.kernel, part, matrix, row)
        at_top = memory.plus(first, columns)
        at_total = memory.plus(at_top, mlir.constant(1))
        sum_ = memory.load(start, memory.plus(first, column))
        return memory.load(start, at_top), memory.load(start, at_total), sum_

    def chunk(first: mlir.Value, count: int) -> list[Partial]:
        return [loaded(memory.plus(first, mlir.constant(number))) for number in range(count)]

    together = min(parts.count, _TOGETHER)
    if parts.count == together:
        return rows.combined(chunk(mlir.constant(0), together))
    zero = mlir.float_constant(0, rows.kind)
    bounds = mlir.constant(0), mlir.constant(parts.count)
    chunks = mlir.for_loop(bounds, mlir.constant(together), [rows.negative_infinity(), zero, zero])
    block = mlir.block_of(chunks)
    with mlir.at_end(block):
        first, top, total, sum_ = list(block.arguments)
        scf.yield_(list(rows.combined([(top, total, sum_), *chunk(first, together)])))
    top, total, sum_ = list(chunks.results)
    return top, total, sum_

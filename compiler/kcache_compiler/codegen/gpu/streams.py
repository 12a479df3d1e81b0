"""Elementwise groups: a thread for several neighbours, which it reads and writes together."""

from __future__ import annotations

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.formula import Formula, apply, product
from kcache_compiler.codegen.gpu.kernel import Form, split, thread_number
from kcache_compiler.codegen.gpu.lanes import Lanes, LaneWriter
from kcache_compiler.codegen.gpu.points import SHORT, THREADS
from kcache_compiler.codegen.shuffles.code import both, compare, least, loop, when


def plan_streams(writer: LaneWriter) -> Lanes | None:
    """How many elements a thread takes; None for groups that are no elementwise stream."""
    fused = writer.fused
    count = len(fused.statements[0].nest.axes)
    if len(fused.segments) != 1 or count == 0 or fused.shared != count:
        return None
    return writer.lanes(fused.segments[0], whole=count == 1)


def write_streams(writer: LaneWriter, lanes: Lanes) -> Form:
    """The body of the kernel at the current point."""
    kernel, count = writer.kernel, lanes.count
    sizes = [axis.size for axis in writer.fused.statements[0].nest.axes]
    points = product(sizes)
    chunks = apply("ceildiv", points, count)
    limit, fits = kernel.value(points), writer.fits(lanes)
    short, number = thread_number(THREADS)
    first = memory.times(number, mlir.constant(count))
    narrow = short if isinstance(points, int) and points < SHORT else None

    def together() -> None:
        split_sizes: list[Formula] = [*sizes[:-1], apply("ceildiv", sizes[-1], count)]
        counters = split(number, narrow, split_sizes, kernel.value)
        counters[-1] = memory.times(counters[-1], mlir.constant(count))
        writer.together(counters, count, writer.point)

    def one_by_one() -> None:
        end = least(memory.plus(first, mlir.constant(count)), limit)
        loop(first, end, lambda point: writer.point(split(point, None, sizes, kernel.value)))

    def chunk() -> None:
        if fits is None and isinstance(points, int) and points % count == 0:
            together()
            return
        whole = compare("le", memory.plus(first, mlir.constant(count)), limit)
        chosen = mlir.create("scf.if", [whole if fits is None else both(whole, fits)], regions=2)
        for region, write in enumerate((together, one_by_one)):
            with mlir.at_end(mlir.new_block(chosen, region, [])):
                write()
                mlir.create("scf.yield")

    when(compare("lt", first, limit), chunk)
    return Form((apply("ceildiv", chunks, THREADS), 1, 1), (THREADS, 1, 1))

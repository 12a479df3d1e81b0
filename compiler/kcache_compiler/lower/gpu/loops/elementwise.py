"""Elementwise groups: each thread computes several contiguous elements with vector loads and stores."""

from __future__ import annotations

from kcache_compiler.lower.gpu.kernel import LaunchGeometry, split, thread_number
from kcache_compiler.lower.gpu.loops.vectorized_accesses import Lanes, LaneWriter
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_then, logical_and, loop, minimum
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import scf
from kcache_compiler.shapes.formula import Formula, apply, product


def plan_streams(writer: LaneWriter) -> Lanes | None:
    """The elements per thread; None for groups that are not elementwise."""
    fused = writer.fused
    count = len(fused.statements[0].nest.axes)
    if len(fused.segments) != 1 or count == 0 or fused.shared != count:
        return None
    return writer.lanes(fused.segments[0], whole=count == 1)


def write_streams(writer: LaneWriter, lanes: Lanes) -> LaunchGeometry:
    """Write the body of the kernel at the insertion point.

    The chunks of a thread are a block of threads apart, so that accesses stay coalesced.
    """
    choices = writer.kernel.sizes.choices
    threads, items = choices.threads, choices.items
    points = product([axis.size for axis in writer.fused.statements[0].nest.axes])
    limit, fits = writer.kernel.value(points), writer.fits(lanes)
    for item in range(items):
        short, number = thread_number(threads, item, items)
        fits_i32 = isinstance(points, int) and points < 2**31 - threads * items
        _write_chunk(writer, lanes, (number, short if fits_i32 else None), limit, fits)
    chunks = apply("ceildiv", points, lanes.count)
    return LaunchGeometry((apply("ceildiv", chunks, threads * items), 1, 1), (threads, 1, 1))


def _write_chunk(
    writer: LaneWriter,
    lanes: Lanes,
    place: tuple[mlir.Value, mlir.Value | None],
    limit: mlir.Value,
    fits: mlir.Value | None,
) -> None:
    """Write the chunk of number ``place``, as i64 and, if it is known to fit, as i32."""
    kernel, count, (number, narrow) = writer.kernel, lanes.count, place
    sizes = [axis.size for axis in writer.fused.statements[0].nest.axes]
    points = product(sizes)
    first = memory.times(number, mlir.constant(count))

    def together() -> None:
        split_sizes: list[Formula] = [*sizes[:-1], apply("ceildiv", sizes[-1], count)]
        counters = split(number, narrow, split_sizes, kernel.value)
        counters[-1] = memory.times(counters[-1], mlir.constant(count))
        writer.together(counters, count, writer.point)

    def one_by_one() -> None:
        end = minimum(memory.plus(first, mlir.constant(count)), limit)
        loop(first, end, lambda point: writer.point(split(point, None, sizes, kernel.value)))

    def chunk() -> None:
        if fits is None and isinstance(points, int) and points % count == 0:
            together()
            return
        is_full = compare("le", memory.plus(first, mlir.constant(count)), limit)
        branch = mlir.if_else(is_full if fits is None else logical_and(is_full, fits))
        for region, write in enumerate((together, one_by_one)):
            with mlir.at_end(mlir.block_of(branch, region)):
                write()
                scf.yield_([])

    if_then(compare("lt", first, limit), chunk)

"""Results larger than caches go past them: a line that is stored whole need not be read first.

The innermost loop writes such a result to a small block on the stack, which then goes to memory by
non-temporal stores. They need aligned vectors: where the place is not aligned, ordinary stores take over.
Where a launch goes over rows several times, the last time asks for the rows to come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm, scf
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Fused, Statement
from kcache_compiler.shapes.formula import Formula

#: Bytes of a launch's results from which on they would only pass through the last-level cache.
LARGE = 32 << 20
#: Elements of a block, and the shortest innermost loop that is worth one.
BLOCK, SHORTEST = 256, 512
#: Bytes that are stored at once: a line.
LINE = 64
_MOST = 4
#: Rows ahead of the one at hand that are asked for: one for the first-level cache, one for the second.
#: While a row is gone over again memory would rest, and a processor's own prefetching ends with the page.
NEAR, FAR = 1, 3
#: Bytes between rows at most: of longer ones the processor finds most itself.
LONGEST_ROW = 16 << 10


def streamed(
    fused: Fused, buffers: Sequence[mlir.Value], shapes: Shapes, target: Target, chosen: int | None = None
) -> Fused:
    """The loops with those results marked that are to go past the caches of an x86-64: of launches whose
    results are ``LARGE`` bytes and more, or what is ``chosen``.
    """
    if target.architecture != "x86_64" or fused.turn is not None:
        return fused
    placed = {*fused.unstored, *dict(fused.rows), *dict(fused.instead), *dict(fused.instead).values()}
    found: dict[int, int] = {}
    for segment in fused.segments:
        axes = segment[0].nest.axes
        if not axes or not isinstance(axes[-1].size, int) or axes[-1].size < SHORTEST:
            continue
        if not all(one.nest.axes[-1].parallel for one in segment):
            continue
        for access in (access for one in segment for access in one.nest.accesses):
            size = _bytes(buffers[access.buffer], shapes)
            if (
                size
                and access.buffer not in placed
                and _plain(access)
                and _alone(fused, segment, access, buffers)
            ):
                found[access.buffer] = size
    large = LARGE if chosen is None else chosen
    past = len(found) <= _MOST and sum(found.values()) >= large
    return replace(fused, streamed=frozenset(found)) if past else fused


def _alone(
    fused: Fused, segment: tuple[Statement, ...], written: Access, buffers: Sequence[mlir.Value]
) -> bool:
    """Who else uses the memory reads the same element after it was written, and finds it in a register."""
    root = memory.root_of(buffers[written.buffer])
    seen = False
    for one in fused.statements:
        reads = [access for access in one.nest.accesses if not access.written]
        for access in (*reads, *(access for access in one.nest.accesses if access.written)):
            if access is written:
                seen = True
            elif memory.root_of(buffers[access.buffer]) == root:
                same = access.buffer == written.buffer and access.offset == written.offset
                if not (seen and one in segment and same and access.strides == written.strides):
                    return False
                if access.written:
                    return False
    return True


def _plain(access: Access) -> bool:
    return access.written and not access.reads and access.strides[-1] == 1


def _bytes(buffer: mlir.Value, shapes: Shapes) -> int:
    """0 for sizes that are open and elements that are no power of two bytes."""
    total = memory.element_bytes(mlir.element_type(buffer.type))
    if str(mlir.element_type(buffer.type)).startswith("complex"):
        return 0
    for size in shapes.sizes(buffer):
        total *= size if isinstance(size, int) else 0
    return total


def block(element: mlir.Type) -> Pointer:
    """Stack for one block; to be asked for outside of loops."""
    return Pointer(memory.stack(BLOCK * memory.element_bytes(element)), element, [])


def flush(target: Pointer, source: Pointer, count: mlir.Value) -> None:
    """Store ``count`` elements, those in whole lines past the caches."""
    stored = memory.stored_type(target.element)
    width = memory.element_bytes(target.element)
    lanes = LINE // width
    address = llvm.ptrtoint(memory.i64(), target.base)
    rest = arith.andi(address, mlir.constant(LINE - 1))
    whole = arith.andi(count, mlir.constant(-lanes))
    zero = mlir.constant(0)
    aligned = arith.cmpi(arith.CmpIPredicate.eq, rest, zero)
    lines = arith.select(aligned, whole, zero)
    vector = mlir.type_of(f"vector<{lanes}x{stored}>")
    loop = _loop(zero, lines, lanes)
    with mlir.at_end(mlir.block_of(loop)):
        at = mlir.block_of(loop).arguments[0]
        ours, theirs = (memory.advance(pointer.base, stored, at) for pointer in (source, target))
        llvm.store(llvm.load(vector, ours, alignment=width), theirs, alignment=LINE, nontemporal=True)
        scf.yield_([])
    loop = _loop(lines, count, 1)
    with mlir.at_end(mlir.block_of(loop)):
        at = mlir.block_of(loop).arguments[0]
        memory.store(target, at, memory.load(source, at))
        scf.yield_([])


def coming(fused: Fused, elements: Mapping[int, mlir.Type]) -> list[tuple[Access, int]]:
    """What loops that go over each row several times only read, and how many bytes its rows are apart.

    ``elements`` are the types of those buffers that lie in memory.
    """
    if fused.shared != 1 or len(fused.segments) == 1:
        return []
    statements = fused.statements
    written = {
        access.buffer for statement in statements for access in statement.nest.accesses if access.written
    }
    found: dict[tuple[int, Formula], tuple[Access, int]] = {}
    for access in (access for statement in statements for access in statement.nest.accesses):
        if access.buffer not in elements or access.buffer in written or len(access.strides) != 2:
            continue
        row, step = access.strides
        if step != 1 or not isinstance(row, int):
            continue
        apart = row * memory.element_bytes(elements[access.buffer])
        if 0 < apart <= LONGEST_ROW:
            found.setdefault((access.buffer, access.offset), (access, apart))
    return list(found.values()) if len(found) <= _MOST else []


def prefetch(place: Pointer, apart: int) -> None:
    """Ask for a block of the rows to come. Nothing happens where they are not the program's memory."""
    byte, length = mlir.type_of("i8"), BLOCK * memory.element_bytes(place.element)
    for rows, hint in ((FAR, 2), (NEAR, 3)):  # the other way round takes a third longer
        for at in range(rows * apart, rows * apart + length, LINE):
            address = memory.advance(place.base, byte, mlir.constant(at))
            llvm.intr_prefetch(address, rw=0, hint=hint, cache=1)


def fence() -> None:
    """A store fence on x86-64, before other threads may read the results."""
    llvm.CallIntrinsicOp(None, "llvm.x86.sse.sfence", [], [], [])


def _loop(low: mlir.Value, high: mlir.Value, step: int) -> mlir.Op:
    return mlir.for_loop((low, high), mlir.constant(step))

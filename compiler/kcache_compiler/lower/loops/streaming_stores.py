"""Streaming stores for results larger than the caches: a line that is stored whole is not read first.

The innermost loop writes such a result to a small block on the stack, which is then copied to memory by
non-temporal stores. These need aligned vectors; unaligned blocks are copied by ordinary stores.
A launch that iterates over rows several times prefetches following rows in its last iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm, scf
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.schedule.loops import Fused, Statement
from kcache_compiler.shapes.formula import Formula

#: Bytes of a launch's results above which they do not fit in the last-level cache.
LARGE = 32 << 20
#: Bytes of a launch's results above which those that no other launch reads are streamed if the results of the
#: program together are ``LARGE``: the next call finds none of them in a cache.
UNREAD = 1 << 20
#: Elements of a block, and the minimum length of an innermost loop that uses blocks.
BLOCK, SHORTEST = 256, 512
#: Bytes of a cache line, the unit of a streaming store.
LINE = 64
_MOST = 4
#: Prefetch distances in rows, for the first-level and the second-level cache. Repeated iteration over a row
#: would leave memory idle, and hardware prefetching stops at the end of a page.
NEAR, FAR = 1, 3
#: Maximum bytes between rows: hardware prefetching covers longer rows.
LONGEST_ROW = 16 << 10


def streamed(
    fused: Fused,
    buffers: Sequence[mlir.Value],
    shapes: Shapes,
    target: Target,
    unread: Set[mlir.Value] = frozenset(),
    chosen: int | None = None,
) -> Fused:
    """``fused`` with the results marked that are written by streaming stores on x86-64.

    These are results of launches that write at least ``LARGE`` bytes, or ``chosen`` bytes if given; also
    ``UNREAD`` bytes of ``unread`` results of a program with large ones, unless ``chosen`` is given.
    """
    if target.architecture != "x86_64" or fused.turn is not None:
        return fused
    placed = {*fused.unstored, *dict(fused.rows), *dict(fused.instead), *dict(fused.instead).values()}
    sizes: dict[int, int] = {}
    for segment in fused.segments:
        axes = segment[0].nest.axes
        if not axes or not isinstance(axes[-1].size, int) or axes[-1].size < SHORTEST:
            continue
        if not all(statement.nest.axes[-1].parallel for statement in segment):
            continue
        for access in (access for statement in segment for access in statement.nest.accesses):
            size = _bytes(buffers[access.buffer], shapes)
            if (
                size
                and access.buffer not in placed
                and _plain(access)
                and _alone(fused, segment, access, buffers)
            ):
                sizes[access.buffer] = size
    large = LARGE if chosen is None else chosen
    if sum(sizes.values()) < large and chosen is None:
        sizes = {number: size for number, size in sizes.items() if buffers[number] in unread}
        large = UNREAD
    streams = len(sizes) <= _MOST and sum(sizes.values()) >= large
    return replace(fused, streamed=frozenset(sizes)) if streams else fused


@dataclass(frozen=True)
class Results:
    """The results of the function ``main`` if they have ``LARGE`` bytes together, as the new weights of a
    training step have; else none.
    """

    main: mlir.Op
    buffers: frozenset[mlir.Value]

    @classmethod
    def large(cls, main: mlir.Op, results: Sequence[mlir.Value], shapes: Shapes) -> Results:
        size = sum(_bytes(result, shapes) for result in results)
        return cls(main, frozenset(results) if size >= LARGE else frozenset())

    def unread(self, buffer: mlir.Value, generics: Collection[mlir.Op]) -> bool:
        """Whether ``buffer`` is one of them, or a view, that ``generics`` alone read and write, outside of
        loops.
        """
        root = memory.root_of(buffer)
        if root not in self.buffers:
            return False
        values = [root]
        for value in values:
            for user, _ in mlir.uses(value):
                if mlir.name_of(user) in memory.VIEWS:
                    values.append(user.results[0])
                elif user not in generics or mlir.parent_of(user) != self.main:
                    return False
        return True


def _alone(
    fused: Fused, segment: tuple[Statement, ...], written: Access, buffers: Sequence[mlir.Value]
) -> bool:
    """Whether every other access to the memory reads the same element, from its register, after the write."""
    root = memory.root_of(buffers[written.buffer])
    after_write = False
    for statement in fused.statements:
        reads = [access for access in statement.nest.accesses if not access.written]
        for access in (*reads, *(access for access in statement.nest.accesses if access.written)):
            if access is written:
                after_write = True
            elif memory.root_of(buffers[access.buffer]) == root:
                same_element = access.buffer == written.buffer and access.offset == written.offset
                if not (
                    after_write
                    and statement in segment
                    and same_element
                    and access.strides == written.strides
                ):
                    return False
                if access.written:
                    return False
    return True


def _plain(access: Access) -> bool:
    return access.written and not access.reads and access.strides[-1] == 1


def _bytes(buffer: mlir.Value, shapes: Shapes) -> int:
    """The bytes of ``buffer``; 0 if a size is dynamic or its elements are complex."""
    total = memory.element_bytes(mlir.element_type(buffer.type))
    if str(mlir.element_type(buffer.type)).startswith("complex"):
        return 0
    for size in shapes.sizes(buffer):
        total *= size if isinstance(size, int) else 0
    return total


def block(element: mlir.Type) -> Pointer:
    """Stack memory for one block; call it outside of loops."""
    return Pointer(memory.stack(BLOCK * memory.element_bytes(element)), element, [])


def flush(target: Pointer, source: Pointer, count: mlir.Value) -> None:
    """Copy ``count`` elements, whole lines by streaming stores."""
    stored = memory.stored_type(target.element)
    width = memory.element_bytes(target.element)
    lanes = LINE // width
    address = llvm.ptrtoint(memory.i64(), target.base)
    misalignment = arith.andi(address, mlir.constant(LINE - 1))
    whole_lines = arith.andi(count, mlir.constant(-lanes))
    zero = mlir.constant(0)
    aligned = arith.cmpi(arith.CmpIPredicate.eq, misalignment, zero)
    lines = arith.select(aligned, whole_lines, zero)
    vector = mlir.type_of(f"vector<{lanes}x{stored}>")
    loop = _loop(zero, lines, lanes)
    with mlir.at_end(mlir.block_of(loop)):
        index = mlir.block_of(loop).arguments[0]
        source_address, target_address = (
            memory.advance(pointer.base, stored, index) for pointer in (source, target)
        )
        llvm.store(
            llvm.load(vector, source_address, alignment=width),
            target_address,
            alignment=LINE,
            nontemporal=True,
        )
        scf.yield_([])
    loop = _loop(lines, count, 1)
    with mlir.at_end(mlir.block_of(loop)):
        index = mlir.block_of(loop).arguments[0]
        memory.store(target, index, memory.load(source, index))
        scf.yield_([])


def coming(fused: Fused, elements: Mapping[int, mlir.Type]) -> list[tuple[Access, int]]:
    """The read-only accesses of loops that iterate over each row several times, with the bytes between rows.

    ``elements`` are the element types of the buffers in memory.
    """
    if fused.shared != 1 or len(fused.segments) == 1:
        return []
    statements = fused.statements
    written = {
        access.buffer for statement in statements for access in statement.nest.accesses if access.written
    }
    prefetched: dict[tuple[int, Formula], tuple[Access, int]] = {}
    for access in (access for statement in statements for access in statement.nest.accesses):
        if access.buffer not in elements or access.buffer in written or len(access.strides) != 2:
            continue
        row, step = access.strides
        if step != 1 or not isinstance(row, int):
            continue
        row_bytes = row * memory.element_bytes(elements[access.buffer])
        if 0 < row_bytes <= LONGEST_ROW:
            prefetched.setdefault((access.buffer, access.offset), (access, row_bytes))
    return list(prefetched.values()) if len(prefetched) <= _MOST else []


def prefetch(pointer: Pointer, row_bytes: int) -> None:
    """Prefetch a block of following rows. Prefetches of unmapped addresses have no effect."""
    byte, length = mlir.type_of("i8"), BLOCK * memory.element_bytes(pointer.element)
    for distance, hint in ((FAR, 2), (NEAR, 3)):  # the reverse order takes a third longer
        for offset in range(distance * row_bytes, distance * row_bytes + length, LINE):
            address = memory.advance(pointer.base, byte, mlir.constant(offset))
            llvm.intr_prefetch(address, rw=0, hint=hint, cache=1)


def fence() -> None:
    """A store fence on x86-64, before other threads may read the results."""
    llvm.CallIntrinsicOp(None, "llvm.x86.sse.sfence", [], [], [])


def _loop(low: mlir.Value, high: mlir.Value, step: int) -> mlir.Op:
    return mlir.for_loop((low, high), mlir.constant(step))

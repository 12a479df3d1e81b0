"""Masked remainders of rows: a scalar remainder loop may take longer than the vector loop.

The innermost loop over a row of static length ends at a multiple of the unrolled vector length. A second
loop, annotated for vectorization with masks, computes the remainder. Requires masked stores as one
instruction: AVX-512, or AVX2 for elements of 4 and 8 bytes, where a masked store takes as long as several
others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.loops import memory
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loops import Fused, Statement

if TYPE_CHECKING:
    from kcache_compiler.lower.loops.elements import Code

#: Maximum interleave count of LLVM's loop vectorizer.
UNROLLED = 4
#: Bytes of elements that are supported.
_WIDTHS = (2, 4, 8)
#: Minimum and maximum number of operations of a body whose loop is interleaved.
LONG, LONGEST = 28, 160
#: The minimum for vectors of 32 bytes, whose iteration has half as many independent elements.
LONG_NARROW = 14
_LOOPS = ("scf.while", "scf.for", "scf.if", "memref.load")


def ended(fused: Fused, codes: Mapping[int, Code], buffers: Sequence[mlir.Value], target: Target) -> Fused:
    """``fused`` with the handling of row ends: repeated tiles, or the lanes of masked vectors."""
    if fused.turn is not None:
        has_loads = any(_has(code.generic, "memref.load") for code in codes.values())
        return replace(fused, turn=replace(fused.turn, repeats=not has_loads and _repeats(fused, buffers)))
    return _masked(fused, buffers, target)


def _repeats(fused: Fused, buffers: Sequence[mlir.Value]) -> bool:
    """Whether no statement reads memory that a statement writes, except through registers."""
    accesses = [access for statement in fused.statements for access in statement.nest.accesses]
    stored = [access for access in accesses if access.buffer not in fused.unstored]
    written = [memory.root_of(buffers[access.buffer]) for access in stored if access.written]
    read = [memory.root_of(buffers[access.buffer]) for access in stored if access.reads or not access.written]
    return not any(root in written for root in read)


def _masked(fused: Fused, buffers: Sequence[mlir.Value], target: Target) -> Fused:
    """``fused`` with the number of lanes of its vectors, and of a masked remainder."""
    if target.vector_bytes < 32 or target.architecture != "x86_64":
        return fused
    used = {access.buffer for statement in fused.statements for access in statement.nest.accesses}
    elements = [mlir.element_type(buffers[number].type) for number in used]
    widths = {memory.element_bytes(element) for element in elements}
    plain = not any(str(element) == "i1" or str(element).startswith("complex") for element in elements)
    if not plain or not widths <= set(_WIDTHS):
        return fused
    lanes = target.vector_bytes // max(4, *widths)
    if target.vector_bytes >= 64:
        return replace(fused, lanes=lanes)
    return replace(fused, lanes=0 if 2 in widths else lanes, short_lanes=lanes)


def suits(segment: tuple[Statement, ...], codes: Mapping[int, Code], unstored: Collection[int]) -> bool:
    """Whether accesses are contiguous or constant along the innermost axis and no body contains a loop."""
    for statement in segment:
        strides = [access.strides[-1] for access in statement.nest.accesses if access.buffer not in unstored]
        if any(stride not in (0, 1) for stride in strides):
            return False
        if has_loops(codes[statement.number].generic):
            return False
    return True


def has_loops(generic: mlir.Op) -> bool:
    """Whether the body of ``generic`` has control flow, or reads buffers at indices that it computes."""
    return _has(generic, *_LOOPS)


def _has(generic: mlir.Op, *names: str) -> bool:
    return any(mlir.name_of(op) in names for op in mlir.walk(generic))


def interleave_count(vectors: int) -> int:
    """The interleave count for this many whole vectors: of few, none is left for the masked loop."""
    count = UNROLLED
    while count > 1 and vectors < 8 * UNROLLED and vectors % count:
        count //= 2
    return count


def short_count(size: object, lanes: int) -> int:
    """The interleave count for ``size`` iterations in vectors of 32 bytes; of few vectors, none is left."""
    count = UNROLLED
    while count > 1 and isinstance(size, int) and size < 2 * UNROLLED * lanes and size // lanes % count:
        count //= 2
    return count


def vector_annotation(lanes: int, count: int) -> mlir.Attribute:
    """The loop annotation for ``count`` interleaved vectors of ``lanes`` elements."""
    return mlir.attribute(
        f"#llvm.loop_annotation<vectorize = <disable = false, width = {lanes} : i32>, "
        f"interleave = <count = {count} : i32>>"
    )


def masked_annotation(lanes: int, count: int = 1) -> mlir.Attribute:
    """The loop annotation for ``count`` interleaved masked vectors of ``lanes`` elements."""
    return mlir.attribute(
        "#llvm.loop_annotation<vectorize = <disable = false, predicateEnable = true, scalableEnable = false, "
        f"width = {lanes} : i32>, interleave = <count = {count} : i32>>"
    )


def interleave_annotation(count: int) -> mlir.Attribute:
    """The loop annotation for an interleave count of ``count`` vectors."""
    return mlir.attribute(f"#llvm.loop_annotation<interleave = <count = {count} : i32>>")

"""What whole vectors leave of a row, as masked vectors: one by one it would take longer than the rest.

The innermost loop over a row of known length ends where a multiple of a few vectors does, and a second one,
that LLVM is told to make of masked vectors, takes what is left. Only where such vectors can be stored in part
by one instruction: with AVX-512.
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

#: Vectors that LLVM takes in one turn of a loop at most.
UNROLLED = 4
#: Bytes of elements that may stand in memory.
_WIDTHS = (2, 4, 8)
#: Operations of a body whose loop takes two vectors a turn.
LONG, LONGEST = 28, 160
_LOOPS = ("scf.while", "scf.for", "scf.if", "memref.load")


def ended(fused: Fused, codes: Mapping[int, Code], buffers: Sequence[mlir.Value], target: Target) -> Fused:
    """The loops with what is known of how their rows may end."""
    if fused.turn is not None:
        looks = any(_has(code.generic, "memref.load") for code in codes.values())
        return replace(fused, turn=replace(fused.turn, repeats=not looks and _repeats(fused, buffers)))
    return _masked(fused, buffers, target)


def _repeats(fused: Fused, buffers: Sequence[mlir.Value]) -> bool:
    """No statement reads memory that one writes, but what flows in registers."""
    accesses = [one for statement in fused.statements for one in statement.nest.accesses]
    stored = [access for access in accesses if access.buffer not in fused.unstored]
    written = [memory.root_of(buffers[access.buffer]) for access in stored if access.written]
    read = [memory.root_of(buffers[one.buffer]) for one in stored if one.reads or not one.written]
    return not any(root in written for root in read)


def _masked(fused: Fused, buffers: Sequence[mlir.Value], target: Target) -> Fused:
    """With the number of lanes that the rows' ends take at once."""
    if target.vector_bytes < 64 or target.architecture != "x86_64":
        return fused
    used = {access.buffer for statement in fused.statements for access in statement.nest.accesses}
    elements = [mlir.element_type(buffers[number].type) for number in used]
    widths = {memory.element_bytes(element) for element in elements}
    plain = not any(str(element) == "i1" or str(element).startswith("complex") for element in elements)
    if not plain or not widths <= set(_WIDTHS):
        return fused
    return replace(fused, lanes=target.vector_bytes // max(4, *widths))


def suits(segment: tuple[Statement, ...], codes: Mapping[int, Code], unstored: Collection[int]) -> bool:
    """Memory is walked element by element, and no body has a loop of its own."""
    for statement in segment:
        strides = [access.strides[-1] for access in statement.nest.accesses if access.buffer not in unstored]
        if any(stride not in (0, 1) for stride in strides):
            return False
        if _has(codes[statement.number].generic, *_LOOPS):
            return False
    return True


def _has(generic: mlir.Op, *names: str) -> bool:
    return any(mlir.name_of(op) in names for op in mlir.walk(generic))


def masked_annotation(lanes: int) -> mlir.Attribute:
    """On a loop: vectors of ``lanes`` elements, masked, one a turn."""
    return mlir.attribute(
        "#llvm.loop_annotation<vectorize = <disable = false, predicateEnable = true, scalableEnable = false, "
        f"width = {lanes} : i32>, interleave = <count = 1 : i32>>"
    )


def interleave_annotation(count: int) -> mlir.Attribute:
    """On a loop: ``count`` vectors a turn."""
    return mlir.attribute(f"#llvm.loop_annotation<interleave = <count = {count} : i32>>")

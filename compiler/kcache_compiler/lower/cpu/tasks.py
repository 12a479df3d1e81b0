"""Tasks of launches: functions with the C ABI that run a slice of a launch from the words of its closure.

A launch of a loop that reads many bytes again in each iteration *alternates*: iterations run its slices in
blocks from the first to the last and from the last to the first in turn. What an iteration read last is read
first by the next one, so that what a cache holds of it is used before it is evicted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loops import Fused

#: Bytes that a launch reads in each iteration of a loop from which on it alternates: less stays in a cache.
ALTERNATING_BYTES = 1 << 19
#: Blocks of a slice, and what their size is a multiple of.
BLOCKS, BLOCK_MULTIPLE = 8, 64
#: The maximum number of slices per worker of a launch that alternates.
ALTERNATING_SLICES = 2


def words_of(launch: Outlined) -> list[str]:
    """The types of the closure's words: dims, buffers, scalars."""
    return launch.pointer_types


def alternating(launches: Iterable[tuple[list[mlir.Op], Outlined]], shapes: Shapes) -> frozenset[str]:
    """The functions of launches that alternate; outside of loops such a launch runs forwards."""
    return frozenset(
        member.code
        for generics, launch in launches
        for member in (launch, *launch.after)
        if _alternates(generics[-1], member, shapes)
    )


def _alternates(generic: mlir.Op, launch: Outlined, shapes: Shapes) -> bool:
    loop = _loop_of(generic)
    extent = launch.nest.extent
    if loop is None or launch.subkernel is not None or launch.scratch or launch.shared or launch.slices:
        return False
    if isinstance(launch.nest, Fused) and launch.nest.whole:
        return False
    if not isinstance(extent, int) or extent < BLOCKS * BLOCK_MULTIPLE:
        return False
    invariant = [buffer for buffer in launch.buffers if not _is_inside(memory.root_of(buffer), loop)]
    return sum(_bytes(buffer, shapes) for buffer in invariant) >= ALTERNATING_BYTES


def _loop_of(operation: mlir.Op) -> mlir.Op | None:
    """The innermost loop that contains an operation."""
    parent = mlir.parent_of(operation)
    while mlir.name_of(parent) not in ("scf.while", "func.func"):
        parent = mlir.parent_of(parent)
    return parent if mlir.name_of(parent) == "scf.while" else None


def _is_inside(root: mlir.Value, loop: mlir.Op) -> bool:
    """Whether a buffer is created in a loop or carried by it."""
    owner = mlir.defining(root)
    operation = mlir.block_owner(root) if owner is None else mlir.parent_of(owner)
    while operation != loop and mlir.name_of(operation) != "func.func":
        operation = mlir.parent_of(operation)
    return operation == loop


def _bytes(buffer: mlir.Value, shapes: Shapes) -> int:
    """The bytes of a buffer of static size, else 0."""
    total = memory.element_bytes(mlir.element_type(buffer.type))
    for size in shapes.sizes(buffer):
        total *= size if isinstance(size, int) else 0
    return total


def task_text(launch: Outlined, alternates: bool) -> str:
    """The task of a launch, as text: loads the closure's words and calls the slice function.

    If the launch uses scratch memory, its last word points to that of all workers, followed by a word with
    the bytes per worker. If it ``alternates``, a word follows that is 0 where its blocks run forwards.
    """
    words = words_of(launch)
    lines = [
        f"llvm.func internal @{launch.code}_task("
        "%closure: !llvm.ptr, %begin: i64, %end: i64, %worker: i64) -> i32 "
        'attributes {passthrough = ["nounwind"]} {'
    ]
    for number, kind in enumerate(words):
        lines.append(
            f"  %a{number} = llvm.getelementptr %closure[{8 * number}] : (!llvm.ptr) -> !llvm.ptr, i8"
        )
        lines.append(f"  %w{number} = llvm.load %a{number} : !llvm.ptr -> {kind}")
    passed = [f"%w{number}" for number in range(len(words))]
    if launch.scratch:
        share_address = f"%closure[{8 * len(words)}]"
        lines.append(f"  %at_share = llvm.getelementptr {share_address} : (!llvm.ptr) -> !llvm.ptr, i8")
        lines.append("  %share = llvm.load %at_share : !llvm.ptr -> i64")
        lines.append("  %skipped = llvm.mul %worker, %share : i64")
        lines.append(
            f"  %own = llvm.getelementptr {passed[-1]}[%skipped] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        )
        passed[-1] = "%own"
    types = ", ".join(["i64", "i64", *words])
    if alternates:
        call = f"func.call @{launch.code}({', '.join(['%low', '%high', *passed])}) : ({types}) -> i32"
        lines.append(_BLOCKWISE.replace("OFFSET", str(8 * len(words))).replace("CALL", call))
    else:
        values = ", ".join(["%begin", "%end", *passed])
        lines.append(f"  %code = func.call @{launch.code}({values}) : ({types}) -> i32")
        lines.append("  llvm.return %code : i32\n}")
    declared = f"func.func private @{launch.code}({types}) -> i32\n"
    return declared + "\n".join(lines)


_BLOCKWISE = f"""
  %at_order = llvm.getelementptr %closure[OFFSET] : (!llvm.ptr) -> !llvm.ptr, i8
  %order = llvm.load %at_order : !llvm.ptr -> i64
  %zero = llvm.mlir.constant(0 : i64) : i64
  %none = llvm.mlir.constant(0 : i32) : i32
  %blocks = llvm.mlir.constant({BLOCKS} : i64) : i64
  %rounding = llvm.mlir.constant({BLOCKS * BLOCK_MULTIPLE - 1} : i64) : i64
  %unit = llvm.mlir.constant({BLOCKS * BLOCK_MULTIPLE} : i64) : i64
  %multiple = llvm.mlir.constant({BLOCK_MULTIPLE} : i64) : i64
  %forward = llvm.icmp "eq" %order, %zero : i64
  %count = llvm.sub %end, %begin : i64
  %rounded = llvm.add %count, %rounding : i64
  %units = llvm.sdiv %rounded, %unit : i64
  %size = llvm.mul %units, %multiple : i64
  llvm.br ^next(%zero : i64)
^next(%done: i64):
  %more = llvm.icmp "slt" %done, %count : i64
  llvm.cond_br %more, ^block, ^finished(%none : i32)
^block:
  %after = llvm.add %done, %size : i64
  %reached = llvm.intr.smin(%after, %count) : (i64, i64) -> i64
  %first = llvm.add %begin, %done : i64
  %last = llvm.add %begin, %reached : i64
  %upper = llvm.sub %end, %done : i64
  %lower = llvm.sub %end, %reached : i64
  %low = llvm.select %forward, %first, %lower : i1, i64
  %high = llvm.select %forward, %last, %upper : i1, i64
  %code = CALL
  %succeeded = llvm.icmp "eq" %code, %none : i32
  llvm.cond_br %succeeded, ^next(%reached : i64), ^finished(%code : i32)
^finished(%result: i32):
  llvm.return %result : i32
}}"""

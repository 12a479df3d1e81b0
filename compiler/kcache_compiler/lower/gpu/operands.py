"""The operands of a group: buffers by number and root, their pointers, and scalars of ``main``."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.lower.gpu.kernel import Kernel
from kcache_compiler.lower.loops.launch import captured_by
from kcache_compiler.lower.loops.memory import VIEWS, Pointer, root_of
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.mlir import operations as mlir


def root_in(planned: Planned, number: int) -> mlir.Value:
    """The underlying buffer of a launch's buffer ``number``."""
    return root_of(planned.buffers[dict(planned.fused.instead).get(number, number)])


def written_by(planned: Planned) -> set[mlir.Value]:
    """The roots of buffers that a group writes."""
    return {
        root_in(planned, access.buffer)
        for statement in planned.fused.statements
        for access in statement.nest.accesses
        if access.written
    }


def read_by(planned: Planned) -> set[mlir.Value]:
    """The roots of buffers that a group reads."""
    roots = {
        root_in(planned, access.buffer)
        for statement in planned.fused.statements
        for access in statement.nest.accesses
        if access.reads
    }
    for code in planned.codes.values():
        captured = captured_by(code.generic, code.numbers)
        roots |= {root_of(value) for value in captured if mlir.is_memref(value.type)}
    return roots


def offsets_of(buffers: list[mlir.Value]) -> list[mlir.Value]:
    """The dynamic offsets, sizes and strides of views."""
    offsets: list[mlir.Value] = []
    for buffer in buffers:
        owner = mlir.defining(buffer)
        while owner is not None and mlir.name_of(owner) in VIEWS:
            offsets += [operand for operand in owner.operands if not mlir.is_memref(operand.type)]
            owner = mlir.defining(owner.operands[0])
    return offsets


@dataclass(frozen=True)
class Operands:
    """The operands of loops: pointers by buffer number, and captured buffers and scalars."""

    pointers: dict[int, Pointer]
    views: dict[mlir.Value, Pointer]
    scalars: dict[mlir.Value, mlir.Value]


def operands_of(kernel: Kernel, planned: Planned) -> Operands:
    """The operands of a group, without the buffers of rows, which are placed later."""
    fused = planned.fused
    placed = {*fused.unstored, *dict(fused.rows), *dict(fused.instead)}
    used = {access.buffer for statement in fused.statements for access in statement.nest.accesses} - placed
    used |= set(dict(fused.instead).values())
    pointers = {number: kernel.pointer(planned.buffers[number]) for number in sorted(used)}
    views: dict[mlir.Value, Pointer] = {
        planned.buffers[number]: pointer for number, pointer in pointers.items()
    }
    scalars: dict[mlir.Value, mlir.Value] = {}
    for statement in fused.statements:
        code = planned.codes[statement.number]
        for captured in captured_by(code.generic, code.numbers):
            if not mlir.is_memref(captured.type):
                scalars[captured] = kernel.scalar(captured)
            elif captured not in views:
                views[captured] = kernel.pointer(captured)
    return Operands(pointers, views, scalars)

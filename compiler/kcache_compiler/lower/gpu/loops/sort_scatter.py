"""Scatters and sorts: one thread per independent step of the CPU form."""

from __future__ import annotations

from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.launch import captured_by
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.sort_scatter.loop_builder import MarkerOperands
from kcache_compiler.lower.sort_scatter.marker import marked, walks
from kcache_compiler.lower.sort_scatter.scatter import plan_scatter, write_scatter
from kcache_compiler.lower.sort_scatter.sort import plan_sort, write_sort
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import Check

#: Threads of a block.
THREADS = 128


def write_marker(
    kernel: Kernel, generic: mlir.Op
) -> tuple[LaunchGeometry, tuple[str, ...], tuple[Check, ...]]:
    """Write the body of a marker's kernel; returns its geometry, name and runtime checks."""
    kind, details = marked(generic) or ("", {})
    operands = list(generic.operands)
    walked, checks = walks(generic, kernel.shapes)
    inputs = mlir.input_count(generic)
    steps = (plan_scatter if kind == "scatter" else plan_sort)(details, walked, checks)
    pointers: dict[mlir.Value, Pointer] = {
        operand: kernel.pointer(operand) for operand in dict.fromkeys(operands)
    }
    scalars: dict[mlir.Value, mlir.Value] = {}
    for captured in captured_by(generic, range(len(operands))):
        if not mlir.is_memref(captured.type):
            scalars[captured] = kernel.scalar(captured)
        elif captured not in pointers:
            pointers[captured] = kernel.pointer(captured)
    formulas = {formula for walk in walked for formula in (*walk.sizes, *walk.strides, walk.offset)}
    cache = {formula: kernel.value(formula) for formula in sorted(formulas, key=repr)}
    bases = [pointers[operand] for operand in operands]
    parts = MarkerOperands(generic, inputs, walked, bases, pointers, scalars, None, cache)
    write = write_scatter if kind == "scatter" else write_sort
    with kernel.body():
        form = kernel.deal(
            steps.extent,
            THREADS,
            lambda number, _: write(parts, details, (number, memory.plus(number, mlir.constant(1)))),
        )
    return form, (kind,), checks

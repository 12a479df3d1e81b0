"""The launch of a marker: its slice function, with the loops of a scatter or sort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, captured_by, slice_function
from kcache_compiler.lower.sort_scatter.keyed_sort import plan_keyed, write_keyed
from kcache_compiler.lower.sort_scatter.long_rows import long_phases
from kcache_compiler.lower.sort_scatter.loop_builder import MarkerOperands
from kcache_compiler.lower.sort_scatter.marker import Walk, marked, walks
from kcache_compiler.lower.sort_scatter.scatter import plan_scatter, write_scatter
from kcache_compiler.lower.sort_scatter.sort import plan_sort, sort_phases, write_sort
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import Formula

Write: TypeAlias = Callable[[MarkerOperands, dict[str, Any], tuple[mlir.Value, mlir.Value]], None]
#: By kind of marker: its plan, its loops, and the operation's name in the launch.
_KINDS = {
    "scatter": (plan_scatter, write_scatter, "scatter"),
    "sort": (plan_sort, write_sort, "sort"),
    "keyed": (plan_keyed, write_keyed, "sort"),
}
#: By kind of marker: the phases of rows that are distributed over threads.
_LONG = {"keyed": long_phases, "sort": sort_phases}


def outline_marker(unit: Unit, generic: mlir.Op, name: str, shapes: Shapes) -> Outlined | None:
    """The slice function ``name`` of a marker, at the end of the module; None for other operations."""
    module = unit.module
    marker = marked(generic)
    if marker is None:
        return None
    kind, details = marker
    operands = list(generic.operands)
    numbers = list(range(len(operands)))
    walked, checks = walks(generic, shapes)
    inputs = mlir.input_count(generic)
    plan, write, shown = _KINDS[kind]
    phases = _LONG[kind](details, walked, checks) if kind in _LONG else []
    if not phases:
        phases = [(plan(details, walked, checks), partial(_whole, write, details))]
    buffers = list(dict.fromkeys(operands))
    captured = captured_by(generic, numbers)
    scalars = [value for value in captured if not mlir.is_memref(value.type)]
    buffers += [value for value in captured if mlir.is_memref(value.type) and value not in buffers]
    launches: list[Outlined] = []
    for number, (steps, body) in enumerate(phases):
        launch_name = name if number == 0 else f"{name}_{number}"
        outlined = Outlined(
            launch_name, steps, (shown,), buffers, scalars, scratch=steps.scratch, shared=steps.shared
        )
        function, entry = slice_function(module, outlined, set(operands[inputs:]))
        with mlir.at_end(entry):
            parts = _parts(generic, outlined, list(entry.arguments), walked, inputs, shapes)
            parts.vector_bytes = unit.target.vector_bytes
            body(parts, (entry.arguments[0], entry.arguments[1]))
            func.return_([mlir.constant(0, "i32")])
        present = {mlir.symbol_of(symbol) for symbol in mlir.operations(module.body)}
        for called in sorted(parts.library.keys() - present):
            mlir.splice(module, parts.library[called])
        function.verify()
        launches.append(outlined)
    launches[0].after = launches[1:]
    return launches[0]


def _whole(
    write: Write, details: dict[str, Any], parts: MarkerOperands, bounds: tuple[mlir.Value, mlir.Value]
) -> None:
    write(parts, details, bounds)


def _parts(
    generic: mlir.Op,
    outlined: Outlined,
    arguments: list[mlir.Value],
    walked: list[Walk],
    inputs: int,
    shapes: Shapes,
) -> MarkerOperands:
    """The operands of a marker inside a slice function with these arguments."""
    dims, buffers = arguments[2], outlined.buffers
    cache: dict[Formula, mlir.Value] = {}
    pointers: dict[mlir.Value, memory.Pointer] = {}
    for buffer, argument in zip(buffers, arguments[3:], strict=False):
        strides = [memory.emit_formula(stride, dims, cache) for stride in shapes.strides(buffer)]
        pointers[buffer] = memory.Pointer(argument, mlir.element_type(buffer.type), strides)
    flat = iter(arguments[3 + len(buffers) :])
    scalars = {scalar: memory.receive(scalar.type, flat) for scalar in outlined.scalars}
    bases = [pointers[operand] for operand in generic.operands]
    parts = MarkerOperands(generic, inputs, walked, bases, pointers, scalars, dims, cache)
    parts.shared = next(flat) if outlined.shared else None
    parts.scratch = next(flat) if outlined.scratch else parts.shared
    return parts

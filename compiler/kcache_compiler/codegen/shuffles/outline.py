"""The launch of a marker: its slice function, with the loops that scatter or sort."""

from __future__ import annotations

from typing import Any

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.formula import Formula
from kcache_compiler.codegen.launch import Outlined, captured_by, slice_function
from kcache_compiler.codegen.shape import Shapes
from kcache_compiler.codegen.shuffles.code import Parts
from kcache_compiler.codegen.shuffles.keyed import plan_keyed, write_keyed
from kcache_compiler.codegen.shuffles.marker import marked, walks
from kcache_compiler.codegen.shuffles.scatter import plan_scatter, write_scatter
from kcache_compiler.codegen.shuffles.sort import plan_sort, write_sort

#: By the kind of marker: its plan, its loops, and how the launch names it.
_KINDS = {
    "scatter": (plan_scatter, write_scatter, "scatter"),
    "sort": (plan_sort, write_sort, "sort"),
    "keyed": (plan_keyed, write_keyed, "sort"),
}


def outline_marker(module: mlir.Module, generic: mlir.Op, name: str, shapes: Shapes) -> Outlined | None:
    """The slice function ``name`` of a marker, at the end of ``module``; None for other operations."""
    found = marked(generic)
    if found is None:
        return None
    kind, details = found
    operands = list(generic.operands)
    numbers = list(range(len(operands)))
    walked, checks = walks(generic, shapes)
    inputs = int(next(iter(generic.attributes["operandSegmentSizes"])))
    plan, write, shown = _KINDS[kind]
    steps = plan(details, walked, checks)
    buffers = list(dict.fromkeys(operands))
    captured = captured_by(generic, numbers)
    scalars = [value for value in captured if not mlir.is_memref(value.type)]
    buffers += [value for value in captured if mlir.is_memref(value.type) and value not in buffers]
    outlined = Outlined(name, steps, (shown,), buffers, scalars, scratch=steps.scratch)
    function, entry = slice_function(module, outlined, set(operands[inputs:]))
    with mlir.at_end(entry):
        arguments = list(entry.arguments)
        dims = arguments[2]
        cache: dict[Formula, mlir.Value] = {}
        pointers: dict[Any, memory.Pointer] = {}
        for buffer, argument in zip(buffers, arguments[3:], strict=False):
            strides = [memory.emit_formula(stride, dims, cache) for stride in shapes.strides(buffer)]
            pointers[buffer] = memory.Pointer(argument, buffer.type.element_type, strides)
        flat = iter(arguments[3 + len(buffers) :])
        known = {scalar: memory.receive(scalar.type, flat) for scalar in scalars}
        parts = Parts(
            generic, inputs, walked, [pointers[one] for one in operands], pointers, known, dims, cache
        )
        parts.scratch = arguments[-1] if steps.scratch else None
        write(parts, details, (arguments[0], arguments[1]))
        mlir.create("func.return", [mlir.constant(0, "i32")])
    present = {mlir.symbol_of(one) for one in mlir.operations(module.body)}
    for called in sorted(parts.library.keys() - present):
        mlir.splice(module, parts.library[called])
    function.verify()
    return outlined

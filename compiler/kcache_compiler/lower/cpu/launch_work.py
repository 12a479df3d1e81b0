"""What a launch does, for kernels that report their launches: operations of the spec, flops and bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.inline_math_functions import operation_cost
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import Formula, add, apply, mul, product, text
from kcache_compiler.types import Launch

_OPERATION = re.compile(r'"([a-z_]+\.\w+)"\(')
_FUSED = {"math.fma": 2, "llvm.intr.fma": 2, "llvm.intr.fmuladd": 2}
#: Operations of the spec that compute nothing.
_STRUCTURE = ("func.return", "stablehlo.return", "stablehlo.constant")
#: Not counted: they move values or compare them.
_FREE = ("arith.constant", "arith.select", "arith.cmpf", "arith.bitcast", "linalg.yield", "linalg.index")


def with_work(
    launch: Launch, outlined: Outlined, generics: Sequence[mlir.Op], unit: Unit, shapes: Shapes
) -> Launch:
    """``launch`` with the operations of the spec as ``name:line``, its flops and its bytes.

    ``generics`` are what ``outlined`` computes, before it is replaced by a call; empty for a launch that
    completes another. A line is one of the artifact ``mlir``, counted from 1.
    """
    counts = [_iterations(generic, shapes) for generic in generics]
    flops: Formula = 0
    for generic, count in zip(generics, counts, strict=True):
        flops = add(flops, mul(count, _flops_in(generic)))
    moved: Formula = 0
    for buffer in outlined.buffers:
        moved = add(moved, _bytes_of(buffer, counts, shapes))
    ops = _operations(generics, unit.source.splitlines()) or launch.ops
    return Launch(launch.name, ops, launch.extent, launch.grain, text(flops), text(moved))


def _iterations(generic: mlir.Op, shapes: Shapes) -> Formula:
    return product([axis.size for axis in read_nest(generic, shapes)[0].axes])


def _flops_in(generic: mlir.Op) -> int:
    """Floating-point operations of one iteration; those of math functions are the ones of their expansion."""
    return sum(map(_flops_of, mlir.walk(generic)[1:]))


def _flops_of(op: mlir.Op) -> int:
    name = mlir.name_of(op)
    if name in _FREE or not any(re.match(r"b?f\d", str(result.type)) for result in op.results):
        return 0
    if name == "func.call":
        return operation_cost(op)
    computes = (
        name.startswith(("arith.", "math.", "llvm.intr.")) and "ext" not in name and "trunc" not in name
    )
    return _FUSED.get(name, 1) if computes else 0


def _bytes_of(buffer: mlir.Value, counts: Sequence[Formula], shapes: Shapes) -> Formula:
    """The size of a buffer, or of as many of its elements as the loops have iterations."""
    accesses: Formula = 0
    for count in counts:
        accesses = add(accesses, count)
    elements = product(shapes.sizes(buffer))
    width = memory.element_bytes(mlir.element_type(buffer.type))
    return mul(width, apply("min", elements, accesses) if counts else elements)


def _operations(generics: Sequence[mlir.Op], source: Sequence[str]) -> tuple[str, ...]:
    used = [generic for generic in generics if any(map(_is_buffer, _inputs(generic)))]
    # Fills and constants that are equal are one operation, with the locations of all.
    numbers = sorted({number for generic in used or generics for number in _lines_of(generic)})
    named = [(number, _OPERATION.search(source[number - 1])) for number in numbers if number <= len(source)]
    return tuple(f"{match[1]}:{number}" for number, match in named if match and match[1] not in _STRUCTURE)


def _inputs(generic: mlir.Op) -> list[mlir.Value]:
    return list(generic.operands)[: mlir.input_count(generic)]


def _is_buffer(value: mlir.Value) -> bool:
    return mlir.is_memref(value.type)


def _lines_of(generic: mlir.Op) -> set[int]:
    """The lines of an operation; of one that others were fused into, those of its body."""
    body = [op for op in mlir.walk(generic)[1:] if mlir.name_of(op) != "arith.constant"]
    return mlir.source_lines(generic) or {number for op in body for number in mlir.source_lines(op)}

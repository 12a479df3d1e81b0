"""Launches: every structured operation on buffers becomes a slice function of its own.

``launch_k(begin, end, dims, pointers..., scalars...)`` runs the nest with its sliced axis
restricted to ``[begin, end)``. Pointers are ``noalias`` where the buffers are known apart, sizes
that are symbols are read from ``dims``. It returns 0 or an error code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.formula import Formula, add, apply, mul
from kcache_compiler.codegen.memory import Pointer
from kcache_compiler.codegen.nest import Access, Axis, Check, Nest
from kcache_compiler.codegen.shape import Shapes, affine, linear
from kcache_compiler.errors import UnsupportedOp

Schedule = Callable[[Nest], Nest]


@dataclass
class Outlined:
    """A launch taken out of ``main``: its function's name and what the call site must pass."""

    name: str
    nest: Nest
    ops: tuple[str, ...]
    buffers: list[mlir.Value]
    scalars: list[mlir.Value]
    pointer_types: list[str] = field(default_factory=list[str])


def read_nest(generic: mlir.Op, shapes: Shapes) -> tuple[Nest, list[int]]:
    """The nest of a ``linalg.generic`` on buffers, and the operand numbers of its accesses."""
    attributes = generic.attributes
    kinds = ["parallel" in str(kind) for kind in attributes["iterator_types"]]
    maps = [entry.value for entry in attributes["indexing_maps"]]
    inputs = int(next(iter(attributes["operandSegmentSizes"])))
    accesses: list[Access] = []
    numbers: list[int] = []
    sizes: list[Formula | None] = [None] * len(kinds)
    bounds: list[tuple[Any, Formula]] = []
    for number, (operand, index_map) in enumerate(zip(generic.operands, maps, strict=True)):
        if not mlir.is_memref(operand.type):
            continue
        bounds += zip(index_map.results, shapes.sizes(operand), strict=True)
        strides, offset = linear(index_map, shapes.strides(operand), len(kinds), shapes.codes)
        accesses.append(Access(tuple(strides), offset, number >= inputs))
        numbers.append(number)
        for result, size in zip(index_map.results, shapes.sizes(operand), strict=True):
            axis = mlir.plain_dim(result)
            if axis is not None and (sizes[axis] is None or isinstance(size, int)):
                sizes[axis] = size
    axes: list[Axis] = []
    for position, (size, parallel) in enumerate(zip(sizes, kinds, strict=True)):
        if size is None:
            raise UnsupportedOp("linalg.generic", "a loop of unknown size", mlir.location_of(generic))
        axes.append(Axis(size, parallel, (position,)))
    fixed = {
        mlir.int_of(op.attributes["dim"]) for op in mlir.walk(generic) if mlir.name_of(op) == "linalg.index"
    }
    checks = _checks(bounds, [axis.size for axis in axes], shapes)
    return Nest(tuple(axes), tuple(accesses), frozenset(fixed), checks), numbers


def _checks(bounds: list[tuple[Any, Formula]], sizes: list[Formula], shapes: Shapes) -> tuple[Check, ...]:
    """What the types do not say: a size that is not the loop's, an index beyond a dynamic size."""
    found: dict[Check, None] = {}
    for expression, size in bounds:
        axis = mlir.plain_dim(expression)
        if axis is not None:
            if size != sizes[axis]:
                found[Check(size, sizes[axis], equal=True)] = None
            continue
        coefficients, last = affine(expression, len(sizes), shapes.codes)
        reached = add(last, 1)
        for coefficient, extent in zip(coefficients, sizes, strict=True):
            if not isinstance(coefficient, int) or coefficient > 0:
                reached = add(reached, mul(coefficient, apply("-", extent, 1)))
        if not (isinstance(reached, int) and isinstance(size, int)):
            found[Check(reached, size, equal=False)] = None
    return tuple(check for check in found if not check.holds)


@dataclass
class _Emitter:
    """State while one slice function is written."""

    nest: Nest
    pointers: dict[Any, Pointer]
    accesses: list[Pointer]
    sizes: dict[Formula, mlir.Value]
    bounds: tuple[mlir.Value, mlir.Value]
    mapping: dict[Any, mlir.Value]
    body: mlir.Block
    inputs: int
    numbers: list[int]


def outline(module: mlir.Module, generic: mlir.Op, name: str, shapes: Shapes, schedule: Schedule) -> Outlined:
    """Write ``generic`` as the slice function ``name`` at the end of ``module``; the op itself stays."""
    nest, numbers = read_nest(generic, shapes)
    body = mlir.block_of(generic)
    buffers: list[mlir.Value] = []
    operands = list(generic.operands)
    for number in numbers:
        if operands[number] not in buffers:
            buffers.append(operands[number])
    scalars: list[mlir.Value] = []
    for captured in _captured(generic, operands, numbers):
        target = buffers if mlir.is_memref(captured.type) else scalars
        if captured not in target:
            target.append(captured)
    nest = schedule(nest)
    outlined = Outlined(name, nest, _ops_in(body), buffers, scalars)
    written = {operands[n] for n, a in zip(numbers, nest.accesses, strict=True) if a.written}
    function, entry = _function(module, outlined, written)
    with mlir.at_end(entry):
        _write_body(generic, outlined, entry, shapes, numbers)
    function.verify()
    return outlined


def _captured(generic: mlir.Op, operands: list[mlir.Value], numbers: list[int]) -> list[mlir.Value]:
    """Scalars and buffers that the body reads from outside, in order of use; constants excepted."""
    found = [operand for number, operand in enumerate(operands) if number not in numbers]
    inside = set(mlir.walk(generic)[1:])
    for operation in mlir.walk(generic)[1:]:
        for operand in operation.operands:
            owner = mlir.defining(operand)
            if owner is None:
                outer = mlir.block_owner(operand)
                if outer not in inside and outer != generic:
                    found.append(operand)
            elif owner not in inside and mlir.name_of(owner) != "arith.constant":
                found.append(operand)
    return [value for value in found if not _is_constant(value)]


def _is_constant(operand: mlir.Value) -> bool:
    owner = mlir.defining(operand)
    return owner is not None and mlir.name_of(owner) == "arith.constant"


def _ops_in(body: mlir.Block) -> tuple[str, ...]:
    names = [mlir.name_of(operation) for operation in mlir.operations(body)]
    kept = [name for name in names if name not in ("linalg.yield", "linalg.index", "arith.constant")]
    return tuple(dict.fromkeys(kept)) or ("copy",)


def _function(module: mlir.Module, outlined: Outlined, written: set[Any]) -> tuple[mlir.Op, mlir.Block]:
    integer, pointer = mlir.type_of("i64"), mlir.type_of("!llvm.ptr")
    scalar_types = [memory.passed_types(scalar.type) for scalar in outlined.scalars]
    flat = [kind for kinds in scalar_types for kind in kinds]
    inputs = [integer, integer, pointer, *[pointer] * len(outlined.buffers), *flat]
    outlined.pointer_types = [str(kind) for kind in inputs[2:]]
    attributes = ["{}", "{}", "{llvm.noalias, llvm.readonly}"]
    for buffer in outlined.buffers:
        marks = ["llvm.noalias"] if memory.known_apart(buffer, outlined.buffers, written) else []
        marks += [] if buffer in written else ["llvm.readonly"]
        attributes.append("{" + ", ".join(marks) + "}")
    attributes += ["{}"] * len(flat)
    function = mlir.create(
        "func.func",
        attributes={
            "sym_name": mlir.string_attr(outlined.name),
            "function_type": mlir.type_attr(mlir.function_type(inputs, [mlir.type_of("i32")])),
            "arg_attrs": mlir.attribute("[" + ", ".join(attributes) + "]"),
            "sym_visibility": mlir.string_attr("private"),
            "llvm.linkage": mlir.attribute("#llvm.linkage<internal>"),
        },
        regions=1,
        at=mlir.at_end(module.body),
    )
    return function, mlir.new_block(function, 0, inputs)


def _write_body(
    generic: mlir.Op, outlined: Outlined, entry: mlir.Block, shapes: Shapes, numbers: list[int]
) -> None:
    arguments = list(entry.arguments)
    dims = arguments[2]
    cache: dict[Formula, mlir.Value] = {}
    pointers: dict[Any, Pointer] = {}
    for buffer, argument in zip(outlined.buffers, arguments[3:], strict=False):
        strides = [memory.emit_formula(stride, dims, cache) for stride in shapes.strides(buffer)]
        pointers[buffer] = Pointer(argument, buffer.type.element_type, strides)
    mapping: dict[Any, mlir.Value] = {}
    flat = iter(arguments[3 + len(outlined.buffers) :])
    for scalar in outlined.scalars:
        mapping[scalar] = memory.receive(scalar.type, flat)
    operands = list(generic.operands)
    nest = outlined.nest
    accesses: list[Pointer] = []
    for number, access in zip(numbers, nest.accesses, strict=True):
        base = pointers[operands[number]]
        start = memory.shift(base, memory.emit_formula(access.offset, dims, cache))
        steps = [memory.emit_formula(stride, dims, cache) for stride in access.strides]
        accesses.append(Pointer(start, base.element, steps))
    sizes = {axis.size: memory.emit_formula(axis.size, dims, cache) for axis in nest.axes}
    inputs = int(next(iter(generic.attributes["operandSegmentSizes"])))
    emitter = _Emitter(
        nest,
        pointers,
        accesses,
        sizes,
        (arguments[0], arguments[1]),
        mapping,
        mlir.block_of(generic),
        inputs,
        numbers,
    )
    zero = mlir.constant(0)
    _emit_axis(emitter, 0, [zero] * len(accesses), {}, operands)
    mlir.create("func.return", [mlir.constant(0, "i32")])


def _emit_axis(
    emitter: _Emitter,
    position: int,
    offsets: list[mlir.Value],
    indices: dict[int, mlir.Value],
    operands: list[mlir.Value],
) -> None:
    axes = emitter.nest.axes
    if all(not axis.parallel for axis in axes[position:]):
        _emit_reduction(emitter, position, offsets, indices, operands)
        return
    loop = _loop(emitter, position, [])
    body = mlir.block_of(loop)
    with mlir.at_end(body):
        counter = body.arguments[0]
        moved = _advance(emitter, position, offsets, counter)
        _emit_axis(emitter, position + 1, moved, {**indices, position: counter}, operands)
        mlir.create("scf.yield")


def _loop(emitter: _Emitter, position: int, carried: list[mlir.Value]) -> mlir.Op:
    axis = emitter.nest.axes[position]
    low, high = mlir.constant(0), emitter.sizes[axis.size]
    if position == emitter.nest.sliced:
        low, high = emitter.bounds
    types = [value.type for value in carried]
    loop = mlir.create("scf.for", [low, high, mlir.constant(1), *carried], types, regions=1)
    mlir.new_block(loop, 0, [mlir.type_of("i64"), *types])
    return loop


def _advance(
    emitter: _Emitter, position: int, offsets: list[mlir.Value], counter: mlir.Value
) -> list[mlir.Value]:
    moved: list[mlir.Value] = []
    for number, offset in enumerate(offsets):
        if emitter.nest.accesses[number].strides[position] == 0:
            moved.append(offset)
            continue
        step = memory.times(counter, emitter.accesses[number].steps[position])
        moved.append(memory.plus(offset, step))
    return moved


def _emit_reduction(
    emitter: _Emitter,
    position: int,
    offsets: list[mlir.Value],
    indices: dict[int, mlir.Value],
    operands: list[mlir.Value],
) -> None:
    """The innermost reductions with their results in registers, or the plain body when there are none."""
    written = [n for n, access in enumerate(emitter.nest.accesses) if access.written]
    in_registers = {
        n
        for n in written
        if not any(emitter.nest.accesses[n].strides[p] for p in range(position, len(emitter.nest.axes)))
    }
    used = [bool(list(emitter.body.arguments[emitter.numbers[n]].uses)) for n in written]
    initial = [
        memory.load(emitter.accesses[n], offsets[n]) if used[k] or position < len(emitter.nest.axes) else None
        for k, n in enumerate(written)
    ]
    if len(in_registers) != len(written):
        raise UnsupportedOp("linalg.generic", "a result that is indexed by a reduction", "")
    values = _reduce(emitter, position, offsets, indices, operands, initial)
    for n, result in zip(written, values, strict=True):
        memory.store(emitter.accesses[n], offsets[n], result)


def _reduce(
    emitter: _Emitter,
    position: int,
    offsets: list[mlir.Value],
    indices: dict[int, mlir.Value],
    operands: list[mlir.Value],
    carried: list[Any],
) -> list[mlir.Value]:
    if position == len(emitter.nest.axes):
        return _body(emitter, offsets, indices, operands, carried)
    kinds = [value.type for value in carried]
    loop = _loop(emitter, position, [memory.to_carried(value) for value in carried])
    body = mlir.block_of(loop)
    with mlir.at_end(body):
        counter, *raw = list(body.arguments)
        values = [memory.from_carried(value, kind) for value, kind in zip(raw, kinds, strict=True)]
        moved = _advance(emitter, position, offsets, counter)
        result = _reduce(emitter, position + 1, moved, {**indices, position: counter}, operands, values)
        mlir.create("scf.yield", [memory.to_carried(value) for value in result])
    return [memory.from_carried(value, kind) for value, kind in zip(loop.results, kinds, strict=True)]


def _body(
    emitter: _Emitter,
    offsets: list[mlir.Value],
    indices: dict[int, mlir.Value],
    operands: list[mlir.Value],
    carried: list[Any],
) -> list[mlir.Value]:
    """Clone the generic's body at the current point; gives the values it yields."""
    mapping = dict(emitter.mapping)
    outputs = iter(carried)
    by_number = dict(zip(emitter.numbers, range(len(emitter.numbers)), strict=True))
    for number, argument in enumerate(emitter.body.arguments):
        if number >= emitter.inputs:
            mapping[argument] = next(outputs)
        elif number not in by_number:
            if operands[number] in mapping:
                mapping[argument] = mapping[operands[number]]
            else:
                constant = mlir.clone(mlir.defining(operands[number]))
                mapping[argument] = constant.results[0]
        elif list(argument.uses):
            access = by_number[number]
            mapping[argument] = memory.load(emitter.accesses[access], offsets[access])
    by_source = {
        source: indices[p]
        for p, axis in enumerate(emitter.nest.axes)
        if len(axis.sources) == 1
        for source in axis.sources
    }
    return memory.clone_body(emitter.body, mapping, emitter.pointers, by_source)

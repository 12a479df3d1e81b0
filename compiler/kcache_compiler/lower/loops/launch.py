"""Launches: each fusion group of structured operations on buffers becomes a slice function.

``launch_k(begin, end, dims, pointers..., scalars...)`` runs the loops of the group with their sliced axis
restricted to ``[begin, end)``. Pointers are ``noalias`` if the buffers are known not to alias; symbolic
sizes are read from ``dims``. It returns 0 or an error code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import BufferAccess, Shapes, affine, linear
from kcache_compiler.lower.loops.elements import Chunks, Code
from kcache_compiler.lower.loops.group_body import Writer
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.selections import Combining
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.schedule.loop_nest import Access, Axis, Check, Nest
from kcache_compiler.schedule.loops import Fused
from kcache_compiler.schedule.prepared import PackedOperand
from kcache_compiler.schedule.subkernel import Subkernel
from kcache_compiler.shapes.formula import Formula, add, apply, mul


class Launched(Protocol):
    """What the call of a launch uses of its loops."""

    @property
    def extent(self) -> Formula: ...

    @property
    def grain(self) -> Formula: ...

    @property
    def checks(self) -> tuple[Check, ...]: ...


@dataclass
class Outlined:
    """A launch outlined from ``main``: its name, and the arguments that the call passes."""

    name: str
    nest: Launched
    ops: tuple[str, ...]
    buffers: list[mlir.Value]
    scalars: list[mlir.Value]
    pointer_types: list[str] = field(default_factory=list[str])
    #: Bytes of scratch memory per worker; if nonzero, the last argument points to it.
    scratch: Formula = 0
    #: Bytes of memory that all workers share; if nonzero, an argument before the scratch points to it.
    shared: Formula = 0
    #: Launches that immediately follow this one.
    after: list[Outlined] = field(default_factory=list["Outlined"])
    #: Maximum number of slices per worker, if each slice repeats setup work; 0: no limit.
    slices: int = 0
    #: Allocations without remaining uses.
    spared: list[mlir.Op] = field(default_factory=list[mlir.Op])
    #: The function's name if it is shared with an equal earlier launch; "": the launch's own name.
    function: str = ""
    #: The subkernel that is called instead of a function.
    subkernel: Subkernel | None = None
    #: The buffer, by number, that it reads as packed panels, and how they are packed.
    packed: tuple[int, PackedOperand] | None = None
    #: The result and a buffer of its type, by number, that it may replace: the launch reads each element of
    #: the buffer only before it writes that element of the result.
    replaceable: tuple[int, int] | None = None

    @property
    def code(self) -> str:
        """The name of its function."""
        return self.function or self.name


def read_nest(
    generic: mlir.Op,
    shapes: Shapes,
    buffers: Callable[[mlir.Value], int] = lambda _: 0,
    inner: Sequence[mlir.Op] | None = None,
) -> tuple[Nest, list[int]]:
    """The loop nest of a ``linalg.generic`` on buffers, and the operand numbers of its accesses.

    ``buffers`` gives the number of a buffer in accesses; ``inner`` are the operations of the body, if the
    caller has them.
    """
    kinds = ["parallel" in kind for kind in mlir.iterator_types(generic)]
    inputs = mlir.input_count(generic)
    arguments = list(mlir.block_of(generic).arguments)
    parallel_only = all(kinds)
    accesses: list[Access] = []
    numbers: list[int] = []
    sizes: list[Formula | None] = [None] * len(kinds)
    buffer_accesses: list[BufferAccess] = []
    for number, (operand, index_map) in enumerate(
        zip(generic.operands, mlir.indexing_maps(generic), strict=True)
    ):
        if not mlir.is_memref(operand.type):
            continue
        buffer_access = _buffer_access(index_map, operand, shapes)
        buffer_accesses.append(buffer_access)
        written = number >= inputs
        reads = not written or not parallel_only or bool(list(arguments[number].uses))
        accesses.append(
            Access(
                buffer_access.strides,
                buffer_access.offset,
                written,
                buffers(operand),
                buffer_access.dims,
                reads,
            )
        )
        numbers.append(number)
        for axis, size in zip(buffer_access.plain, buffer_access.sizes, strict=True):
            if axis is not None and (sizes[axis] is None or isinstance(size, int)):
                sizes[axis] = size
    axes: list[Axis] = []
    for position, (size, parallel) in enumerate(zip(sizes, kinds, strict=True)):
        if size is None:
            raise UnsupportedOp("linalg.generic", "a loop of unknown size", mlir.location_of(generic))
        axes.append(Axis(size, parallel, (position,)))
    inner = mlir.walk(generic) if inner is None else inner
    fixed = {mlir.int_of(op.attributes["dim"]) for op in inner if mlir.name_of(op) == "linalg.index"}
    checks = _known_checks(buffer_accesses, [axis.size for axis in axes], shapes)
    return Nest(tuple(axes), tuple(accesses), frozenset(fixed), checks), numbers


def _buffer_access(index_map: mlir.AffineMap, operand: mlir.Value, shapes: Shapes) -> BufferAccess:
    """Memoized by map, sizes and strides, which repeated operations share."""
    sizes, strides = shapes.sizes(operand), shapes.strides(operand)
    key = (index_map, tuple(sizes), tuple(strides))
    if key not in shapes.accesses:
        count = index_map.n_dims
        by_axis, offset = linear(index_map, strides, count, shapes.codes)
        results = tuple(index_map.results)
        plain = tuple(mlir.plain_dim(result) for result in results)
        dims = _plain_dims(index_map, count)
        shapes.accesses[key] = BufferAccess(results, tuple(sizes), tuple(by_axis), offset, plain, dims)
    return shapes.accesses[key]


def _known_checks(
    buffer_accesses: list[BufferAccess], sizes: list[Formula], shapes: Shapes
) -> tuple[Check, ...]:
    key = (*buffer_accesses, tuple(sizes))
    if key not in shapes.checks:
        bounds = [
            bound
            for buffer_access in buffer_accesses
            for bound in zip(buffer_access.results, buffer_access.sizes, strict=True)
        ]
        shapes.checks[key] = _checks(bounds, sizes, shapes)
    return shapes.checks[key]


def _plain_dims(index_map: mlir.AffineMap, count: int) -> tuple[int | None, ...]:
    """For each axis of a buffer, the loop that alone indexes it, if that loop indexes no other axis."""
    plain = [mlir.plain_dim(result) for result in index_map.results]
    dims_by_axis: list[set[int]] = []
    for result, dim in zip(index_map.results, plain, strict=True):
        dims_by_axis.append({dim} if dim is not None else _dims_in(result, count))
    return tuple(
        dim if dim is not None and sum(dim in dims for dims in dims_by_axis) == 1 else None for dim in plain
    )


def _dims_in(expression: mlir.AffineExpr, count: int) -> set[int]:
    dims: set[int] = set()
    pending = [expression]
    while pending:
        match mlir.affine_parts(pending.pop()):
            case ("dim", position):
                dims.add(position)
            case ("constant", _):
                pass
            case (_, left, right):
                pending += (left, right)
            case _:
                return set(range(count))
    return dims


def _checks(
    bounds: list[tuple[mlir.AffineExpr, Formula]], sizes: list[Formula], shapes: Shapes
) -> tuple[Check, ...]:
    """Checks that types do not imply: a size equals the loop's extent, an index is within a dynamic size."""
    checks: dict[Check, None] = {}
    for expression, size in bounds:
        axis = mlir.plain_dim(expression)
        if axis is not None:
            if size != sizes[axis]:
                checks[Check(size, sizes[axis], equal=True)] = None
            continue
        coefficients, largest = affine(expression, len(sizes), shapes.codes)
        bound = add(largest, 1)
        for coefficient, extent in zip(coefficients, sizes, strict=True):
            if not isinstance(coefficient, int) or coefficient > 0:
                bound = add(bound, mul(coefficient, apply("-", extent, 1)))
        if not (isinstance(bound, int) and isinstance(size, int)):
            checks[Check(bound, size, equal=False)] = None
    return tuple(check for check in checks if not check.holds)


def outline(
    module: mlir.Module,
    name: str,
    fused: Fused,
    codes: Mapping[int, Code],
    buffers: Sequence[mlir.Value],
    shapes: Shapes,
    combiners: Mapping[int, Combining] | None = None,
) -> Outlined:
    """Append a fusion group to ``module`` as the slice function ``name``; its generics stay in place.

    Accesses refer to ``buffers`` by number; ``combiners`` of totals are by buffer number.
    """
    placed = {*fused.unstored, *dict(fused.rows), *dict(fused.instead)}
    passed: list[mlir.Value] = []
    scalars: list[mlir.Value] = []
    for statement in fused.statements:
        for access in statement.nest.accesses:
            if access.buffer not in placed and buffers[access.buffer] not in passed:
                passed.append(buffers[access.buffer])
    for statement in fused.statements:
        code = codes[statement.number]
        for captured in captured_by(code.generic, code.numbers):
            target = passed if mlir.is_memref(captured.type) else scalars
            if captured not in target:
                target.append(captured)
    names = names_of([codes[statement.number].body for statement in fused.statements])
    common = fused.split.shared_bytes if fused.split is not None else 0
    outlined = Outlined(name, fused, names, passed, scalars, shared=common)
    written = {
        buffers[access.buffer]
        for statement in fused.statements
        for access in statement.nest.accesses
        if access.written
    }
    function, entry = slice_function(module, outlined, written)
    with mlir.at_end(entry):
        _write_body(module, outlined, fused, codes, buffers, entry, shapes, combiners or {})
    function.verify()
    return outlined


def names_of(bodies: Sequence[mlir.Block]) -> tuple[str, ...]:
    """The names of the operations of a launch; "copy" only if there is no other."""
    names = tuple(dict.fromkeys(name for body in bodies for name in _ops_in(body)))
    return tuple(name for name in names if name != "copy") or names


def _write_body(
    module: mlir.Module,
    outlined: Outlined,
    fused: Fused,
    codes: Mapping[int, Code],
    buffers: Sequence[mlir.Value],
    entry: mlir.Block,
    shapes: Shapes,
    combiners: Mapping[int, Combining],
) -> None:
    """Write the body of an outlined launch: its loops, on views of its pointer arguments."""
    arguments = list(entry.arguments)
    dims = arguments[2]
    cache: dict[Formula, mlir.Value] = {}
    views: dict[mlir.Value, Pointer] = {}
    for buffer, argument in zip(outlined.buffers, arguments[3:], strict=False):
        strides = [memory.emit_formula(stride, dims, cache) for stride in shapes.strides(buffer)]
        views[buffer] = Pointer(argument, mlir.element_type(buffer.type), strides)
    pointers = {number: views[buffer] for number, buffer in enumerate(buffers) if buffer in views}
    for number, size in fused.rows:
        pointers[number] = Pointer(memory.stack(size), mlir.element_type(buffers[number].type), [])
    for number, source in fused.instead:
        pointers[number] = pointers[source]
    scalars: dict[mlir.Value, mlir.Value] = {}
    flat = iter(arguments[3 + len(outlined.buffers) :])
    common = arguments[-1] if outlined.shared else None
    for scalar in outlined.scalars:
        scalars[scalar] = memory.receive(scalar.type, flat)
    chunks = None if common is None else Chunks(common, combiners)
    Writer(fused, codes, pointers, views, scalars, dims, (arguments[0], arguments[1]), chunks).write(module)
    func.return_([mlir.constant(0, "i32")])


def captured_by(
    generic: mlir.Op, numbers: Sequence[int], inner: Sequence[mlir.Op] | None = None
) -> list[mlir.Value]:
    """Scalars and buffers that the body captures, except constants, in order of use.

    ``inner`` are the operations of the body, if the caller has them.
    """
    operands = list(generic.operands)
    captured = [operand for number, operand in enumerate(operands) if number not in numbers]
    if inner is None:
        inner = mlir.walk(generic)[1:]
    inner_ops = set(inner)
    for operation in inner:
        for operand in operation.operands:
            owner = mlir.defining(operand)
            if owner is None:
                outer = mlir.block_owner(operand)
                if outer not in inner_ops and outer != generic:
                    captured.append(operand)
            elif owner not in inner_ops and mlir.name_of(owner) != "arith.constant":
                captured.append(operand)
    return [value for value in captured if not _is_constant(value)]


def _is_constant(operand: mlir.Value) -> bool:
    owner = mlir.defining(operand)
    return owner is not None and mlir.name_of(owner) == "arith.constant"


def _ops_in(body: mlir.Block) -> tuple[str, ...]:
    names = [mlir.name_of(operation) for operation in mlir.operations(body)]
    computing = [name for name in names if name not in ("linalg.yield", "linalg.index", "arith.constant")]
    return tuple(dict.fromkeys(computing)) or ("copy",)


def slice_function(
    module: mlir.Module, outlined: Outlined, written: set[mlir.Value]
) -> tuple[mlir.Op, mlir.Block]:
    """The function of a launch, without its body, and its entry block."""
    integer, pointer = mlir.type_of("i64"), mlir.type_of("!llvm.ptr")
    scalar_types = [memory.passed_types(scalar.type) for scalar in outlined.scalars]
    flat = [kind for kinds in scalar_types for kind in kinds]
    trailing = (
        ["{}"] * len(flat) + ["{llvm.noalias}"] * bool(outlined.shared) + ["{}"] * bool(outlined.scratch)
    )
    flat += [pointer] * (bool(outlined.shared) + bool(outlined.scratch))
    inputs = [integer, integer, pointer, *[pointer] * len(outlined.buffers), *flat]
    outlined.pointer_types = [str(kind) for kind in inputs[2:]]
    attributes = ["{}", "{}", "{llvm.noalias, llvm.readonly}"]
    for number, buffer in enumerate(outlined.buffers):
        apart = memory.known_not_to_alias(buffer, outlined.buffers, written)
        apart = apart and number not in (outlined.replaceable or ())
        argument_attributes = ["llvm.noalias"] if apart else []
        argument_attributes += [] if buffer in written else ["llvm.readonly"]
        attributes.append("{" + ", ".join(argument_attributes) + "}")
    attributes += trailing
    return mlir.private_function(module, outlined.name, inputs, [mlir.type_of("i32")], attributes)

"""Elementwise operations fused into a contraction as its epilogue, on rows of C that are in the cache.

``end(closure, batch, first row, last row, first column, last column)`` reads the arguments of the launch from
``closure`` and runs the loops of each following operation over that part of C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.lower.gemm.match import Groups
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, scf
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.shapes.formula import Formula, mul, proves

#: Arguments after the closure: the batch, the bounds of rows and of columns.
_BOUNDS = 5
#: Sizes and strides of the axes that a linear index iterates over, outermost first.
Walk = list[tuple[Formula, Formula]]


def write_epilogue(
    module: mlir.Module,
    outlined: Outlined,
    groups: Groups,
    generic: mlir.Op,
    followers: Sequence[mlir.Op],
    shapes: Shapes,
) -> str:
    """Write the epilogue of a launch as a function that reads its arguments from the closure; its name."""
    rows, words = write_rows(module, outlined, groups, generic, followers, shapes)
    name = f"{outlined.name}_end"
    _splice_end(module, name, rows, words)
    return name


def write_rows(
    module: mlir.Module,
    outlined: Outlined,
    groups: Groups,
    generic: mlir.Op,
    followers: Sequence[mlir.Op],
    shapes: Shapes,
) -> tuple[str, list[str]]:
    """Write the loops of an epilogue as a function of the bounds and of the launch's arguments after them.

    Returns its name and the types of those arguments.
    """
    integer = memory.i64()
    passed = outlined.pointer_types[:-1] if outlined.scratch else outlined.pointer_types
    words = [mlir.type_of(kind) for kind in passed]
    rows = f"{outlined.name}_rows"
    results = {op.operands[-1] for op in followers}
    marks = ["{}"] * _BOUNDS + ["{llvm.noalias, llvm.readonly}"]
    for buffer in outlined.buffers:
        is_unaliased = memory.known_not_to_alias(buffer, outlined.buffers, results, not shapes.codes)
        marks.append("{llvm.noalias}" if is_unaliased else "{}")
    marks += ["{}"] * (len(words) - 1 - len(outlined.buffers))
    _, entry = mlir.private_function(module, rows, [integer] * _BOUNDS + words, [], marks)
    with mlir.at_end(entry):
        writer = _Rows(outlined, groups, generic, shapes, list(entry.arguments))
        for op in followers:
            writer.write(op)
        func.return_([])
    return rows, [str(word) for word in words]


def _splice_end(module: mlir.Module, name: str, rows: str, words: list[str]) -> None:
    bounds = [f"%bound{number}" for number in range(_BOUNDS)]
    lines = [
        f"llvm.func internal @{name}(%closure: !llvm.ptr, "
        + ", ".join(f"{bound}: i64" for bound in bounds)
        + ") {"
    ]
    for number, kind in enumerate(words):
        lines.append(
            f"  %a{number} = llvm.getelementptr %closure[{8 * number}] : (!llvm.ptr) -> !llvm.ptr, i8"
        )
        lines.append(f"  %w{number} = llvm.load %a{number} : !llvm.ptr -> {kind}")
    operands = ", ".join([*bounds, *(f"%w{number}" for number in range(len(words)))])
    kinds = ", ".join(["i64"] * _BOUNDS + words)
    lines.append(f"  func.call @{rows}({operands}) : ({kinds}) -> ()")
    lines.append("  llvm.return\n}")
    mlir.splice(module, f"func.func private @{rows}({kinds})\n" + "\n".join(lines), rows)


@dataclass
class _AccessWalk:
    """The strides of an access over the batch, the rows and the columns."""

    pointer: Pointer
    batch: Walk
    rows: Walk
    columns: Walk


class _Rows:
    """Emits the loops of an epilogue."""

    def __init__(
        self,
        outlined: Outlined,
        groups: Groups,
        generic: mlir.Op,
        shapes: Shapes,
        arguments: list[mlir.Value],
    ) -> None:
        self.shapes = shapes
        self.groups = groups
        self.dims = arguments[_BOUNDS]
        self.bounds = arguments[:_BOUNDS]
        self.cache: dict[Formula, mlir.Value] = {}
        nest, _ = read_nest(generic, shapes)
        self.loops = _loops_by_axis(generic, 2)
        #: The buffers that the group writes, with the contraction's loop of each of their axes.
        self.known: dict[mlir.Value, dict[int, int]] = {generic.operands[2]: self.loops}
        self.sizes = [axis.size for axis in nest.axes]
        self.bases = dict(zip(outlined.buffers, arguments[_BOUNDS + 1 :], strict=False))
        self.views: dict[mlir.Value, Pointer] = {}
        for buffer, base in self.bases.items():
            steps = [self._value(stride) for stride in shapes.strides(buffer)]
            self.views[buffer] = Pointer(base, mlir.element_type(buffer.type), steps)
        flat = iter(arguments[_BOUNDS + 1 + len(outlined.buffers) :])
        self.scalars = {scalar: memory.receive(scalar.type, flat) for scalar in outlined.scalars}

    def _value(self, formula: Formula) -> mlir.Value:
        return memory.emit_formula(formula, self.dims, self.cache)

    def write(self, op: mlir.Op) -> None:
        """Emit the loops of one operation."""
        nest, numbers = read_nest(op, self.shapes)
        number = next(k for k, operand in enumerate(op.operands) if operand in self.known)
        op_loops, axis_loops = _loops_by_axis(op, number), self.known[op.operands[number]]
        loop_of = {loop: op_loops[axis] for axis, loop in axis_loops.items() if axis in op_loops}
        contraction_loops = {dim: loop for loop, dim in loop_of.items()}
        result = _loops_by_axis(op, len(list(op.operands)) - 1)
        result_loops = {
            axis: contraction_loops[dim] for axis, dim in result.items() if dim in contraction_loops
        }
        self.known.setdefault(op.operands[len(list(op.operands)) - 1], result_loops)
        walks = [
            self._way(access, op.operands[position], loop_of)
            for access, position in zip(nest.accesses, numbers, strict=True)
        ]
        for access_walk in walks:  # sizes and strides are emitted before the loops
            for size, stride in (*access_walk.batch, *access_walk.rows, *access_walk.columns):
                self._value(size)
                self._value(stride)
        digits = self._prepared_digits(nest.fixed)
        starts = [self._offset(access_walk.batch, self.bounds[0]) for access_walk in walks]
        outer = _loop(self.bounds[1], self.bounds[2])
        with mlir.at_end(mlir.block_of(outer)):
            row = mlir.block_of(outer).arguments[0]
            offsets = [
                memory.plus(start, self._offset(access_walk.rows, row))
                for start, access_walk in zip(starts, walks, strict=True)
            ]
            inner = _loop(self.bounds[3], self.bounds[4])
            with mlir.at_end(mlir.block_of(inner)):
                column = mlir.block_of(inner).arguments[0]
                final = [
                    memory.plus(offset, self._offset(access_walk.columns, column))
                    for offset, access_walk in zip(offsets, walks, strict=True)
                ]
                indices = {
                    loop_of[loop]: self._digit(loop, row, column) for loop in digits if loop in loop_of
                }
                self._body(op, numbers, walks, final, indices)
                scf.yield_([])
            scf.yield_([])

    def _way(self, access: Access, buffer: mlir.Value, loop_of: dict[int, int]) -> _AccessWalk:
        def walk(name: str) -> Walk:
            steps: Walk = []
            for loop, size in self.groups.sources(name):
                stride = access.strides[loop_of[loop]] if loop in loop_of else 0
                if steps and proves(steps[-1][1], mul(size, stride), equal=True):
                    size = mul(steps.pop()[0], size)
                steps.append((size, stride))
            return steps

        element = mlir.element_type(buffer.type)
        base = Pointer(self.bases[buffer], element, [])
        start = Pointer(memory.shift(base, self._value(access.offset)), element, [])
        return _AccessWalk(start, walk("batch"), walk("m"), walk("n"))

    def _offset(self, walk: Walk, number: mlir.Value) -> mlir.Value:
        """The element offset of point ``number`` of a walk."""
        offset = mlir.constant(0)
        if all(stride == 0 for _, stride in walk):
            return offset
        for digit, (_, stride) in zip(self._digits([size for size, _ in walk], number), walk, strict=True):
            if stride != 0:
                offset = memory.plus(offset, memory.times(digit, self._value(stride)))
        return offset

    def _digits(self, sizes: list[Formula], number: mlir.Value) -> list[mlir.Value]:
        """The digits of ``number`` in the mixed radix ``sizes``, outermost first."""
        digits: list[mlir.Value] = []
        for size in reversed(sizes[1:]):
            base = self._value(size)
            digits.insert(0, arith.remui(number, base))
            number = arith.divui(number, base)
        return [number, *digits]

    def _prepared_digits(self, fixed: frozenset[int]) -> list[int]:
        """The loops of the contraction if a body uses loop indices; emits their sizes before the loops."""
        if not fixed:
            return []
        for size in self.sizes:
            self._value(size)
        return list(self.loops.values())

    def _digit(self, loop: int, row: mlir.Value, column: mlir.Value) -> mlir.Value:
        for name, number in (("batch", self.bounds[0]), ("m", row), ("n", column)):
            sources = self.groups.sources(name)
            for place, (source, _) in enumerate(sources):
                if source == loop:
                    return self._digits([size for _, size in sources], number)[place]
        return mlir.constant(0)

    def _body(
        self,
        op: mlir.Op,
        numbers: list[int],
        walks: list[_AccessWalk],
        offsets: list[mlir.Value],
        indices: dict[int, mlir.Value],
    ) -> None:
        """Emit the body of ``op`` for one element: load its inputs at ``offsets``, and store its results."""
        operands = list(op.operands)
        mapping: dict[mlir.Value, mlir.Value] = dict(self.scalars)
        for number, argument in enumerate(mlir.block_of(op).arguments):
            if not list(argument.uses):
                continue
            if number in numbers:
                place = numbers.index(number)
                mapping[argument] = memory.load(walks[place].pointer, offsets[place])
            elif operands[number] in mapping:
                mapping[argument] = mapping[operands[number]]
            else:
                mapping[argument] = mlir.clone(mlir.definition(operands[number])).results[0]
        results = memory.clone_body(mlir.block_of(op), mapping, self.views, indices)
        inputs = mlir.input_count(op)
        outputs = [place for place, number in enumerate(numbers) if number >= inputs]
        for place, result in zip(outputs, results, strict=True):
            memory.store(walks[place].pointer, offsets[place], result)


def _loop(low: mlir.Value, high: mlir.Value) -> mlir.Op:
    return mlir.for_loop((low, high), mlir.constant(1))


def _loops_by_axis(generic: mlir.Op, number: int) -> dict[int, int]:
    """The loop that indexes each axis of operand ``number``."""
    index_map = mlir.indexing_maps(generic)[number]
    plain = [mlir.plain_dim(result) for result in index_map.results]
    return {axis: loop for axis, loop in enumerate(plain) if loop is not None}

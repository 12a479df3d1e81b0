"""What follows a contraction element by element, on rows of C that are still in the cache.

``end(closure, batch, first row, last row, first column, last column)`` reads what the launch was given from
``closure`` and runs the loops of each following operation over that part of C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.lower.gemm.match import Contraction, Groups
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, scf
from kcache_compiler.schedule.loop_nest import Access
from kcache_compiler.shapes.formula import Formula, mul
from kcache_compiler.shapes.guards import proves

#: What the library passes after the closure: the batch, then rows and columns from and to.
_BOUNDS = 5
#: Sizes of the axes that a number counts over, outermost first, with a stride for each.
Walk = list[tuple[Formula, Formula]]


def write_epilogue(
    module: mlir.Module,
    outlined: Outlined,
    contraction: Contraction,
    generic: mlir.Op,
    after: Sequence[mlir.Op],
    shapes: Shapes,
) -> str:
    """Write the epilogue of a launch; its name."""
    integer = memory.i64()
    words = [mlir.type_of(kind) for kind in outlined.pointer_types[:-1]]
    rows, name = f"{outlined.name}_rows", f"{outlined.name}_end"
    written = {one.operands[-1] for one in after}
    marks = ["{}"] * _BOUNDS + ["{llvm.noalias, llvm.readonly}"]
    for buffer in outlined.buffers:
        apart = memory.known_not_to_alias(buffer, outlined.buffers, written)
        marks.append("{llvm.noalias}" if apart else "{}")
    marks += ["{}"] * (len(words) - 1 - len(outlined.buffers))
    _, entry = mlir.private_function(module, rows, [integer] * _BOUNDS + words, [], marks)
    with mlir.at_end(entry):
        writer = _Rows(outlined, contraction.groups, generic, shapes, list(entry.arguments))
        for one in after:
            writer.write(one)
        func.return_([])
    _splice_end(module, name, rows, [str(word) for word in words])
    return name


def _splice_end(module: mlir.Module, name: str, rows: str, words: list[str]) -> None:
    bounds = [f"%bound{number}" for number in range(_BOUNDS)]
    lines = [
        f"llvm.func internal @{name}(%closure: !llvm.ptr, "
        + ", ".join(f"{one}: i64" for one in bounds)
        + ") {"
    ]
    for number, kind in enumerate(words):
        lines.append(
            f"  %a{number} = llvm.getelementptr %closure[{8 * number}] : (!llvm.ptr) -> !llvm.ptr, i8"
        )
        lines.append(f"  %w{number} = llvm.load %a{number} : !llvm.ptr -> {kind}")
    given = ", ".join([*bounds, *(f"%w{number}" for number in range(len(words)))])
    kinds = ", ".join(["i64"] * _BOUNDS + words)
    lines.append(f"  func.call @{rows}({given}) : ({kinds}) -> ()")
    lines.append("  llvm.return\n}")
    mlir.splice(module, f"func.func private @{rows}({kinds})\n" + "\n".join(lines), rows)


@dataclass
class _AccessWalk:
    """How an access walks over the batch, the rows and the columns."""

    pointer: Pointer
    batch: Walk
    rows: Walk
    columns: Walk


class _Rows:
    """State while the loops of an epilogue are written."""

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
        #: Buffers that the group writes, with the loop of the contraction for each of their axes.
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

    def write(self, one: mlir.Op) -> None:
        """The loops of one operation."""
        nest, numbers = read_nest(one, self.shapes)
        number = next(k for k, operand in enumerate(one.operands) if operand in self.known)
        mine, theirs = _loops_by_axis(one, number), self.known[one.operands[number]]
        loop_of = {loop: mine[axis] for axis, loop in theirs.items() if axis in mine}
        walked = {dim: loop for loop, dim in loop_of.items()}
        result = _loops_by_axis(one, len(list(one.operands)) - 1)
        made = {axis: walked[dim] for axis, dim in result.items() if dim in walked}
        self.known.setdefault(one.operands[len(list(one.operands)) - 1], made)
        ways = [
            self._way(access, one.operands[position], loop_of)
            for access, position in zip(nest.accesses, numbers, strict=True)
        ]
        for way in ways:  # sizes and strides stand before the loops
            for size, stride in (*way.batch, *way.rows, *way.columns):
                self._value(size)
                self._value(stride)
        digits = self._prepared_digits(nest.fixed)
        starts = [self._offset(way.batch, self.bounds[0]) for way in ways]
        outer = _loop(self.bounds[1], self.bounds[2])
        with mlir.at_end(mlir.block_of(outer)):
            row = mlir.block_of(outer).arguments[0]
            offsets = [
                memory.plus(start, self._offset(way.rows, row))
                for start, way in zip(starts, ways, strict=True)
            ]
            inner = _loop(self.bounds[3], self.bounds[4])
            with mlir.at_end(mlir.block_of(inner)):
                column = mlir.block_of(inner).arguments[0]
                final = [
                    memory.plus(offset, self._offset(way.columns, column))
                    for offset, way in zip(offsets, ways, strict=True)
                ]
                indices = {
                    loop_of[loop]: self._digit(loop, row, column) for loop in digits if loop in loop_of
                }
                self._body(one, numbers, ways, final, indices)
                scf.yield_([])
            scf.yield_([])

    def _way(self, access: Access, buffer: mlir.Value, loop_of: dict[int, int]) -> _AccessWalk:
        def walk(name: str) -> Walk:
            found: Walk = []
            for loop, size in self.groups.sources(name):
                stride = access.strides[loop_of[loop]] if loop in loop_of else 0
                if found and proves(found[-1][1], mul(size, stride), equal=True):
                    size = mul(found.pop()[0], size)
                found.append((size, stride))
            return found

        element = mlir.element_type(buffer.type)
        whole = Pointer(self.bases[buffer], element, [])
        start = Pointer(memory.shift(whole, self._value(access.offset)), element, [])
        return _AccessWalk(start, walk("batch"), walk("m"), walk("n"))

    def _offset(self, walk: Walk, number: mlir.Value) -> mlir.Value:
        """The elements that point ``number`` of a walk is from its start."""
        offset = mlir.constant(0)
        if all(stride == 0 for _, stride in walk):
            return offset
        for digit, (_, stride) in zip(self._digits([size for size, _ in walk], number), walk, strict=True):
            if stride != 0:
                offset = memory.plus(offset, memory.times(digit, self._value(stride)))
        return offset

    def _digits(self, sizes: list[Formula], number: mlir.Value) -> list[mlir.Value]:
        """``number`` written in a system of mixed bases, outermost first."""
        digits: list[mlir.Value] = []
        for size in reversed(sizes[1:]):
            base = self._value(size)
            digits.insert(0, arith.remui(number, base))
            number = arith.divui(number, base)
        return [number, *digits]

    def _prepared_digits(self, fixed: frozenset[int]) -> list[int]:
        """The loops of the contraction, if a body asks for numbers of some; sizes stand before the loops."""
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
        one: mlir.Op,
        numbers: list[int],
        ways: list[_AccessWalk],
        offsets: list[mlir.Value],
        indices: dict[int, mlir.Value],
    ) -> None:
        operands = list(one.operands)
        mapping: dict[mlir.Value, mlir.Value] = dict(self.scalars)
        for number, argument in enumerate(mlir.block_of(one).arguments):
            if not list(argument.uses):
                continue
            if number in numbers:
                place = numbers.index(number)
                mapping[argument] = memory.load(ways[place].pointer, offsets[place])
            elif operands[number] in mapping:
                mapping[argument] = mapping[operands[number]]
            else:
                mapping[argument] = mlir.clone(mlir.definition(operands[number])).results[0]
        results = memory.clone_body(mlir.block_of(one), mapping, self.views, indices)
        inputs = mlir.input_count(one)
        written = [place for place, number in enumerate(numbers) if number >= inputs]
        for place, result in zip(written, results, strict=True):
            memory.store(ways[place].pointer, offsets[place], result)


def _loop(low: mlir.Value, high: mlir.Value) -> mlir.Op:
    return mlir.for_loop((low, high), mlir.constant(1))


def _loops_by_axis(generic: mlir.Op, number: int) -> dict[int, int]:
    """For each axis of operand ``number`` the loop that indexes it."""
    index_map = mlir.indexing_maps(generic)[number]
    plain = [mlir.plain_dim(result) for result in index_map.results]
    return {axis: loop for axis, loop in enumerate(plain) if loop is not None}

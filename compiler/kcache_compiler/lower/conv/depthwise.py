"""The launch of a window: a loop over results, with all products of a result unrolled in registers."""

from __future__ import annotations

from dataclasses import replace

from kcache_compiler.lower.conv.match import Window, read_window
from kcache_compiler.lower.gemm.epilogue import write_rows
from kcache_compiler.lower.gemm.match import is_contraction
from kcache_compiler.lower.gemm.outline import declared, makes_zero, write_in_place
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, captured_by, read_nest, slice_function
from kcache_compiler.lower.loops.masked_remainder import masked_annotation, vector_annotation
from kcache_compiler.lower.loops.memory import Pointer, times
from kcache_compiler.lower.sort_scatter.loop_builder import loop, minimum
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, llvm, scf
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import Formula, add, mul


def outline_window(unit: Unit, generics: list[mlir.Op], name: str, shapes: Shapes) -> Outlined | None:
    """The slice function of a window, of the fill of its sums with zeros, and of elementwise consumers; None
    for other groups.
    """
    place = next((number for number, generic in enumerate(generics[:2]) if is_contraction(generic)), None)
    if place is None:
        return None
    generic, followers = generics[place], generics[place + 1 :]
    if place and not (generics[0].operands[-1] == generic.operands[2] and makes_zero(generics[0])):
        return None
    window = read_window(generic, shapes)
    if window is None or captured_by(generic, [0, 1, 2]):
        return None
    spared = write_in_place(generics[: place + 1], followers)
    checks = [check for op in followers for check in read_nest(op, shapes)[0].checks]
    nest = replace(window.nest, checks=(*window.nest.checks, *checks))
    window = replace(window, nest=nest)
    outlined = declared(window, "window", generic, followers, name)
    outlined.spared = spared
    function, entry = slice_function(unit.module, outlined, {op.operands[-1] for op in (generic, *followers)})
    end = None
    if followers:
        end, _ = write_rows(unit.module, outlined, window.groups, generic, followers, shapes)
    with mlir.at_end(entry):
        lanes = unit.target.vector_bytes // memory.element_bytes(mlir.element_type(generic.operands[2].type))
        _Window(window, generic, list(entry.arguments), outlined.buffers, bool(place), lanes, end).write()
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


def is_window(generics: list[mlir.Op], shapes: Shapes) -> bool:
    """Whether ``outline_window`` accepts ``generics``, and a packed contraction would keep no wider sums."""
    place = next((number for number, generic in enumerate(generics[:2]) if is_contraction(generic)), None)
    if place is None:
        return False
    generic = generics[place]
    starts = not place or (generics[0].operands[-1] == generic.operands[2] and makes_zero(generics[0]))
    wide = str(mlir.element_type(generic.operands[2].type)) in ("f32", "f64")
    return (
        starts and wide and read_window(generic, shapes) is not None and not captured_by(generic, [0, 1, 2])
    )


class _Window:
    """Emits the loops of a depthwise convolution. ``cleared``: the loops initialize the result."""

    def __init__(
        self,
        window: Window,
        generic: mlir.Op,
        arguments: list[mlir.Value],
        buffers: list[mlir.Value],
        cleared: bool,
        lanes: int,
        end: str | None,
    ) -> None:
        self.window = window
        #: The function of the epilogue, and what it takes besides bounds.
        self.end, self.passed = end, arguments[2:]
        self.body = mlir.block_of(generic)
        self.cleared = cleared
        self.lanes = lanes
        self.bounds = (arguments[0], arguments[1])
        self.dims = arguments[2]
        self.cache: dict[Formula, mlir.Value] = {}
        self.sizes = [self._value(axis.size) for axis in window.nest.axes]
        self.starts: list[Pointer] = []
        for operand, access in zip(generic.operands, window.nest.accesses, strict=True):
            pointer = Pointer(arguments[3 + buffers.index(operand)], mlir.element_type(operand.type), [])
            moved = memory.shift(pointer, self._value(access.offset))
            self.starts.append(Pointer(moved, pointer.element, []))
            for stride in access.strides:
                self._value(stride)
        steps = [access.strides[window.along] for access in window.nest.accesses]
        wide = str(self.starts[2].element) in ("f32", "f64") and cleared
        bits = 8 * lanes * memory.element_bytes(self.starts[2].element)
        #: Whether rows are computed in blocks of two vectors, for whose sums there are registers.
        self.blocked = wide and bits == 512 and set(steps) <= {0, 1}
        self.steps = range(window.together)
        for a, b in window.taps:
            for step in self.steps:
                self._value(self._jammed(0, a, step))
                self._value(self._jammed(1, b, step))

    def _value(self, formula: Formula) -> mlir.Value:
        return memory.emit_formula(formula, self.dims, self.cache)

    def _jammed(self, side: int, tap: Formula, step: int) -> Formula:
        """The offset of a tap, ``step`` steps along the jammed axis."""
        jam = self.window.jam
        return tap if jam is None else add(tap, mul(step, self.window.nest.accesses[side].strides[jam]))

    def _moved(self, pointers: list[Pointer], axis: int, distance: mlir.Value) -> list[Pointer]:
        moved: list[Pointer] = []
        for pointer, access in zip(pointers, self.window.nest.accesses, strict=True):
            offset = times(distance, self._value(access.strides[axis]))
            is_invariant = access.strides[axis] == 0
            moved.append(
                pointer if is_invariant else Pointer(memory.shift(pointer, offset), pointer.element, [])
            )
        return moved

    def write(self) -> None:
        loop(*self.bounds, self._row)

    def _row(self, number: mlir.Value) -> None:
        """Emit the results of a point of the outer axes, and their epilogue."""
        self._outer(number)
        if self.end is not None:
            jam, zero = self.window.jam, mlir.constant(0)
            rows = mlir.constant(1) if jam is None else self.sizes[jam]
            columns = self.sizes[self.window.along]
            mlir.call_function(self.end, [number, zero, rows, zero, columns, *self.passed])

    def _outer(self, number: mlir.Value) -> None:
        pointers, point = self.starts, number
        for axis in reversed(self.window.outer):
            index = arith.remui(point, self.sizes[axis])
            point = arith.divui(point, self.sizes[axis])
            pointers = self._moved(pointers, axis, index)
        jam = self.window.jam
        if jam is None:
            self._along(pointers, 1)
            return
        together = self.window.together
        remainder = arith.remui(self.sizes[jam], mlir.constant(together))
        main_end = arith.subi(self.sizes[jam], remainder)

        def step(counter: mlir.Value, count: int) -> None:
            self._along(self._moved(pointers, jam, counter), count)

        loop(mlir.constant(0), main_end, lambda counter: step(counter, together), together)
        if together > 1:
            loop(main_end, self.sizes[jam], lambda counter: step(counter, 1))

    def _along(self, pointers: list[Pointer], count: int) -> None:
        """Emit the loop over the contiguous axis of C, in vectors.

        If results do not depend on previous contents of C, the last vector may overlap the one before.
        """
        axis = self.window.along
        size, high = self.window.nest.axes[axis].size, self.sizes[axis]
        lanes = self.lanes
        if self.blocked and isinstance(size, int) and 2 * size >= lanes:
            self._in_blocks(pointers, size, count)
            return
        while isinstance(size, int) and lanes > size:
            lanes //= 2
        if not (isinstance(size, int) and self.cleared and lanes > 1 and size % lanes):
            loop(
                mlir.constant(0),
                high,
                lambda counter: self._place(self._moved(pointers, axis, counter), count),
            )
            return
        last = mlir.constant(size - lanes)

        def vector(counter: mlir.Value) -> None:
            moved = self._moved(pointers, axis, minimum(counter, last))

            def lane(offset: mlir.Value) -> None:
                self._place(self._moved(moved, axis, offset), count)

            loop(mlir.constant(0), mlir.constant(lanes), lane)

        loop(mlir.constant(0), high, vector, lanes)

    def _in_blocks(self, pointers: list[Pointer], size: int, count: int) -> None:
        """Emit the loop over the contiguous axis of C in blocks of two vectors, which read a weight once.

        A row shorter than a block is computed under masks. An empty assembly statement hides that all blocks
        of a row read the same weights: LLVM would copy them, more than there are registers, to the stack.
        """
        axis, block = self.window.along, 2 * self.lanes
        vectors = -(-min(size, block) // self.lanes)
        annotation = (
            vector_annotation(self.lanes, vectors)
            if size > block or size % self.lanes == 0
            else masked_annotation(self.lanes, vectors)
        )

        def lanes_from(first: list[Pointer], length: int) -> None:
            lane = mlir.for_loop((mlir.constant(0), mlir.constant(length)), mlir.constant(1), [], annotation)
            with mlir.at_end(mlir.block_of(lane)):
                self._place(self._moved(first, axis, mlir.block_of(lane).arguments[0]), count)
                scf.yield_([])

        if size <= block:
            lanes_from(pointers, size)
            return
        last = mlir.constant(size - block)

        def full(counter: mlir.Value) -> None:
            a, b, c = self._moved(pointers, axis, minimum(counter, last))
            zero = llvm.inline_asm(memory.i64(), [mlir.constant(0)], "", "=r,0")
            lanes_from([a, replace(b, base=memory.shift(b, zero)), c], block)

        loop(mlir.constant(0), self.sizes[axis], full, block)

    def _place(self, pointers: list[Pointer], count: int) -> None:
        """Emit ``count`` results along the jammed axis."""
        a, b, c = pointers
        element = c.element
        jam = self.window.jam
        offsets = [mlir.constant(0)]
        if jam is not None:
            offsets = [
                self._value(mul(step, self.window.nest.accesses[2].strides[jam])) for step in range(count)
            ]
        loaded: dict[tuple[int, Formula], mlir.Value] = {}

        def read(side: int, tap: Formula, step: int) -> mlir.Value:
            tap_offset = self._jammed(side, tap, step)
            if (side, tap_offset) not in loaded:
                loaded[side, tap_offset] = memory.load((a, b)[side], self._value(tap_offset))
            return loaded[side, tap_offset]

        sums = [self._start(element) if self.cleared else memory.load(c, offset) for offset in offsets]
        for tap in self.window.taps:
            for step in range(count):
                operands = [read(0, tap[0], step), read(1, tap[1], step), sums[step]]
                mapping = dict(zip(self.body.arguments, operands, strict=True))
                (sums[step],) = memory.clone_body(self.body, mapping, {}, {})
        for offset, total in zip(offsets, sums, strict=True):
            memory.store(c, offset, total)

    def _start(self, element: mlir.Type) -> mlir.Value:
        return mlir.float_constant(0, element)

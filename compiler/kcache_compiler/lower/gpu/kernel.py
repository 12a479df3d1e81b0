"""Builds a kernel: its parameters, and the values that are computed before its first loop.

Values that all threads use are emitted at the start of the function, before an anchor; the body follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.llvm.gpu_targets import MAX_PARAMETERS
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.cpu.buffer_addresses import address_of
from kcache_compiler.lower.gpu.intrinsics import special
from kcache_compiler.lower.gpu.tile_sizes import Sizes, sizes_for
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.memory import Pointer, i64, pointer_type
from kcache_compiler.lower.sort_scatter.loop_builder import compare, if_then
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, llvm
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import Formula, apply, symbols_in, text

_SAME_PLACE = ("memref.cast", "memref.collapse_shape", "memref.expand_shape", "memref.transpose")


#: Emits the code of a point for its number as i64 and, if it is known to fit, as i32.
Point: TypeAlias = Callable[[mlir.Value, mlir.Value | None], None]


@dataclass(frozen=True)
class LaunchGeometry:
    """The launch parameters of a kernel: blocks, threads of a block, dynamic shared memory; and its kind."""

    grid: tuple[Formula, Formula, Formula]
    block: tuple[int, int, int]
    shared: Formula = 0
    name: str = ""


@dataclass(frozen=True)
class Program:
    """The function that launches are outlined from; ``offsets`` are its allocations in the workspace."""

    unit: Unit
    main: mlir.Op
    shapes: Shapes
    offsets: dict[mlir.Op, Formula]

    @property
    def sizes(self) -> Sizes:
        """The tile sizes of its kernels."""
        target = self.unit.target
        if not isinstance(target, Device):
            raise CompileFailed("launches", f"{target.name} is not a GPU")
        return sizes_for(target.gpu, self.unit.options.schedule)

    @property
    def extents(self) -> dict[int, Formula]:
        """Arguments of ``main`` that no caller passes, by position."""
        return dict(enumerate(self.unit.extents, len(self.unit.inputs) + len(self.unit.constants)))

    def position(self, root: mlir.Value) -> int:
        return list(mlir.block_of(self.main).arguments).index(root)


class Kernel:
    """The function ``name`` at the end of the module; ``written`` are the roots of buffers that it writes.

    Threads communicate through ``exchanged`` buffers, with barriers: LLVM must not assume ``noalias``.
    """

    def __init__(
        self, program: Program, name: str, written: set[mlir.Value], exchanged: set[mlir.Value]
    ) -> None:
        self.program = program
        self.name = name
        self.shapes = program.shapes
        self.sizes = program.sizes
        self.params: list[str] = []
        self._written = written
        self._exchanged = exchanged
        self._attributes: list[str] = []
        self._symbols: dict[Formula, mlir.Value] = {}
        self._roots: dict[mlir.Value, mlir.Value] = {}
        self._scalars: dict[mlir.Value, mlir.Value] = {}
        end = mlir.at_end(program.unit.module.body)
        self.function = func.FuncOp(name, mlir.function_type([], []), ip=end).operation
        self.entry = mlir.new_block(self.function, 0, [])
        with mlir.at_end(self.entry):
            self._anchor = mlir.definition(mlir.constant(0))

    def before(self) -> mlir.InsertionPoint:
        """The insertion point of values that dominate the body."""
        return mlir.before(self._anchor)

    def body(self) -> mlir.InsertionPoint:
        """The insertion point at the end of the body."""
        return mlir.at_end(self.entry)

    def here(self) -> mlir.InsertionPoint:
        """The insertion point of values that the next loops use."""
        return self.before()

    def finish(self) -> None:
        """Close the function once its parameters are known. Raises ``UnsupportedOp`` for too many."""
        if len(self.params) > MAX_PARAMETERS:
            raise UnsupportedOp(
                "func.func",
                f"a launch takes {len(self.params)} buffers and sizes, and a GPU passes {MAX_PARAMETERS}; "
                "compile it for a CPU target",
            )
        with self.body():
            func.return_([])
        kinds = [argument.type for argument in self.entry.arguments]
        self.function.attributes["function_type"] = mlir.type_attr(mlir.function_type(kinds, []))
        self.function.attributes["arg_attrs"] = mlir.attribute("[" + ", ".join(self._attributes) + "]")

    def add_global(self, text: str) -> None:
        """Add a global variable to the module, as text."""
        mlir.splice(self.program.unit.module, text)

    def _parameter(self, kind: mlir.Type, param: str, attributes: str = "{}") -> mlir.Value:
        self.params.append(param)
        self._attributes.append(attributes)
        return self.entry.add_argument(kind, mlir.unknown_location())

    def value(self, formula: Formula) -> mlir.Value:
        """The i64 of a formula."""
        for name in sorted(symbols_in(formula)):
            if name not in self._symbols:
                self._symbols[name] = self._parameter(i64(), f"i64:{name}")
        with self.before():
            return memory.emit_formula(formula, None, self._symbols)

    def workspace(self, offset: Formula, written: bool) -> mlir.Value:
        """The pointer to an area of the workspace outside of buffers, which this kernel writes or reads."""
        marks = "{llvm.noalias}" if written else "{llvm.noalias, llvm.readonly}"
        return self._parameter(pointer_type(), f"workspace:{text(offset)}", marks)

    def pointer(self, buffer: mlir.Value) -> Pointer:
        """A buffer with its strides."""
        with self.here():
            base = self._base(buffer)
            steps = [self.value(stride) for stride in self.shapes.strides(buffer)]
            return Pointer(base, mlir.element_type(buffer.type), steps)

    def _base(self, buffer: mlir.Value) -> mlir.Value:
        owner = mlir.defining(buffer)
        name = "" if owner is None else mlir.name_of(owner)
        if owner is not None and name in _SAME_PLACE:
            return self._base(owner.operands[0])
        if owner is not None and name == "memref.subview":
            source = owner.operands[0]
            base = self._base(source)
            offset = mlir.constant(0)
            strides = [self.value(stride) for stride in self.shapes.strides(source)]
            for start, stride in zip(self._offsets(owner), strides, strict=True):
                offset = memory.plus(offset, memory.times(start, stride))
            return memory.advance(base, memory.stored_type(mlir.element_type(buffer.type)), offset)
        if buffer not in self._roots:
            with self.before():
                self._roots[buffer] = self._root(buffer, owner, name)
        return self._roots[buffer]

    def _root(self, root: mlir.Value, owner: mlir.Op | None, name: str) -> mlir.Value:
        marks = "{llvm.noalias, llvm.readonly}"
        if root in self._written:
            marks = "{}" if root in self._exchanged else "{llvm.noalias}"
        if owner is None:
            return self._argument(root, marks)
        if name == "memref.alloc":
            return self._allocated(self.program.offsets[owner], marks)
        if name == "memref.get_global":
            return address_of(mlir.clone(owner).results[0])
        raise UnsupportedOp(name, "a buffer of control flow, on a GPU", mlir.location_of(owner))

    def _argument(self, root: mlir.Value, marks: str) -> mlir.Value:
        """The pointer of an argument of ``main``."""
        if mlir.block_owner(root) == self.program.main:
            position = self.program.position(root)
            if position in self.program.extents:
                slot = memory.stack(8)
                llvm.store(self.value(self.program.extents[position]), slot)
                return slot
            number = position - sum(extent < position for extent in self.program.extents)
            return self._parameter(pointer_type(), f"buffer:{number}", marks)
        raise UnsupportedOp("block argument", "a buffer of control flow, on a GPU")

    def _allocated(self, offset: Formula, marks: str) -> mlir.Value:
        """A buffer in the workspace."""
        return self._parameter(pointer_type(), f"workspace:{text(offset)}", marks)

    def _offsets(self, owner: mlir.Op) -> list[mlir.Value]:
        """The offsets of a subview as i64."""
        _, count, *_ = mlir.integers(owner.attributes["operandSegmentSizes"])
        dynamic = iter(list(owner.operands)[1 : 1 + count])
        offsets: list[mlir.Value] = []
        for offset in mlir.integers(owner.attributes["static_offsets"]):
            if offset >= 0:
                offsets.append(self.value(self.shapes.codes(offset)))
            else:
                offsets.append(as_i64(self.scalar(next(dynamic))))
        return offsets

    def scalar(self, number: mlir.Value) -> mlir.Value:
        """Recompute a scalar of ``main`` in this kernel."""
        if number not in self._scalars:
            with self.here():
                self._scalars[number] = self._computed(number)
        return self._scalars[number]

    def _computed(self, number: mlir.Value) -> mlir.Value:
        if number in self.shapes.numbers:
            return _as_type(self.value(self.shapes.numbers[number]), number.type)
        owner = mlir.defining(number)
        name = "block argument" if owner is None else mlir.name_of(owner)
        if owner is not None and name == "memref.dim":
            return _as_type(self.value(self.shapes.formula(number)), number.type)
        if owner is not None and name == "memref.load":
            pointer = self.pointer(owner.operands[0])
            indices = [as_i64(self.scalar(operand)) for operand in list(owner.operands)[1:]]
            return memory.load(pointer, element_offset(pointer, indices))
        if owner is None or not name.startswith(("arith.", "math.", "complex.")):
            location = "" if owner is None else mlir.location_of(owner)
            raise UnsupportedOp(name, "a number of control flow, on a GPU", location)
        operands = [self.scalar(operand) for operand in owner.operands]
        copy = mlir.clone(owner)
        for place, operand in enumerate(operands):
            copy.operands[place] = operand
        return copy.results[0]

    def deal(self, count: Formula, threads: int, point: Point) -> LaunchGeometry:
        """Emit ``point`` for one thread per number below ``count``, in blocks of ``threads``."""
        limit = self.value(count)
        short_number, number = thread_number(threads)
        narrow = short_number if isinstance(count, int) and count < 2**31 - threads else None
        if_then(compare("lt", number, limit), lambda: point(number, narrow))
        return LaunchGeometry((apply("ceildiv", count, threads), 1, 1), (threads, 1, 1))


def element_offset(pointer: Pointer, indices: list[mlir.Value]) -> mlir.Value:
    """The element offset at ``indices``."""
    offset = mlir.constant(0)
    for index, step in zip(indices, pointer.steps, strict=True):
        offset = memory.plus(offset, memory.times(index, step))
    return offset


def as_i64(number: mlir.Value) -> mlir.Value:
    """An index as i64."""
    return _as_type(number, i64())


def _as_type(number: mlir.Value, kind: mlir.Type) -> mlir.Value:
    if number.type == kind:
        return number
    if "index" in (str(kind), str(number.type)):
        return arith.index_cast(kind, number)
    return arith.trunci(kind, number)


def loads_behind(number: mlir.Value) -> list[mlir.Op]:
    """The loads that a scalar of ``main`` depends on."""
    owner = mlir.defining(number)
    if owner is None:
        return []
    loads = [owner] if mlir.name_of(owner) == "memref.load" else []
    for operand in owner.operands:
        if not mlir.is_memref(operand.type):
            loads += loads_behind(operand)
    return loads


def no_unroll_annotation() -> mlir.Attribute:
    """The annotation of a loop that neither LLVM nor ptxas unrolls, because its body is long."""
    return mlir.attribute("#llvm.loop_annotation<unroll = <disable = true>>")


def thread_number(threads: int, item: int = 0, items: int = 1) -> tuple[mlir.Value, mlir.Value]:
    """The number of this thread in a grid of blocks of ``threads``, as i32 and as i64.

    If a thread has several ``items``, which are a block apart, the number of item ``item``. The i32 wraps
    around on overflow.
    """
    block, thread = special("ctaid.x"), special("tid.x")
    short = arith.addi(arith.muli(block, mlir.constant(threads * items, "i32")), thread)
    block, thread = (arith.extui(i64(), special_register) for special_register in (block, thread))
    wide = memory.plus(memory.times(block, mlir.constant(threads * items)), thread)
    if item:
        short = arith.addi(short, mlir.constant(threads * item, "i32"))
        wide = memory.plus(wide, mlir.constant(threads * item))
    return short, wide


def split(
    number: mlir.Value, short: mlir.Value | None, sizes: list[Formula], value: Callable[[Formula], mlir.Value]
) -> list[mlir.Value]:
    """Delinearize the number of a point into counters of axes of ``sizes``, the last axis fastest.

    ``short`` is the same number as i32, if the product of sizes is known to fit: division is then cheaper.
    """
    counters: list[mlir.Value] = []
    quotient, kind = (number, "i64") if short is None else (short, "i32")
    for place in range(len(sizes) - 1, -1, -1):
        if place == 0:
            counters.insert(0, quotient)
            break
        size = sizes[place]
        is_short = short is not None and isinstance(size, int)
        divisor = mlir.constant(size, kind) if is_short and isinstance(size, int) else value(size)
        counters.insert(0, arith.remui(quotient, divisor))
        quotient = arith.divui(quotient, divisor)
    return [counter if str(counter.type) == "i64" else arith.extui(i64(), counter) for counter in counters]


def begins_anywhere(buffer: mlir.Value) -> bool:
    """Whether the buffer may begin at an offset in another one, so that its alignment is unknown."""
    owner = mlir.defining(buffer)
    while owner is not None and mlir.name_of(owner) in memory.VIEWS:
        if mlir.name_of(owner) == "memref.subview":
            return True
        owner = mlir.defining(owner.operands[0])
    return owner is not None and mlir.name_of(owner) == "memref.get_global"

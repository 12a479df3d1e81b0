"""Start addresses of buffers, and the values of dynamic sizes, as IR of the entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.memory import i64, pointer_type
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, builtin, llvm, memref
from kcache_compiler.shapes.formula import Formula

#: Emits the i64 of a formula.
Emit = Callable[[Formula], mlir.Value]

_SAME_PLACE = ("memref.cast", "memref.collapse_shape", "memref.expand_shape", "memref.transpose")


class DynamicSizes:
    """Replaces the constants that represent dynamic sizes in ``main``, including its bodies.

    Their values are results of casts without operands until ``bind`` replaces them; launches get them as
    scalars.
    """

    def __init__(self, main: mlir.Op, shapes: Shapes) -> None:
        self._waiting: list[tuple[mlir.Op, Formula]] = []
        if not shapes.codes:
            return
        with mlir.at_start(mlir.block_of(main)):
            first = mlir.definition(mlir.constant(0))  # an anchor: code is inserted before it
        for constant in mlir.named(main, "arith.constant"):
            result = constant.results[0]
            number = mlir.constant_int(result)
            if number is None or not shapes.codes.varies(number):
                continue
            formula = shapes.codes(number)
            with mlir.after(first):
                waiting = builtin.UnrealizedConversionCastOp([i64()], []).operation
                size = _as_type(waiting.results[0], result.type)
            self._waiting.append((waiting, formula))
            shapes.numbers[size] = formula
            result.replace_all_uses_with(size)
            constant.erase()

    def bind(self, emit: Emit) -> None:
        for waiting, formula in self._waiting:
            waiting.results[0].replace_all_uses_with(emit(formula))
            waiting.erase()


def _as_type(size: mlir.Value, kind: mlir.Type) -> mlir.Value:
    if str(kind) == "index":
        return arith.index_cast(kind, size)
    if kind == size.type:  # a separate operation, since the cast is erased
        return arith.addi(size, mlir.constant(0, str(kind)))
    return arith.trunci(kind, size)


def address_of(buffer: mlir.Value) -> mlir.Value:
    """Emit the pointer to the first element of a buffer at the insertion point."""
    base, offset, *_ = memref.ExtractStridedMetadataOp(buffer).results
    start = memref.extract_aligned_pointer_as_index(base)
    width = mlir.constant(memory.element_bytes(mlir.element_type(buffer.type)), "index")
    moved = arith.addi(start, arith.muli(offset, width))
    number = arith.index_cast(i64(), moved)
    return llvm.inttoptr(pointer_type(), number)


def dynamic_address_of(
    buffer: mlir.Value, shapes: Shapes, emit: Emit, begins: Mapping[mlir.Value, mlir.Value]
) -> mlir.Value:
    """``address_of`` if types contain the sizes of a sample: computes offsets from symbolic strides.

    ``begins`` maps buffers to known start addresses.
    """
    moves: list[tuple[mlir.Value, mlir.Value]] = []
    owner = mlir.defining(buffer)
    while owner is not None and mlir.name_of(owner) in ("memref.subview", *_SAME_PLACE):
        source = owner.operands[0]
        if mlir.name_of(owner) == "memref.subview":
            strides = [emit(stride) for stride in shapes.strides(source)]
            moves += zip(_offsets(owner, shapes, emit), strides, strict=True)
        buffer, owner = source, mlir.defining(source)
    start = begins[buffer] if buffer in begins else address_of(buffer)
    if not moves:
        return start
    offset = mlir.constant(0)
    for position, stride in moves:
        offset = memory.plus(offset, memory.times(position, stride))
    return memory.advance(start, memory.stored_type(mlir.element_type(buffer.type)), offset)


def _offsets(subview: mlir.Op, shapes: Shapes, emit: Emit) -> Iterator[mlir.Value]:
    """The static and dynamic offsets of a subview, as i64."""
    _, count, *_ = mlir.integers(subview.attributes["operandSegmentSizes"])
    dynamic = iter(list(subview.operands)[1 : 1 + count])
    for offset in mlir.integers(subview.attributes["static_offsets"]):
        if offset >= 0:
            yield emit(shapes.codes(offset))
        else:
            yield arith.index_cast(i64(), next(dynamic))

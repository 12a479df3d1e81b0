"""Padding that is a separate launch: a fill and a copy into its middle, in one pass over the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kcache_compiler.lower.conv.padding import copies, offsets_of
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, slice_function
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.lower.sort_scatter.loop_builder import loop
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, scf
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Check
from kcache_compiler.shapes.formula import Formula


@dataclass(frozen=True)
class PaddedCopy:
    """``image``, copied into ``padded``; other elements are ``value``, a constant.

    ``sizes`` are those of ``padded``, ``inner`` those of ``image``, which begins at ``offsets``; ``strides``
    are of ``image``. The last axis is contiguous in both.
    """

    padded: mlir.Value
    image: mlir.Value
    value: mlir.Op
    sizes: tuple[int, ...]
    inner: tuple[int, ...]
    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    checks: tuple[Check, ...] = ()

    @property
    def extent(self) -> Formula:
        return prod(self.sizes[:-1])

    @property
    def grain(self) -> Formula:
        return -(-SLICE_WORK // max(1, self.sizes[-1]))

    def merged(self) -> PaddedCopy:
        """The copy with trailing axes that have no padding as parts of the axis before them."""
        sizes, inner, offsets, strides = self.sizes, self.inner, self.offsets, self.strides
        while len(sizes) > 1 and sizes[-1] == inner[-1] and strides[-2] == sizes[-1]:
            sizes, inner, offsets = ((*each[:-2], each[-2] * sizes[-1]) for each in (sizes, inner, offsets))
            strides = (*strides[:-2], 1)
        return replace(self, sizes=sizes, inner=inner, offsets=offsets, strides=strides)


def read_padded_copy(generics: Sequence[mlir.Op], shapes: Shapes) -> PaddedCopy | None:
    """A fill and a copy of static sizes to a part of what it fills; None for other operations."""
    padding = read_padded_axes(generics, shapes)
    return None if padding is None else padding.merged()


def read_padded_axes(generics: Sequence[mlir.Op], shapes: Shapes) -> PaddedCopy | None:
    """``read_padded_copy`` with the axes that the buffers have."""
    if len(generics) != 2 or len(list(generics[1].operands)) != 2 or not copies(generics[1]):
        return None
    fill, (image, target) = generics[0], generics[1].operands
    value, padded, view = filled_with(fill), list(fill.operands)[-1], mlir.defining(target)
    if value is None or view is None or mlir.name_of(view) != "memref.subview" or view.operands[0] != padded:
        return None
    offsets, owner = offsets_of(view), mlir.defining(padded)
    allocated = memory.is_argument(padded) if owner is None else mlir.name_of(owner) == "memref.alloc"
    if offsets is None or not allocated or memory.root_of(image) == padded:
        return None
    is_complex = str(mlir.element_type(image.type)).startswith("complex")
    if shapes.sizes(image) != shapes.sizes(target) or is_complex:
        return None
    rank, strides = len(offsets), shapes.strides(image)
    words = [*shapes.sizes(padded), *shapes.sizes(target), *map(shapes.codes, offsets), *strides]
    known = [word for word in words if isinstance(word, int)]
    if len(known) != 4 * rank or rank == 0 or known[-1] != 1:
        return None
    sizes, inner, before, steps = (tuple(known[rank * n : rank * (n + 1)]) for n in range(4))
    return PaddedCopy(padded, image, value, sizes, inner, before, steps)


def filled_with(fill: mlir.Op) -> mlir.Op | None:
    """The constant of which all elements of the last operand of ``fill`` are copies; None of others."""
    body, maps = mlir.operations(mlir.block_of(fill)), mlir.indexing_maps(fill)
    if len(body) != 1 or not mlir.is_permutation(maps[-1]):
        return None
    if any("parallel" not in kind for kind in mlir.iterator_types(fill)):
        return None
    value = body[0].operands[0]
    arguments = list(mlir.block_of(fill).arguments)
    if value in arguments:
        value = fill.operands[arguments.index(value)]
    owner = mlir.defining(value)
    return owner if owner is not None and mlir.name_of(owner) == "arith.constant" else None


def with_padded_copies(launches: Sequence[Planned], shapes: Shapes) -> list[Planned]:
    """``launches``, in which a copy right after the fill around it has both as parts."""
    results: list[Planned] = []
    for planned in launches:
        before = results[-1] if results else None
        generics = [] if before is None else [*before.generics, *planned.generics]
        if before is not None and not before.parts and read_padded_copy(generics, shapes) is not None:
            results[-1] = replace(planned, generics=generics, parts=[before, planned])
        else:
            results.append(planned)
    return results


def outline_padded_copy(unit: Unit, generics: list[mlir.Op], name: str, shapes: Shapes) -> Outlined | None:
    """The slice function of a padded copy; None for other operations."""
    padding = read_padded_copy(generics, shapes)
    if padding is None:
        return None
    outlined = Outlined(name, padding, ("pad",), [padding.padded, padding.image], [])
    function, entry = slice_function(unit.module, outlined, {padding.padded})
    with mlir.at_end(entry):
        begin, end, _, padded, image = entry.arguments
        element = mlir.element_type(padding.padded.type)
        value = mlir.clone(padding.value).results[0]
        rows = _Rows(padding, Pointer(padded, element, []), Pointer(image, element, []), value)
        loop(begin, end, rows.write)
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


@dataclass(frozen=True)
class _Rows:
    """Emits rows of the padded buffer."""

    padding: PaddedCopy
    padded: Pointer
    image: Pointer
    value: mlir.Value

    def write(self, number: mlir.Value) -> None:
        """Emit row ``number``, counted through all axes but the last."""
        padding = self.padding
        row, offset, inside = number, mlir.constant(0), mlir.constant(1, "i1")
        for axis in reversed(range(len(padding.sizes) - 1)):
            size = mlir.constant(padding.sizes[axis])
            index = arith.subi(arith.remui(row, size), mlir.constant(padding.offsets[axis]))
            row = arith.divui(row, size)
            within = arith.cmpi(arith.CmpIPredicate.ult, index, mlir.constant(padding.inner[axis]))
            inside = arith.andi(inside, within)
            offset = memory.plus(offset, memory.times(index, mlir.constant(padding.strides[axis])))
        width, start, length = padding.sizes[-1], padding.offsets[-1], padding.inner[-1]
        target = memory.shift(self.padded, memory.times(number, mlir.constant(width)))
        target = Pointer(target, self.padded.element, [])
        choice = mlir.if_else(inside)
        with mlir.at_end(mlir.block_of(choice, 0)):
            source = Pointer(memory.shift(self.image, offset), self.image.element, [])
            self._fill(target, 0, start)

            def copy(column: mlir.Value) -> None:
                place = memory.plus(column, mlir.constant(start))
                memory.store(target, place, memory.load(source, column))

            loop(mlir.constant(0), mlir.constant(length), copy)
            self._fill(target, start + length, width)
            scf.yield_([])
        with mlir.at_end(mlir.block_of(choice, 1)):
            self._fill(target, 0, width)
            scf.yield_([])

    def _fill(self, target: Pointer, first: int, last: int) -> None:
        if first < last:
            bounds = (mlir.constant(first), mlir.constant(last))
            loop(*bounds, lambda column: memory.store(target, column, self.value))

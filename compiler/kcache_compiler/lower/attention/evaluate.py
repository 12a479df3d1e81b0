"""Elements of buffers that are not materialized, computed from the bodies of their producers."""

from __future__ import annotations

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir

#: The current index of each axis of the scores, or of each loop of an operation.
Coordinates = dict[int, mlir.Value]


class Evaluator:
    """Emits elements of buffers: ``known`` has computed elements, ``makers`` producers, both by buffer."""

    def __init__(
        self,
        makers: dict[mlir.Value, mlir.Op],
        views: dict[mlir.Value, Pointer],
        scalars: dict[mlir.Value, mlir.Value],
    ) -> None:
        self.makers = makers
        self.views = views
        self.scalars = scalars
        self.known: dict[mlir.Value, mlir.Value] = {}

    def element(self, buffer: mlir.Value, axes: list[mlir.AffineExpr], place: Coordinates) -> mlir.Value:
        """The element of ``buffer`` that the index expressions ``axes`` select at ``place``."""
        if buffer in self.known:
            return self.known[buffer]
        indices = [self._index(axis, place) for axis in axes]
        if buffer in self.makers:
            return self.result(self.makers[buffer], dict(enumerate(indices)))
        pointer = self.views[buffer]
        offset = mlir.constant(0)
        for index, step in zip(indices, pointer.steps, strict=True):
            if mlir.constant_int(index) != 0 and mlir.constant_int(step) != 0:
                offset = memory.plus(offset, memory.times(index, step))
        return memory.load(pointer, offset)

    def _index(self, expression: mlir.AffineExpr, place: Coordinates) -> mlir.Value:
        dim = mlir.plain_dim(expression)
        if dim is not None:
            return place[dim]
        return mlir.constant(mlir.constant_of(expression))

    def arguments(
        self, op: mlir.Op, place: Coordinates, values: dict[int, mlir.Value]
    ) -> dict[mlir.Value, mlir.Value]:
        """The values of the arguments of a body at ``place``; ``values`` overrides some, by number."""
        maps = mlir.indexing_maps(op)
        mapping: dict[mlir.Value, mlir.Value] = dict(self.scalars)
        for number, argument in enumerate(mlir.block_of(op).arguments):
            operand = op.operands[number]
            if number in values:
                mapping[argument] = values[number]
            elif not list(argument.uses):
                continue
            elif mlir.is_memref(operand.type):
                mapping[argument] = self.element(operand, list(maps[number].results), place)
            elif operand in mapping:
                mapping[argument] = mapping[operand]
            else:
                mapping[argument] = mlir.clone(mlir.definition(operand)).results[0]
        return mapping

    def result(
        self, op: mlir.Op, place: Coordinates, values: dict[int, mlir.Value] | None = None
    ) -> mlir.Value:
        """The value that the body of ``op`` yields at ``place``, the indices of its loops by number."""
        mapping = self.arguments(op, place, values or {})
        return memory.clone_body(mlir.block_of(op), mapping, self.views, place)[0]


def after(op: mlir.Op, value: mlir.Value, replaced: mlir.Value) -> mlir.Value:
    """The value that the body of ``op`` yields with ``value`` replaced by ``replaced``.

    The body must depend on nothing else.
    """
    mapping: dict[mlir.Value, mlir.Value] = {value: replaced}

    def mapped(operand: mlir.Value) -> mlir.Value:
        if operand not in mapping:
            owner = mlir.definition(operand)
            copy = mlir.clone(owner)
            for number, inner in enumerate(owner.operands):
                with mlir.before(copy):
                    copy.operands[number] = mapped(inner)
            mapping.update(zip(owner.results, copy.results, strict=True))
        return mapping[operand]

    return mapped(mlir.last(mlir.block_of(op)).operands[0])

"""Layouts of values: where each axis of a value is in the tensor that is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build


@dataclass(frozen=True)
class Form:
    """A tensor of ``rank`` axes that holds a value whose axis ``i`` is axis ``places[i]``; the others, which
    the value does not have, have one element.
    """

    places: tuple[int, ...]
    rank: int

    def sizes(self, sizes: Sequence[int]) -> list[int]:
        """The sizes of the tensor for a value of ``sizes``."""
        return self.spread(sizes, 1)

    def spread(self, numbers: Sequence[int], other: int) -> list[int]:
        """``numbers`` of the value's axes for each axis of the tensor, ``other`` for additional axes."""
        spread = [other] * self.rank
        for place, number in zip(self.places, numbers, strict=True):
            spread[place] = number
        return spread

    def order(self, sizes: Sequence[int]) -> list[int]:
        """The axes of the value that have several elements, in the order of the tensor."""
        wide = [axis for axis, size in enumerate(sizes) if size != 1]
        return sorted(wide, key=lambda axis: self.places[axis])

    @property
    def compact(self) -> Form:
        """The same order of axes without additional ones."""
        return ordered(sorted(range(len(self.places)), key=lambda axis: self.places[axis]))

    def type(self, kind: mlir.Type) -> mlir.Type:
        """The type of the tensor for a value of type ``kind``."""
        sizes = [size or 0 for size in mlir.sizes_of(kind)]
        return build.tensor_type(self.sizes(sizes), mlir.element_type(kind))


def plain(rank: int) -> Form:
    """The layout that a value of the program has."""
    return Form(tuple(range(rank)), rank)


def ordered(order: Sequence[int]) -> Form:
    """The layout with the axes of a value in this order."""
    return Form(tuple(order.index(axis) for axis in range(len(order))), len(order))


def channels_last(rank: int, axis: int) -> Form:
    """The layout with axis ``axis`` last, and the others in their order."""
    return ordered([*(each for each in range(rank) if each != axis), axis])


def converted(tensor: mlir.Value, sizes: Sequence[int], source: Form, target: Form) -> mlir.Value:
    """The tensor of a value of ``sizes`` in another form: a reshape if the order of elements is the same."""
    before, after = source.order(sizes), target.order(sizes)
    if before != after:
        tensor = build.reshape(tensor, [sizes[axis] for axis in before])
        tensor = build.transpose(tensor, [before.index(axis) for axis in after])
    return build.reshape(tensor, target.sizes(sizes))

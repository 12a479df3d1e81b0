"""The loop nest of one launch as a value: its axes, how each access strides over them, and the loop order.

Contiguous axes are innermost, and reductions are in the order of the program. No IR.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_compiler.shapes.formula import Check, Formula

#: Least number of scalar operations of a slice that is given to another thread.
SLICE_WORK = 32768


@dataclass(frozen=True)
class Axis:
    """One loop; ``sources`` are the iteration dimensions it stands for (several when merged)."""

    size: Formula
    parallel: bool
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Access:
    """How the nest accesses a buffer: the element stride of each axis of the nest, and a constant offset.

    ``dims``: for each axis of the buffer, the iteration dimension that alone indexes it and indexes no other
    axis; None if there is none. ``reads`` is false for a written access whose old elements are not read.
    """

    strides: tuple[Formula, ...]
    offset: Formula
    written: bool
    buffer: int = 0
    dims: tuple[int | None, ...] = ()
    reads: bool = True

    def with_strides(self, strides: tuple[Formula, ...]) -> Access:
        """The access with other strides; ``dataclasses.replace`` takes twice as long."""
        return Access(strides, self.offset, self.written, self.buffer, self.dims, self.reads)

    def of_buffer(self, buffer: int) -> Access:
        """The same access to another buffer."""
        return Access(self.strides, self.offset, self.written, buffer, self.dims, self.reads)


@dataclass(frozen=True)
class Nest:
    """Axes from outermost to innermost. The index of ``fixed`` dimensions is read, so they are never merged.

    ``checks`` are tested before the launch, because the sizes of arguments may disagree.
    """

    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    fixed: frozenset[int] = frozenset()
    checks: tuple[Check, ...] = ()

    def with_axes(self, positions: Sequence[int]) -> Nest:
        """The nest over the axes at ``positions``, in that order."""
        return replace(
            self,
            axes=tuple(self.axes[position] for position in positions),
            accesses=tuple(
                access.with_strides(tuple([access.strides[position] for position in positions]))
                for access in self.accesses
            ),
        )


#: Least number of elements of an operand that is too large for a first-level cache.
LARGE = 1 << 16


def order_axes(nest: Nest) -> Nest:
    """Parallel axes outside, reductions inside, except a vector axis, which goes innermost.

    Reductions keep their order, so that every result is summed in the order of the program.
    """
    parallel = [position for position, axis in enumerate(nest.axes) if axis.parallel]
    reductions = [position for position, axis in enumerate(nest.axes) if not axis.parallel]
    outputs = [access for access in nest.accesses if access.written]
    if outputs and all(isinstance(stride, int) for stride in outputs[0].strides):
        parallel.sort(key=lambda position: -abs(_as_int(outputs[0].strides[position])))
    vector = next((p for p in reversed(parallel) if reductions and _is_vector(nest, p)), None)
    if vector is None:
        return nest.with_axes(_reusing(nest, parallel) + reductions)
    return nest.with_axes([p for p in parallel if p != vector] + reductions + [vector])


def _reusing(nest: Nest, parallel: list[int]) -> list[int]:
    """``parallel`` with its last two axes exchanged if that reads a large operand of a product only once.

    The axes are rows and columns of the result: each operand depends on one of them.
    """
    sizes = [axis.size if isinstance(axis.size, int) else 0 for axis in nest.axes]
    inputs = [access for access in nest.accesses if not access.written]
    if len(parallel) < 2 or len(inputs) != 2 or 0 in sizes or all(axis.parallel for axis in nest.axes):
        return parallel
    *outer, first, second = parallel
    repeated = [access for access in inputs if access.strides[first] == 0 != access.strides[second]]
    others = [access for access in inputs if access.strides[second] == 0 != access.strides[first]]
    if len(repeated) != 1 or len(others) != 1:
        return parallel
    count, other = (
        math.prod(size for size, stride in zip(sizes, access.strides, strict=True) if stride != 0)
        for access in (*repeated, *others)
    )
    return [*outer, second, first] if count >= max(LARGE, 4 * other) else parallel


def _as_int(formula: Formula) -> int:
    return formula if isinstance(formula, int) else 0


def _is_vector(nest: Nest, position: int) -> bool:
    """All accesses step by one element or stay, the outputs step, and so does some input."""
    inputs = [access.strides[position] for access in nest.accesses if not access.written]
    outputs = [access.strides[position] for access in nest.accesses if access.written]
    return all(s == 1 for s in outputs) and all(s in (0, 1) for s in inputs) and 1 in inputs

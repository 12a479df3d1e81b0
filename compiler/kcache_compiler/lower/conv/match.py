"""Matches contractions over a sliding window, which are computed without packing, and classifies their axes.

``C[outer, jam, along] += A[outer, jam + tap, along + tap] * B[outer, jam, tap]``: the loop over the
contiguous axis of C is innermost, its taps are unrolled, and several iterations of ``jam``, which read the
same elements of A, are unrolled and jammed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.lower.gemm.match import GemmAxis, Groups, is_contraction
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Access, Check, Nest
from kcache_compiler.shapes.formula import Formula, add, apply, mul, product

#: Maximum number of unrolled products for one element, and for all jammed elements.
TAPS, JAMMED = 64, 256
#: Unroll factor of the jammed axis.
JAM = 4


@dataclass(frozen=True)
class Window:
    """A contraction by axes of its nest; ``taps`` are offsets in A and B, in program order.

    ``group`` is an axis whose results are adjacent blocks of those along ``along``.
    """

    nest: Nest
    outer: tuple[int, ...]
    jam: int | None
    along: int
    taps: tuple[tuple[Formula, Formula], ...]
    together: int
    group: int | None = None

    @property
    def groups(self) -> Groups:
        """The axes of results for an epilogue: outer ones as the batch, rows of jammed ones."""

        def axis(number: int) -> GemmAxis:
            a, b, c = (access.strides[number] for access in self.nest.accesses)
            size = self.nest.axes[number].size
            return GemmAxis(size, a, b, c, ((number, size),))

        jam = () if self.jam is None else (axis(self.jam),)
        columns = (self.along,) if self.group is None else (self.group, self.along)
        return Groups(tuple(map(axis, self.outer)), jam, tuple(map(axis, columns)), ())

    @property
    def extent(self) -> Formula:
        return product([self.nest.axes[axis].size for axis in self.outer])

    @property
    def work(self) -> Formula:
        inner_axes = (self.jam, self.group, self.along)
        inner = [self.nest.axes[axis].size for axis in inner_axes if axis is not None]
        return product([len(self.taps), *inner])

    @property
    def grain(self) -> Formula:
        return apply("ceildiv", 4 * SLICE_WORK, apply("max", 1, self.work))

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.nest.checks


def read_window(generic: mlir.Op, shapes: Shapes, most: int = TAPS) -> Window | None:
    """``generic`` as a window, or None if it has none or one of more than ``most`` products."""
    if not is_contraction(generic):
        return None
    nest, numbers = read_nest(generic, shapes)
    if numbers != [0, 1, 2] or nest.fixed or not _slides(nest):
        return None
    a, b, c = nest.accesses
    sizes = [axis.size for axis in nest.axes]
    parallel_axes = [number for number, axis in enumerate(nest.axes) if axis.parallel and axis.size != 1]
    summed = [number for number, axis in enumerate(nest.axes) if not axis.parallel]
    contiguous_axis = next((number for number in parallel_axes if c.strides[number] == 1), None)
    if contiguous_axis is None or any(c.strides[number] == 0 for number in parallel_axes):
        return None
    taps = _taps(nest, summed, most)
    if taps is None:
        return None
    other_axes = [number for number in parallel_axes if number != contiguous_axis]
    jam = _jam(other_axes, a, b, sizes)
    together = min(JAM, max(1, JAMMED // max(1, len(taps)))) if jam is not None else 1
    size = sizes[jam] if jam is not None else 1
    together = min(together, size) if isinstance(size, int) else together
    outer = tuple(number for number in other_axes if number != jam)
    return Window(nest, outer, jam, contiguous_axis, taps, together)


def _slides(nest: Nest) -> bool:
    """Whether an index of the first factor, and none of the second, is a sum of loops."""
    return None in nest.accesses[0].dims and None not in nest.accesses[1].dims


def _taps(nest: Nest, summed: list[int], most: int) -> tuple[tuple[Formula, Formula], ...] | None:
    sizes = [nest.axes[number].size for number in summed]
    static_sizes = [size for size in sizes if isinstance(size, int)]
    count = product(list(static_sizes))
    if len(static_sizes) != len(sizes) or not isinstance(count, int) or not 0 < count <= most:
        return None
    a, b = (_places(static_sizes, [access.strides[n] for n in summed]) for access in nest.accesses[:2])
    return tuple(zip(a, b, strict=True))


def _places(sizes: Sequence[int], strides: Sequence[Formula]) -> list[Formula]:
    """The offsets of all points of axes with these sizes and strides; the last axis is the innermost."""
    places: list[Formula] = [0]
    for size, stride in zip(sizes, strides, strict=True):
        places = [add(place, mul(step, stride)) for place in places for step in range(size)]
    return places


def _jam(axes: list[int], a: Access, b: Access, sizes: list[Formula]) -> int | None:
    """The axis to jam: one in which A is invariant, else one that only moves A's window."""

    def preference(number: int) -> tuple[bool, int]:
        size = sizes[number]
        return a.strides[number] == 0, -number if isinstance(size, int) else -len(sizes)

    shared = [number for number in axes if (a.strides[number] == 0) != (b.strides[number] == 0)]
    invariant = [number for number in shared if a.strides[number] == 0]
    return max(invariant, key=preference) if invariant else max(shared, default=None)

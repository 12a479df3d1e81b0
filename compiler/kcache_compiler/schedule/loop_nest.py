"""The loop nest of one launch as a value: its axes and how each access strides over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.size_relations import Check

#: Scalar operations below which a slice is not worth a thread.
SLICE_WORK = 32768


@dataclass(frozen=True)
class Axis:
    """One loop; ``sources`` are the iteration dimensions it stands for (several when merged)."""

    size: Formula
    parallel: bool
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Access:
    """A buffer as the nest walks over it: element strides by axis and a constant offset.

    ``dims`` says for each axis of the buffer which iteration dimension indexes it, alone and nowhere else;
    None where that is not so. ``reads`` is false of a written access whose old elements are not asked for.
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
    """Axes from outermost to innermost; ``fixed`` dimensions have their index read and never merge.

    ``checks`` are tested before the launch, as the sizes of arguments need not agree.
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

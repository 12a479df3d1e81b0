"""The loop nest of one launch as a value: its axes and how each access strides over them."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.shapes.formula import Formula, evaluate
from kcache_compiler.shapes.polynomial import settled

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


@dataclass(frozen=True)
class Check:
    """What must hold of sizes at run time for the accesses to stay in their buffers."""

    left: Formula
    right: Formula
    equal: bool

    @property
    def holds(self) -> bool:
        """It is known to hold for all sizes."""
        return settled(self.left, self.right, self.equal)

    def met(self, sizes: dict[str, int]) -> bool:
        """It holds of these sizes."""
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        return left == right if self.equal else left <= right


@dataclass(frozen=True)
class Nest:
    """Axes from outermost to innermost; ``fixed`` dimensions have their index read and never merge.

    ``checks`` are tested before the launch, as the sizes of arguments need not agree.
    """

    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    fixed: frozenset[int] = frozenset()
    checks: tuple[Check, ...] = ()

"""The prepared buffer of a kernel with bound arguments: its layout, and operands that are packed into it.

Prepared values are at multiples of 64 bytes, in order. The right operand of a contraction is stored as the
packed panels that the micro-kernel reads (``lower/gemm/prepack.py``), other values are row-major.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kcache_compiler.schedule.gemm_tiles import BYTES, Form
from kcache_compiler.types import DTYPE_BYTES, TensorType

#: Bytes to which the prepared buffer and its values are aligned.
ALIGNMENT = 64


@dataclass(frozen=True)
class PackedOperand:
    """Panels of B: ``facts`` are the table of ``FORM_prepack``, ``elements`` the packed elements.

    An element that is zero if all others are finite, else NaN, follows them where rows of A are in place.
    """

    form: Form
    facts: tuple[int, ...]
    elements: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elements * BYTES[self.form.packed] + (ALIGNMENT if self.form.in_place else 0)


@dataclass
class PreparedBuffer:
    """What the run program reads: its last arguments; ``packed`` are those that are panels, by number, and
    ``shared`` the numbers of those that several launches read as equal panels.
    """

    packed: dict[int, PackedOperand] = field(default_factory=dict[int, PackedOperand])
    shared: set[int] = field(default_factory=set[int])

    def layout(self, types: Sequence[TensorType]) -> tuple[list[int], int]:
        """The offset of each value in bytes, and the size of the buffer."""
        offsets: list[int] = []
        end = 0
        for number, kind in enumerate(types):
            offsets.append(end)
            packed = self.packed.get(number)
            size = bytes_of(kind) if packed is None else packed.size
            end += -(-size // ALIGNMENT) * ALIGNMENT
        return offsets, end


@dataclass(frozen=True)
class Pack:
    """Packs argument ``number`` of the prepare program, or its result of that number, to ``offset``."""

    is_argument: bool
    number: int
    operand: PackedOperand
    offset: int


@dataclass(frozen=True)
class PrepareTargets:
    """Where the prepare program writes: ``offsets`` are those of its results, None where one is packed."""

    offsets: tuple[int | None, ...]
    packs: tuple[Pack, ...]


def bytes_of(kind: TensorType) -> int:
    """The bytes of a tensor of static sizes."""
    return DTYPE_BYTES[kind.dtype] * math.prod(int(dim) for dim in kind.dims)

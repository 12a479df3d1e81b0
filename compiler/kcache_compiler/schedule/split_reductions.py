"""Splits a long reduction or scan into chunks for several threads if it has too few results for them.

One reduced axis is divided into chunks whose length follows only from sizes, never from the number of
threads. Each chunk has partial totals, which are combined in order afterwards. A scan then processes its
chunks again, each from the total of those before it. So results have the same bits with any number of
threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.schedule.loop_nest import SLICE_WORK, Access, Nest
from kcache_compiler.shapes.formula import Formula, add, apply, mul, product

#: Elements of a chunk, about.
CHUNK = 16384
#: Results from which on threads share those, and elements up to which one thread takes all.
RESULTS, SHORT = 16, 2 * SLICE_WORK
#: Bytes that totals of different chunks lie apart, at least: threads write them side by side.
LINE = 64


@dataclass(frozen=True)
class Totals:
    """The ``count`` results of one chunk in the place of ``buffer``: strides by axis, bytes of a chunk.

    Those of chunk 0 begin ``offset`` bytes into the memory that the launch's threads share.
    """

    buffer: int
    strides: tuple[int, ...]
    count: int
    bytes: int
    offset: Formula


@dataclass(frozen=True)
class Split:
    """Axis ``position`` of the loops in ``count`` chunks of ``length`` steps, the last one shorter.

    ``scan``: elements along the axis need the totals before them. ``totals_only``: the pass of a scan that
    stores nothing else; ``begun``: totals hold what comes before, and are not cleared.
    """

    position: int
    length: Formula
    count: Formula
    totals: tuple[Totals, ...]
    scan: bool = False
    totals_only: bool = False
    begun: bool = False

    @property
    def shared_bytes(self) -> Formula:
        last = self.totals[-1]
        return add(last.offset, mul(self.count, last.bytes))

    def of(self, buffer: int) -> Totals | None:
        return next((total for total in self.totals if total.buffer == buffer), None)


def needs_chunks(nest: Nest) -> bool:
    """Whether a reduction has few results and many elements, or may have: threads share its elements."""
    results = product([axis.size for axis in nest.axes if axis.parallel])
    reduced = product([axis.size for axis in nest.axes if not axis.parallel])
    if all(axis.parallel for axis in nest.axes) or not isinstance(results, int) or results >= RESULTS:
        return False
    return not isinstance(reduced, int) or results * reduced >= SHORT


def split(
    nests: Sequence[Nest],
    accumulators: Mapping[int, tuple[int, ...]],
    widths: Mapping[int, int],
    scan: bool,
    common: int | None = None,
    private: Collection[int] = (),
) -> Split | None:
    """How to cut the loops of ``nests``, whose first ``common`` axes are alike; None: all are.

    ``accumulators`` are those accesses, by nest, whose totals can be combined; ``widths`` bytes by buffer.
    Buffers that are ``private`` hold nothing from one step along the common axes to the next.
    """
    axes = nests[0].axes[:common]
    reduced = [
        position
        for position in range(len(axes))
        if any(not nests[number].axes[position].parallel for number in accumulators)
    ]
    if not reduced:
        return None
    position = max(reduced, key=lambda axis: (_weight(axes[axis].size), -axis))
    results: list[Totals] = []
    offset: Formula = 0
    others: Formula = 1
    for size in dict.fromkeys(_around(nest, position) for nest in nests):
        others = apply("max", others, size)
    length = apply("ceildiv", CHUNK, others)
    count = apply("ceildiv", axes[position].size, length)
    if isinstance(count, int) and count < 2:
        return None
    for number, nest in enumerate(nests):
        for place, access in enumerate(nest.accesses):
            if not access.written or access.buffer in private:
                continue
            if access.strides[position] != 0:
                if not _apart(nest, access):
                    return None
                continue
            if place not in accumulators.get(number, ()) or _uses(nests, access.buffer) != 1:
                return None
            laid = _laid_out(nest, access)
            if laid is None:
                return None
            strides, size = laid
            room = -(-size * widths[access.buffer] // LINE) * LINE
            results.append(Totals(access.buffer, strides, size, room, offset))
            offset = add(offset, mul(count, room))
    return Split(position, length, count, tuple(results), scan) if results else None


def _around(nest: Nest, position: int) -> Formula:
    return product([axis.size for number, axis in enumerate(nest.axes) if number != position])


def _apart(nest: Nest, access: Access) -> bool:
    """Whether no two iterations touch one element: each index is one dimension, forward or backward."""
    walking = {
        source
        for axis, step in zip(nest.axes, access.strides, strict=True)
        if step != 0
        for source in axis.sources
    }
    return access.dims.count(None) <= 1 and len(walking.difference(access.dims)) <= 1


def _weight(size: Formula) -> int:
    """Open sizes are taken for large ones."""
    return size if isinstance(size, int) else 1 << 62


def _uses(nests: Sequence[Nest], buffer: int) -> int:
    return sum(access.buffer == buffer for nest in nests for access in nest.accesses)


def _laid_out(nest: Nest, access: Access) -> tuple[tuple[int, ...], int] | None:
    """Strides of an accumulator whose elements lie row by row, and how many there are."""
    strides: list[int] = []
    total = 1
    for axis, stride in zip(reversed(nest.axes), reversed(access.strides), strict=True):
        if stride == 0:
            strides.insert(0, 0)
            continue
        if not isinstance(axis.size, int):
            return None
        strides.insert(0, total)
        total *= axis.size
    return tuple(strides), total

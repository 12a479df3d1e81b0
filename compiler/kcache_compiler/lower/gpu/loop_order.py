"""The loops of a group for a GPU: what threads share outermost, and neighbours next to each other.

The same groups as on a CPU, in another order: all parallel axes first, the one that memory runs along last of
them, then the reductions in the order of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcache_compiler.schedule.groups import Group, Subject
from kcache_compiler.schedule.loop_nest import Nest
from kcache_compiler.schedule.loops import Buffer, Fused, Statement, loops

#: Asks for the two axes of a transposition, whatever its elements.
TURNED = 256


def arrange(
    group: Group, subjects: Sequence[Subject], buffers: Mapping[int, Buffer], vector_bytes: int = 16
) -> Fused:
    """The loops of a group. ``shared`` axes are the points that threads or blocks take one each."""
    del vector_bytes
    fused = loops(group, subjects, buffers, vector_bytes=TURNED)
    fused = replace(fused, segments=_joined(fused))
    segments = [_parallel_first(segment, fused.shared) for segment in fused.segments]
    points = fused.shared if len(segments) > 1 else len(parallel_axes(segments[0], 0))
    return replace(fused, segments=tuple(segments), shared=points)


def _joined(fused: Fused) -> tuple[tuple[Statement, ...], ...]:
    """Segments without loops of their own follow each other in one body."""
    if any(len(statement.nest.axes) != fused.shared for statement in fused.statements):
        return fused.segments
    return (tuple(fused.statements),)


def parallel_axes(segment: tuple[Statement, ...], shared: int) -> list[int]:
    """Positions after the ``shared`` ones that are parallel for every statement of the segment."""
    nests = [one.nest for one in segment]
    count = len(nests[0].axes)
    return [p for p in range(shared, count) if all(nest.axes[p].parallel for nest in nests)]


def _parallel_first(segment: tuple[Statement, ...], shared: int) -> tuple[Statement, ...]:
    parallel = parallel_axes(segment, shared)
    count = len(segment[0].nest.axes)
    rest = [p for p in range(shared, count) if p not in parallel]
    order = [*range(shared), *parallel, *rest]
    return tuple(Statement(one.number, _ordered(one.nest, order)) for one in segment)


def _ordered(nest: Nest, order: list[int]) -> Nest:
    return replace(
        nest,
        axes=tuple(nest.axes[position] for position in order),
        accesses=tuple(
            replace(access, strides=tuple(access.strides[position] for position in order))
            for access in nest.accesses
        ),
    )

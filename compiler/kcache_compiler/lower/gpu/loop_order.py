"""The loop order of a group for a GPU: parallel axes outermost, the contiguous one last of them.

The groups are those of a CPU; reductions follow the parallel axes in program order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcache_compiler.schedule.groups import Group, Subject
from kcache_compiler.schedule.loops import Buffer, Fused, Statement, loops

#: A vector size for which the axes of a transposition are found for every element type.
TURNED = 256


def arrange(
    group: Group, subjects: Sequence[Subject], buffers: Mapping[int, Buffer], vector_bytes: int = 16
) -> Fused:
    """The loops of a group. The ``shared`` axes are distributed over threads or blocks."""
    del vector_bytes
    fused = loops(group, subjects, buffers, vector_bytes=TURNED)
    fused = replace(fused, segments=_joined(fused))
    segments = [_parallel_first(segment, fused.shared) for segment in fused.segments]
    points = fused.shared if len(segments) > 1 else len(parallel_axes(segments[0], 0))
    return replace(fused, segments=tuple(segments), shared=points)


def _joined(fused: Fused) -> tuple[tuple[Statement, ...], ...]:
    """Merge segments without inner loops into one body."""
    if any(len(statement.nest.axes) != fused.shared for statement in fused.statements):
        return fused.segments
    return (tuple(fused.statements),)


def parallel_axes(segment: tuple[Statement, ...], shared: int) -> list[int]:
    """Positions after the ``shared`` ones that are parallel for every statement of the segment."""
    nests = [statement.nest for statement in segment]
    count = len(nests[0].axes)
    return [p for p in range(shared, count) if all(nest.axes[p].parallel for nest in nests)]


def _parallel_first(segment: tuple[Statement, ...], shared: int) -> tuple[Statement, ...]:
    parallel = parallel_axes(segment, shared)
    count = len(segment[0].nest.axes)
    reductions = [p for p in range(shared, count) if p not in parallel]
    order = [*range(shared), *parallel, *reductions]
    return tuple(Statement(statement.number, statement.nest.with_axes(order)) for statement in segment)

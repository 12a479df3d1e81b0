"""The plain schedule: loop order and merging of axes, one nest at a time, no tiles.

Nothing here touches IR: a nest is a value, and every step gives a new one. Tiling and vector
code will take this place over.
"""

from __future__ import annotations

from dataclasses import replace

from kcache_compiler.codegen.formula import Formula, mul
from kcache_compiler.codegen.nest import Axis, Nest
from kcache_compiler.codegen.polynomial import settled


def schedule(nest: Nest) -> Nest:
    """Drop unit axes, put a contiguous axis innermost, merge what is contiguous."""
    return merge_axes(order_axes(drop_unit_axes(nest)))


def _keep(nest: Nest, positions: list[int]) -> Nest:
    return replace(
        nest,
        axes=tuple(nest.axes[position] for position in positions),
        accesses=tuple(
            replace(access, strides=tuple(access.strides[position] for position in positions))
            for access in nest.accesses
        ),
    )


def drop_unit_axes(nest: Nest) -> Nest:
    return _keep(nest, [position for position, axis in enumerate(nest.axes) if axis.size != 1])


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
        return _keep(nest, parallel + reductions)
    return _keep(nest, [p for p in parallel if p != vector] + reductions + [vector])


def _as_int(formula: Formula) -> int:
    return formula if isinstance(formula, int) else 0


def _is_vector(nest: Nest, position: int) -> bool:
    """All accesses step by one element or stay, the outputs step, and so does some input."""
    inputs = [access.strides[position] for access in nest.accesses if not access.written]
    outputs = [access.strides[position] for access in nest.accesses if access.written]
    return all(s == 1 for s in outputs) and all(s in (0, 1) for s in inputs) and 1 in inputs


def merge_axes(nest: Nest) -> Nest:
    """Make one axis of two neighbours of a kind which every access walks as one."""
    position = 0
    while position + 1 < len(nest.axes):
        if _mergeable(nest, position):
            nest = _merge(nest, position)
        else:
            position += 1
    return nest


def _mergeable(nest: Nest, position: int) -> bool:
    outer, inner = nest.axes[position], nest.axes[position + 1]
    if outer.parallel != inner.parallel or nest.fixed & {*outer.sources, *inner.sources}:
        return False
    return all(
        settled(access.strides[position], mul(inner.size, access.strides[position + 1]), equal=True)
        for access in nest.accesses
    )


def _merge(nest: Nest, position: int) -> Nest:
    outer, inner = nest.axes[position], nest.axes[position + 1]
    merged = Axis(mul(outer.size, inner.size), outer.parallel, outer.sources + inner.sources)
    axes = (*nest.axes[:position], merged, *nest.axes[position + 2 :])
    accesses = tuple(
        replace(access, strides=access.strides[:position] + access.strides[position + 1 :])
        for access in nest.accesses
    )
    return replace(nest, axes=axes, accesses=accesses)

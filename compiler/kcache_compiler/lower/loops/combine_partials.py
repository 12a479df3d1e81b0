"""The launches of a long reduction or scan: reduce each chunk, combine the totals, rescan the chunks.

The launch between the passes over chunks combines the totals of the chunks in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.combiners import Combiner
from kcache_compiler.lower.loops.launch import Outlined, outline, slice_function
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.lower.loops.selections import Chosen, Combining
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func, scf
from kcache_compiler.passes.fast_math import COMBINERS
from kcache_compiler.schedule.loop_nest import Access, Check, Nest
from kcache_compiler.schedule.loops import Fused
from kcache_compiler.schedule.split_reductions import Totals
from kcache_compiler.shapes.formula import Formula


def outline_chunks(
    module: mlir.Module, name: str, planned: Planned, shapes: Shapes, strict: bool
) -> Outlined:
    """Append the slice functions ``name``, ``name_1``, ``name_2`` to ``module``."""
    fused, split = planned.fused, planned.fused.split
    assert split is not None
    arguments = (planned.codes, planned.buffers, shapes, planned.combiners)
    if not split.scan:
        launch = outline(module, name, fused, *arguments)
        launch.after = [outline_combination(module, f"{name}_1", fused, planned.combiners, planned.buffers)]
        return launch
    relaxed = [] if strict else _allow_reassociation(planned)
    launch = outline(module, name, replace(fused, split=replace(split, totals_only=True)), *arguments)
    for operation, flags in relaxed:
        operation.attributes["fastmath"] = flags
    second_pass = outline(module, f"{name}_2", replace(fused, split=replace(split, begun=True)), *arguments)
    launch.after = [
        outline_combination(module, f"{name}_1", fused, planned.combiners, planned.buffers),
        second_pass,
    ]
    return launch


def _allow_reassociation(planned: Planned) -> list[tuple[mlir.Op, mlir.Attribute]]:
    """Allow reassociation of totals, since nothing else is stored; returns operations and previous flags."""
    flags: list[tuple[mlir.Op, mlir.Attribute]] = []
    for combiner in planned.combiners.values():
        if isinstance(combiner, Combiner) and combiner.name in COMBINERS:
            flags.append((combiner.operation, combiner.operation.attributes["fastmath"]))
            combiner.operation.attributes["fastmath"] = mlir.attribute(COMBINERS[combiner.name])
    return flags


@dataclass(frozen=True)
class Combination:
    """The loop extent of the launch that combines totals: one step, run by the calling thread."""

    extent: Formula = 1
    grain: Formula = 1
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class _Place:
    """A result element at ``offset``.

    Its totals are at element ``place`` from ``first``, with a stride of ``apart`` bytes per chunk.
    """

    result: Pointer
    offset: mlir.Value
    first: mlir.Value
    place: int
    apart: int

    def total(self, chunk: mlir.Value) -> Pointer:
        moved = memory.times(chunk, mlir.constant(self.apart))
        return Pointer(memory.advance(self.first, mlir.type_of("i8"), moved), self.result.element, [])


def outline_combination(
    module: mlir.Module,
    name: str,
    fused: Fused,
    combiners: Mapping[int, Combining],
    buffers: Sequence[mlir.Value],
) -> Outlined:
    """The slice function ``name`` that combines the totals of ``fused``, in the order of the chunks.

    ``combiners`` are by buffer. For a scan, the total of each chunk is replaced by the exclusive prefix.
    """
    split = fused.split
    assert split is not None
    passed = list(dict.fromkeys(buffers[total.buffer] for total in split.totals))
    names = tuple(dict.fromkeys(combiners[total.buffer].name for total in split.totals))
    outlined = Outlined(name, Combination(), names, passed, [], shared=split.shared_bytes)
    function, entry = slice_function(module, outlined, set(passed))
    with mlir.at_end(entry):
        arguments = list(entry.arguments)
        cache: dict[Formula, mlir.Value] = {}

        def value(formula: Formula) -> mlir.Value:
            return memory.emit_formula(formula, arguments[2], cache)

        count = value(split.count)
        for group in _together(split.totals, combiners):
            places_by_total: list[list[_Place]] = []
            for total in group:
                buffer = buffers[total.buffer]
                result = Pointer(arguments[3 + passed.index(buffer)], mlir.element_type(buffer.type), [])
                first = memory.advance(arguments[-1], mlir.type_of("i8"), value(total.offset))
                places_by_total.append(_places(fused, total, result, first, value))
            for places in zip(*places_by_total, strict=True):
                _combine(places, count, combiners[group[0].buffer], split.scan)
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


def _together(totals: Sequence[Totals], combiners: Mapping[int, Combining]) -> list[list[Totals]]:
    """Groups of totals that are combined together: the results of one selection, or a single total."""
    groups: list[list[Totals]] = []
    for total in totals:
        combiner = combiners[total.buffer]
        if not isinstance(combiner, Chosen):
            groups.append([total])
        elif combiner.number == 0:
            by_number = {
                chosen.number: member
                for member in totals
                if isinstance(chosen := combiners[member.buffer], Chosen)
                and chosen.selection is combiner.selection
            }
            groups.append([by_number[number] for number in sorted(by_number)])
    return groups


def _places(
    fused: Fused,
    totals: Totals,
    result: Pointer,
    first: mlir.Value,
    value: Callable[[Formula], mlir.Value],
) -> list[_Place]:
    nest, access = _accumulator(fused, totals.buffer)
    sizes = {p: axis.size for p, axis in enumerate(nest.axes) if access.strides[p] != 0}
    places: list[_Place] = []
    for counters in _counters(list(sizes.items())):
        offset, place = value(access.offset), 0
        for position, counter in counters:
            step = memory.times(mlir.constant(counter), value(access.strides[position]))
            offset = memory.plus(offset, step)
            place += counter * totals.strides[position]
        places.append(_Place(result, offset, first, place, totals.bytes))
    return places


def _accumulator(fused: Fused, buffer: int) -> tuple[Nest, Access]:
    return next(
        (statement.nest, access)
        for statement in fused.statements
        for access in statement.nest.accesses
        if access.buffer == buffer
    )


def _counters(axes: list[tuple[int, Formula]]) -> list[list[tuple[int, int]]]:
    """All (position, counter) tuples of the iteration space of ``axes``."""
    counters: list[list[tuple[int, int]]] = [[]]
    for position, size in axes:
        assert isinstance(size, int)
        counters = [[*prefix, (position, counter)] for prefix in counters for counter in range(size)]
    return counters


def _combine(places: Sequence[_Place], count: mlir.Value, combiner: Combining, scan: bool) -> None:
    """Combine the totals of one result, or of the results of a selection, over all chunks."""
    starts = [memory.load(place.result, place.offset) for place in places]
    carried = [memory.to_carried(start) for start in starts]
    loop = mlir.for_loop((mlir.constant(0), count), mlir.constant(1), carried)
    block = mlir.block_of(loop)
    with mlir.at_end(block):
        chunk, *raw = list(block.arguments)
        old_values = [
            memory.from_carried(value, start.type) for value, start in zip(raw, starts, strict=True)
        ]
        totals: list[mlir.Value] = []
        for place, old_value in zip(places, old_values, strict=True):
            pointer = place.total(chunk)
            totals.append(memory.load(pointer, mlir.constant(place.place)))
            if scan:
                memory.store(pointer, mlir.constant(place.place), old_value)
        if isinstance(combiner, Chosen):
            results = combiner.selection.combine(old_values, totals)
        else:
            results = [combiner(old_values[0], totals[0])]
        scf.yield_([memory.to_carried(result) for result in results])
    for place, result, start in zip(places, loop.results, starts, strict=True):
        memory.store(place.result, place.offset, memory.from_carried(result, start.type))

"""The launch between the passes over chunks: their totals become one, in the order of the chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.launch import Outlined, slice_function
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.loops.selections import Chosen, Combining
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func, scf
from kcache_compiler.schedule.loop_nest import Access, Check, Nest
from kcache_compiler.schedule.loops import Fused
from kcache_compiler.schedule.split_reductions import Totals
from kcache_compiler.shapes.formula import Formula


@dataclass(frozen=True)
class Combination:
    """The launch that makes one of the totals of all chunks: few steps, for the calling thread."""

    extent: Formula = 1
    grain: Formula = 1
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class _Place:
    """One result at ``offset``; its totals at element ``place`` from ``first``, ``apart`` bytes a chunk."""

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

    ``combiners`` by buffer. Totals of a scan become what comes before each chunk.
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
        for together in _together(split.totals, combiners):
            found: list[list[_Place]] = []
            for one in together:
                buffer = buffers[one.buffer]
                result = Pointer(arguments[3 + passed.index(buffer)], mlir.element_type(buffer.type), [])
                first = memory.advance(arguments[-1], mlir.type_of("i8"), value(one.offset))
                found.append(_places(fused, one, result, first, value))
            for places in zip(*found, strict=True):
                _combine(places, count, combiners[together[0].buffer], split.scan)
        func.return_([mlir.constant(0, "i32")])
    function.verify()
    return outlined


def _together(totals: Sequence[Totals], combiners: Mapping[int, Combining]) -> list[list[Totals]]:
    """Totals that are combined at once: those of one selection, in its order, others each alone."""
    found: list[list[Totals]] = []
    for one in totals:
        combiner = combiners[one.buffer]
        if not isinstance(combiner, Chosen):
            found.append([one])
        elif combiner.number == 0:
            own = {
                other.number: total
                for total in totals
                if isinstance(other := combiners[total.buffer], Chosen)
                and other.selection is combiner.selection
            }
            found.append([own[number] for number in sorted(own)])
    return found


def _places(
    fused: Fused,
    totals: Totals,
    result: Pointer,
    first: mlir.Value,
    value: Callable[[Formula], mlir.Value],
) -> list[_Place]:
    nest, access = _accumulator(fused, totals.buffer)
    sizes = {p: axis.size for p, axis in enumerate(nest.axes) if access.strides[p] != 0}
    found: list[_Place] = []
    for counters in _counters(list(sizes.items())):
        offset, place = value(access.offset), 0
        for position, counter in counters:
            step = memory.times(mlir.constant(counter), value(access.strides[position]))
            offset = memory.plus(offset, step)
            place += counter * totals.strides[position]
        found.append(_Place(result, offset, first, place, totals.bytes))
    return found


def _accumulator(fused: Fused, buffer: int) -> tuple[Nest, Access]:
    return next(
        (statement.nest, access)
        for statement in fused.statements
        for access in statement.nest.accesses
        if access.buffer == buffer
    )


def _counters(axes: list[tuple[int, Formula]]) -> list[list[tuple[int, int]]]:
    """All counters of a few axes of few elements."""
    found: list[list[tuple[int, int]]] = [[]]
    for position, size in axes:
        assert isinstance(size, int)
        found = [[*one, (position, counter)] for one in found for counter in range(size)]
    return found


def _combine(places: Sequence[_Place], count: mlir.Value, combiner: Combining, scan: bool) -> None:
    """One result, or those of a selection, over all chunks."""
    starts = [memory.load(place.result, place.offset) for place in places]
    carried = [memory.to_carried(start) for start in starts]
    loop = mlir.for_loop((mlir.constant(0), count), mlir.constant(1), carried)
    block = mlir.block_of(loop)
    with mlir.at_end(block):
        chunk, *raw = list(block.arguments)
        before = [memory.from_carried(one, start.type) for one, start in zip(raw, starts, strict=True)]
        totals: list[mlir.Value] = []
        for one, old in zip(places, before, strict=True):
            here = one.total(chunk)
            totals.append(memory.load(here, mlir.constant(one.place)))
            if scan:
                memory.store(here, mlir.constant(one.place), old)
        if isinstance(combiner, Chosen):
            results = combiner.selection.combine(before, totals)
        else:
            results = [combiner(before[0], totals[0])]
        scf.yield_([memory.to_carried(result) for result in results])
    for one, raw, start in zip(places, loop.results, starts, strict=True):
        memory.store(one.result, one.offset, memory.from_carried(raw, start.type))

"""The launch between the passes over chunks: their totals become one, in the order of the chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.codegen import memory, mlir
from kcache_compiler.codegen.combiners import Combiner
from kcache_compiler.codegen.formula import Formula
from kcache_compiler.codegen.launch import Outlined, slice_function
from kcache_compiler.codegen.memory import Pointer
from kcache_compiler.codegen.nest import Access, Check, Nest
from kcache_compiler.schedule.loops import Fused
from kcache_compiler.schedule.split import Totals


@dataclass(frozen=True)
class Combination:
    """The launch that makes one of the totals of all chunks: few steps, for the calling thread."""

    extent: Formula = 1
    grain: Formula = 1
    checks: tuple[Check, ...] = ()


def outline_combination(
    module: mlir.Module,
    name: str,
    fused: Fused,
    combiners: Mapping[int, Combiner],
    buffers: Sequence[mlir.Value],
) -> Outlined:
    """The slice function ``name`` that combines the totals of ``fused``, in the order of the chunks.

    ``combiners`` by buffer. Totals of a scan become what comes before each chunk.
    """
    split = fused.split
    assert split is not None
    passed = list(dict.fromkeys(buffers[one.buffer] for one in split.totals))
    names = tuple(dict.fromkeys(combiners[one.buffer].name for one in split.totals))
    outlined = Outlined(name, Combination(), names, passed, [], shared=split.shared_bytes)
    function, entry = slice_function(module, outlined, set(passed))
    with mlir.at_end(entry):
        arguments = list(entry.arguments)
        cache: dict[Formula, mlir.Value] = {}

        def value(formula: Formula) -> mlir.Value:
            return memory.emit_formula(formula, arguments[2], cache)

        count = value(split.count)
        for one in split.totals:
            buffer = buffers[one.buffer]
            element = buffer.type.element_type
            result = Pointer(arguments[3 + passed.index(buffer)], element, [])
            first = memory.advance(arguments[-1], mlir.type_of("i8"), value(one.offset))
            nest, access = _accumulator(fused, one.buffer)
            sizes = {p: axis.size for p, axis in enumerate(nest.axes) if access.strides[p] != 0}
            for counters in _places(list(sizes.items())):
                offset, place = value(access.offset), 0
                for position, counter in counters:
                    step = memory.times(mlir.constant(counter), value(access.strides[position]))
                    offset = memory.plus(offset, step)
                    place += counter * one.strides[position]
                _combine(one, place, result, offset, first, count, combiners[one.buffer], split.scan)
        mlir.create("func.return", [mlir.constant(0, "i32")])
    function.verify()
    return outlined


def _accumulator(fused: Fused, buffer: int) -> tuple[Nest, Access]:
    return next(
        (statement.nest, access)
        for statement in fused.statements
        for access in statement.nest.accesses
        if access.buffer == buffer
    )


def _places(axes: list[tuple[int, Formula]]) -> list[list[tuple[int, int]]]:
    """All counters of a few axes of few elements."""
    found: list[list[tuple[int, int]]] = [[]]
    for position, size in axes:
        assert isinstance(size, int)
        found = [[*one, (position, counter)] for one in found for counter in range(size)]
    return found


def _combine(
    totals: Totals,
    place: int,
    result: Pointer,
    offset: mlir.Value,
    first: mlir.Value,
    count: mlir.Value,
    combiner: Combiner,
    scan: bool,
) -> None:
    start = memory.load(result, offset)
    loop = mlir.create(
        "scf.for",
        [mlir.constant(0), count, mlir.constant(1), memory.to_carried(start)],
        [memory.to_carried(start).type],
        regions=1,
    )
    block = mlir.new_block(loop, 0, [memory.i64(), loop.results[0].type])
    with mlir.at_end(block):
        chunk, raw = list(block.arguments)
        before = memory.from_carried(raw, start.type)
        moved = memory.times(chunk, mlir.constant(totals.bytes))
        here = Pointer(memory.advance(first, mlir.type_of("i8"), moved), result.element, [])
        total = memory.load(here, mlir.constant(place))
        if scan:
            memory.store(here, mlir.constant(place), before)
        mlir.create("scf.yield", [memory.to_carried(combiner(before, total))])
    memory.store(result, offset, memory.from_carried(loop.results[0], start.type))

"""Outlines planned loops as launches: chooses the form of the code, and shares it between equal groups.

Layers of a network do the same to different buffers. A group that equals an earlier one, except for its
buffers and scalars, calls the functions of that one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.attention.operands import Gathered
from kcache_compiler.lower.attention.outline import outline_attention
from kcache_compiler.lower.conv.channels_last import outline_channels_last
from kcache_compiler.lower.conv.channels_last_match import read_group
from kcache_compiler.lower.conv.depthwise import is_window, outline_window
from kcache_compiler.lower.conv.padded_copy import outline_padded_copy, read_padded_copy
from kcache_compiler.lower.conv.pooling import outline_pooling
from kcache_compiler.lower.conv.pooling_match import read_pool
from kcache_compiler.lower.gemm.match import packable
from kcache_compiler.lower.gemm.outline import outline_contraction
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.combine_partials import outline_chunks
from kcache_compiler.lower.loops.launch import Outlined, outline
from kcache_compiler.lower.loops.masked_remainder import ended
from kcache_compiler.lower.loops.planned_launches import Planned
from kcache_compiler.lower.loops.streaming_stores import Results, streamed
from kcache_compiler.lower.sort_scatter.outline import outline_marker
from kcache_compiler.lower.subkernels.outline import outline_subkernel
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.mark import MARK
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.shapes.recovery import Ambiguous

#: The number of the attention in the mark of an operation.
_MARK_NUMBER = re.compile(rf'(?<={re.escape(MARK)} = ")\d+ ')
#: The first element of a part of a buffer, in its type.
_OFFSET = re.compile(r"(?<=, offset: )\d+")


@dataclass
class Written:
    """The result of outlining: launches with the operations that each replaces, and unused allocations."""

    launches: list[tuple[list[mlir.Op], Outlined]]
    spared: list[mlir.Op]


def write_planned(unit: Unit, planned: Planned, number: int, shapes: Shapes, results: Results) -> Written:
    """Write the slice functions of ``planned``; its first launch has this number."""
    choices = parse_choices(unit.options.schedule)
    written = Written([], [])
    padded = outline_padded_copy(unit, planned.generics, f"launch_{number}", shapes)
    if padded is not None:
        return Written([(planned.generics, padded)], [])
    pooling = None
    if planned.fused.split is None and choices.group_limits.joins:
        pooling = outline_pooling(unit, planned.generics, f"launch_{number}", shapes)
    if pooling is not None:
        return Written([(planned.generics, pooling)], pooling.spared)
    if choices.contraction in ("auto", "windows") and planned.fused.split is None:
        window = outline_channels_last(unit, planned.generics, f"launch_{number}", shapes)
        if window is not None:
            return Written([(planned.generics, window)], window.spared)
    if choices.contraction != "windows" or not is_window(planned.generics, shapes):
        contraction = outline_contraction(unit, planned.generics, f"launch_{number}", shapes)
        if contraction is not None:
            return Written([(planned.generics, contraction)], contraction.spared)
    if planned.fused.split is None and choices.contraction != "loops":
        window = outline_window(unit, planned.generics, f"launch_{number}", shapes)
        if window is not None:
            return Written([(planned.generics, window)], window.spared)
    for part in planned.parts or [planned]:
        name = f"launch_{number + len(written.launches)}"
        marker = outline_subkernel(unit, part.generics[0], name)
        marker = marker or outline_marker(unit, part.generics[0], name, shapes)
        if marker is not None:
            written.launches.append((part.generics, marker))
            continue
        written.launches.append((part.generics, _write_loops(unit, part, name, shapes, results)))
        written.spared += part.spared
    return written


def is_tried(unit: Unit, planned: Planned, shapes: Shapes) -> bool:
    """Whether ``write_planned`` tries ``outline_contraction``: no other form of code comes before it."""
    choices, generics = parse_choices(unit.options.schedule), planned.generics
    if read_padded_copy(generics, shapes) is not None:
        return False
    if planned.fused.split is None:
        if choices.group_limits.joins and read_pool(generics, shapes, unit.target.vector_bytes) is not None:
            return False
        windows = choices.contraction in ("auto", "windows")
        if windows and read_group(generics, shapes, unit.target.vector_bytes) is not None:
            return False
    return choices.contraction != "windows" or not is_window(generics, shapes)


def _write_loops(unit: Unit, planned: Planned, name: str, shapes: Shapes, results: Results) -> Outlined:
    choices = parse_choices(unit.options.schedule)
    if planned.fused.split is not None:
        if planned.fused.shared:
            planned.fused = ended(planned.fused, planned.codes, planned.buffers, unit.target)
        return outline_chunks(unit.module, name, planned, shapes, unit.options.numerics == "strict")
    unread = {buffer for buffer in planned.buffers if results.unread(buffer, planned.generics)}
    fused = streamed(planned.fused, planned.buffers, shapes, unit.target, unread, choices.stream_bytes)
    fused = ended(fused, planned.codes, planned.buffers, unit.target)
    whole = not fused.is_row and choices.is_whole(fused.extent, fused.grain)
    fused = replace(fused, together=choices.rows_together, turns=choices.vectors_a_turn, whole=whole)
    return outline(unit.module, name, fused, planned.codes, planned.buffers, shapes)


class Repeats:
    """Writes the planned loops of a unit, and reuses the functions of equal ones."""

    def __init__(self, unit: Unit, shapes: Shapes, results: Results) -> None:
        self._unit = unit
        self._shapes = shapes
        self._results = results
        self._known: dict[Hashable, _Template] = {}

    def write(self, planned: Planned, number: int) -> Written:
        """``write_planned``, or calls of the functions of equal loops that were written before."""
        reading = self._read(planned.generics, planned)
        if reading is None:
            return write_planned(self._unit, planned, number, self._shapes, self._results)
        template = self._known.get(reading.key)
        if template is not None:
            return template.again(reading, number)
        operands = [list(generic.operands) for generic in planned.generics]
        written = write_planned(self._unit, planned, number, self._shapes, self._results)
        replaced = {
            reading.numbers[old]: reading.numbers[new]
            for generic, old_operands in zip(planned.generics, operands, strict=True)
            for old, new in zip(old_operands, generic.operands, strict=True)
            if old != new
        }
        self._known[reading.key] = _Template(reading, written, replaced)
        return written

    def write_attention(self, attention: Gathered, number: int) -> Outlined:
        """The launch of an attention: its own function, or that of an equal attention."""
        reading = None if attention.repeats else self._read(attention.members)
        template = self._known.get(reading.key) if reading is not None else None
        if reading is not None and template is not None:
            return template.again(reading, number).launches[0][1]
        outlined = outline_attention(self._unit, attention, f"launch_{number}", self._shapes)
        if reading is not None:
            written = Written([(attention.members, outlined)], [])
            self._known[reading.key] = _Template(reading, written, {})
        return outlined

    def _marks(self, value: mlir.Value, generics: Collection[mlir.Op]) -> tuple[bool, bool]:
        """What else about a buffer decides the code of ``generics``."""
        return packable(self._unit, value), self._results.unread(value, generics)

    def _read(self, generics: list[mlir.Op], planned: Planned | None = None) -> _Reading | None:
        """None for loops that are never shared: chunks, and loops with sizes without a formula."""
        if planned is not None and planned.combiners:
            return None
        try:
            return _Reading(generics, planned, self._shapes, self._marks)
        except (Ambiguous, UnsupportedOp):
            return None


class _Reading:
    """Everything that the code of operations depends on, as a ``key``; ``values`` are its inputs, in the
    order of their numbers in the key. ``planned`` are the loops of the operations, if they are planned.

    Texts contain the sizes of a sample if some are dynamic: each represents one formula, or is rejected when
    code uses it. Raises the errors of reading sizes and strides.
    """

    def __init__(
        self,
        generics: list[mlir.Op],
        planned: Planned | None,
        shapes: Shapes,
        marks: Callable[[mlir.Value, Collection[mlir.Op]], Hashable],
    ) -> None:
        self.generics = generics
        self._marks = marks
        self.values: list[mlir.Value] = []
        self.numbers: dict[mlir.Value, int] = {}
        self._roots: dict[mlir.Value, int] = {}
        self._places = {generic: place for place, generic in enumerate(generics)}
        for buffer in planned.buffers if planned is not None else ():
            self._number(buffer)
        texts: list[tuple[str, tuple[int, ...]]] = []
        for generic in generics:
            text = _MARK_NUMBER.sub("", mlir.local_text(generic))
            if not shapes.codes:
                text = _OFFSET.sub("", text)
            operands = list(generic.operands)
            if mlir.unknown_values(text) != len(operands):
                operands += mlir.outside_values(generic)
            texts.append((text, tuple(map(self._number, operands))))
        all_loops = () if planned is None else (planned, *planned.parts)
        self.key = (
            tuple(texts),
            tuple(map(self._loops, all_loops)),
            tuple(self._fact(value, shapes) for value in self.values),
            () if shapes.codes else self._offsets(),
        )

    def _offsets(self) -> Hashable:
        """Which types have the same offset, and how far apart parts of one buffer begin.

        Code depends on nothing else about offsets, as the entry computes addresses.
        """
        numbers: dict[int, int] = {}
        pattern: list[int] = []
        firsts: dict[mlir.Value, int] = {}
        for value in self.values:
            if not mlir.is_memref(value.type):
                continue
            match = _OFFSET.search(str(value.type))
            offset = int(match[0]) if match else 0
            first = firsts.setdefault(memory.root_of(value), offset)
            pattern += [numbers.setdefault(offset, len(numbers)), offset - first]
        return tuple(pattern)

    def _number(self, value: mlir.Value) -> int:
        if value not in self.numbers:
            self.numbers[value] = len(self.values)
            self.values.append(value)
        return self.numbers[value]

    def _loops(self, planned: Planned) -> Hashable:
        codes = [
            (number, self._places[code.generic], tuple(code.numbers))
            for number, code in sorted(planned.codes.items())
        ]
        spared = [self._number(alloc.results[0]) for alloc in planned.spared]
        return planned.fused, tuple(codes), tuple(spared)

    def _fact(self, value: mlir.Value, shapes: Shapes) -> Hashable:
        """What code may depend on besides the type: sizes, aliases, and other users."""
        owner = mlir.defining(value)
        if not mlir.is_memref(value.type):
            if owner is not None and mlir.name_of(owner) == "arith.constant":
                return mlir.local_text(owner)
            return str(value.type), shapes.numbers.get(value)
        root = memory.root_of(value)
        users: frozenset[int] = frozenset()
        allocated = owner is not None and mlir.name_of(owner) == "memref.alloc"
        if allocated and len(self._places) > 1:
            users = self._users(value)
        number = self._roots.setdefault(root, len(self._roots))
        sizes, strides = tuple(shapes.sizes(value)), tuple(shapes.strides(value))
        marks = self._marks(value, self._places)
        return number, memory.is_unaliased(root), allocated, users, sizes, strides, marks

    def _users(self, value: mlir.Value) -> frozenset[int]:
        """The operations of the group that use ``value``, and -1 for any others; reads only a few of many."""
        counts = {place: list(op.operands).count(value) for op, place in self._places.items()}
        users = itertools.islice(mlir.uses(value), sum(counts.values()) + 1)
        outside = {-1 for user, _ in users if user not in self._places}
        return frozenset({place for place, count in counts.items() if count} | outside)


class _Template:
    """The launches that were written for a reading, with values and operations as numbers."""

    def __init__(self, reading: _Reading, written: Written, moved: dict[int, int]) -> None:
        self._moved = moved
        places = {generic: place for place, generic in enumerate(reading.generics)}
        self._launches = [([places[op] for op in ops], launch) for ops, launch in written.launches]
        self._numbers = reading.numbers
        numbers = {mlir.defining(value): number for value, number in reading.numbers.items()}
        self._made = {op: numbers[op] for op in _spared(written)}
        self._spared = [self._made[op] for op in written.spared]

    def again(self, reading: _Reading, number: int) -> Written:
        """Instantiate the launches for a reading with the same key; the first launch has this number."""
        values = reading.values
        for old, new in self._moved.items():
            values[old].replace_all_uses_with(values[new])
        launches = [
            (
                [reading.generics[place] for place in places],
                self._renamed(launch, number + count, values),
            )
            for count, (places, launch) in enumerate(self._launches)
        ]
        return Written(launches, [mlir.definition(values[number]) for number in self._spared])

    def _renamed(self, launch: Outlined, number: int, values: list[mlir.Value], first: str = "") -> Outlined:
        first = first or launch.name
        return replace(
            launch,
            name=f"launch_{number}{launch.name.removeprefix(first)}",
            function=launch.code,
            buffers=[values[self._numbers[buffer]] for buffer in launch.buffers],
            scalars=[values[self._numbers[scalar]] for scalar in launch.scalars],
            after=[self._renamed(follower, number, values, first) for follower in launch.after],
            spared=[mlir.definition(values[self._made[op]]) for op in launch.spared],
        )


def _spared(written: Written) -> list[mlir.Op]:
    return written.spared + [op for _, launch in written.launches for op in launch.spared]

"""From planned loops to launches: which form the code of each takes, written once for all that repeat.

Layers of a network do the same to different buffers. Where a group reads like one before it, up to which
buffers and scalars it is given, it calls the functions of that one.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, replace

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.conv.depthwise import is_window, outline_window
from kcache_compiler.lower.cpu.fusion_groups import Planned
from kcache_compiler.lower.gemm.outline import outline_contraction
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.chunked_reduction import outline_chunks
from kcache_compiler.lower.loops.launch import Outlined, outline
from kcache_compiler.lower.loops.masked_remainder import ended
from kcache_compiler.lower.loops.streaming_stores import streamed
from kcache_compiler.lower.sort_scatter.outline import outline_marker
from kcache_compiler.lower.subkernels.outline import outline_part
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.shapes.recovery import Ambiguous


@dataclass
class Written:
    """What became of planned loops: launches with the operations that each stands for, and allocations that
    nothing uses any more.
    """

    launches: list[tuple[list[mlir.Op], Outlined]]
    spared: list[mlir.Op]


def write_planned(unit: Unit, planned: Planned, number: int, shapes: Shapes) -> Written:
    """Write the slice functions of ``planned``; the first of its launches has this number."""
    choices = parse_choices(unit.options.schedule)
    found = Written([], [])
    if choices.contraction != "windows" or not is_window(planned.generics, shapes):
        whole = outline_contraction(unit, planned.generics, f"launch_{number}", shapes)
        if whole is not None:
            return Written([(planned.generics, whole)], whole.spared)
    parts = planned.parts or [planned]
    window = None
    if planned.fused.split is None and choices.contraction != "loops":
        window = outline_window(unit, planned.generics, f"launch_{number}", shapes)
    if window is not None:
        found.launches.append((planned.generics[: window[0]], window[1]))
        parts = parts[window[0] :]
    for one in parts:
        name = f"launch_{number + len(found.launches)}"
        marker = outline_part(unit, one.generics[0], name)
        marker = marker or outline_marker(unit.module, one.generics[0], name, shapes)
        if marker is not None:
            found.launches.append((one.generics, marker))
            continue
        found.launches.append((one.generics, _write_loops(unit, one, name, shapes)))
        found.spared += one.spared
    return found


def _write_loops(unit: Unit, one: Planned, name: str, shapes: Shapes) -> Outlined:
    choices = parse_choices(unit.options.schedule)
    if one.fused.split is not None:
        if one.fused.shared:
            one.fused = ended(one.fused, one.codes, one.buffers, unit.target)
        return outline_chunks(unit.module, name, one, shapes, unit.options.numerics == "strict")
    fused = streamed(one.fused, one.buffers, shapes, unit.target, choices.stream_bytes)
    fused = ended(fused, one.codes, one.buffers, unit.target)
    fused = replace(fused, together=choices.rows_together, turns=choices.vectors_a_turn)
    return outline(unit.module, name, fused, one.codes, one.buffers, shapes)


class Repeats:
    """Planned loops of a unit as they are written, and what is known of them."""

    def __init__(self, unit: Unit, shapes: Shapes) -> None:
        self._unit = unit
        self._shapes = shapes
        self._known: dict[Hashable, _Template] = {}

    def write(self, planned: Planned, number: int) -> Written:
        """The same as ``write_planned``, by the functions of equal loops where there were any."""
        reading = self._read(planned)
        if reading is None:
            return write_planned(self._unit, planned, number, self._shapes)
        known = self._known.get(reading.key)
        if known is not None:
            return known.again(reading, number)
        operands = [list(generic.operands) for generic in planned.generics]
        written = write_planned(self._unit, planned, number, self._shapes)
        moved = {
            reading.numbers[old]: reading.numbers[new]
            for generic, before in zip(planned.generics, operands, strict=True)
            for old, new in zip(before, generic.operands, strict=True)
            if old != new
        }
        self._known[reading.key] = _Template(reading, written, moved)
        return written

    def _read(self, planned: Planned) -> _Reading | None:
        """None for what is written anew each time: chunks, and what has sizes that no formula says."""
        if planned.combiners:
            return None
        try:
            return _Reading(planned, self._shapes)
        except (Ambiguous, UnsupportedOp):
            return None


class _Reading:
    """All that the code of planned loops depends on, as a ``key``; ``values`` are what it is given from
    outside, in the order in which the key names them.

    Texts have the sizes of a sample where some are open: each stands for one formula, or is rejected where
    code asks for it. Raises what reading sizes and strides does.
    """

    def __init__(self, planned: Planned, shapes: Shapes) -> None:
        self.planned = planned
        self.values: list[mlir.Value] = []
        self.numbers: dict[mlir.Value, int] = {}
        self._roots: dict[mlir.Value, int] = {}
        self._places = {generic: place for place, generic in enumerate(planned.generics)}
        for buffer in planned.buffers:
            self._number(buffer)
        texts: list[tuple[str, tuple[int, ...]]] = []
        for generic in planned.generics:
            text = mlir.local_text(generic)
            given = list(generic.operands)
            if mlir.unknown_values(text) != len(given):
                given += mlir.outside_values(generic)
            texts.append((text, tuple(map(self._number, given))))
        self.key = (
            tuple(texts),
            self._loops(planned),
            tuple(map(self._loops, planned.parts)),
            tuple(self._fact(value, shapes) for value in self.values),
        )

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
        """What code may depend on besides the type: sizes, what else is the same memory, who else uses it."""
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
        return number, memory.is_unaliased(root), allocated, users, sizes, strides

    def _users(self, value: mlir.Value) -> frozenset[int]:
        """The operations of the group that use it, and -1 for any others; of thousands few are looked at."""
        own = {place: list(one.operands).count(value) for one, place in self._places.items()}
        some = itertools.islice(mlir.uses(value), sum(own.values()) + 1)
        others = {-1 for user, _ in some if user not in self._places}
        return frozenset({place for place, count in own.items() if count} | others)


class _Template:
    """The launches that were written for a reading, by the numbers of its values and operations."""

    def __init__(self, reading: _Reading, written: Written, moved: dict[int, int]) -> None:
        self._moved = moved
        places = {generic: place for place, generic in enumerate(reading.planned.generics)}
        self._launches = [([places[one] for one in ops], launch) for ops, launch in written.launches]
        self._numbers = reading.numbers
        made = {mlir.defining(value): number for value, number in reading.numbers.items()}
        self._made = {op: made[op] for op in _spared(written)}
        self._spared = [self._made[op] for op in written.spared]

    def again(self, reading: _Reading, number: int) -> Written:
        """The same for a reading with the same key; its first launch has this number."""
        values = reading.values
        for old, new in self._moved.items():
            values[old].replace_all_uses_with(values[new])
        launches = [
            (
                [reading.planned.generics[place] for place in places],
                self._renamed(one, number + count, values),
            )
            for count, (places, one) in enumerate(self._launches)
        ]
        return Written(launches, [mlir.definition(values[one]) for one in self._spared])

    def _renamed(self, one: Outlined, number: int, values: list[mlir.Value], first: str = "") -> Outlined:
        first = first or one.name
        return replace(
            one,
            name=f"launch_{number}{one.name.removeprefix(first)}",
            function=one.code,
            buffers=[values[self._numbers[buffer]] for buffer in one.buffers],
            scalars=[values[self._numbers[scalar]] for scalar in one.scalars],
            after=[self._renamed(each, number, values, first) for each in one.after],
            spared=[mlir.definition(values[self._made[op]]) for op in one.spared],
        )


def _spared(written: Written) -> list[mlir.Op]:
    return written.spared + [op for _, launch in written.launches for op in launch.spared]

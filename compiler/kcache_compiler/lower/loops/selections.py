"""Reducers that select one of two elements, of one or several operands, such as ``argmax``.

They have no neutral element. A chunk starts from the program's initial value, which must be a constant, and
the result must not depend on how often that value occurs (``reassociation.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kcache_compiler.lower.loops.combiners import Fold, combiners_of, depends
from kcache_compiler.lower.loops.reassociation import UNSIGNED, Reducer, ReducerOperation, Result, regroups
from kcache_compiler.mlir import operations as mlir

#: Operations on bits, and those that change the representation of a float.
_BITS = ("arith.andi", "arith.ori", "arith.xori")
_HELD = ("arith.extf", "arith.truncf", "arith.bitcast")
#: Integer extremes: the step, and whether it is unsigned.
_EXTREMES = {
    "arith.maxsi": ("max", False),
    "arith.minsi": ("min", False),
    "arith.maxui": ("max", True),
    "arith.minui": ("min", True),
}
#: Maximum number of results of a selection.
MOST = 2


@dataclass(frozen=True, eq=False)
class Selection:
    """All results of a reduction: old totals, new elements, yielded values, initial constants."""

    old: tuple[mlir.Value, ...]
    new: tuple[mlir.Value, ...]
    yielded: tuple[mlir.Value, ...]
    starts: tuple[mlir.Op, ...]

    def combine(self, first: Sequence[mlir.Value], second: Sequence[mlir.Value]) -> list[mlir.Value]:
        """Combine two totals at the insertion point; ``first`` is that of the earlier elements."""
        mapping: dict[mlir.Value, mlir.Value] = dict(
            zip((*self.old, *self.new), (*first, *second), strict=True)
        )
        return [_copied(value, mapping) for value in self.yielded]


@dataclass(frozen=True)
class Chosen:
    """Result ``number`` of a selection, used as a combiner."""

    selection: Selection
    number: int

    @property
    def name(self) -> str:
        return "arith.select"

    def neutral(self, element: mlir.Type) -> mlir.Value:
        """The initial value of totals."""
        del element
        return mlir.clone(self.selection.starts[self.number]).results[0]


#: Combines two totals.
Combining: TypeAlias = Fold | Chosen


def combinings_of(generic: mlir.Op, strict: bool) -> dict[int, Combining]:
    """The combiners of the totals of a reduction's chunks, by result number."""
    combinings: dict[int, Combining] = {**combiners_of(generic, strict)}
    yielded = len(mlir.last(mlir.block_of(generic)).operands)
    selection = selection_of(generic) if len(combinings) < yielded else None
    if selection is not None:
        return {number: Chosen(selection, number) for number in range(yielded)}
    return combinings


def chooses(generic: mlir.Op) -> bool:
    """Whether a reduction selects elements by a rule that is not a single operation."""
    yielded = list(mlir.last(mlir.block_of(generic)).operands)
    old = list(mlir.block_of(generic).arguments)[-len(yielded) :]
    numbers = all(str(total.type).startswith(("f", "bf", "i")) and str(total.type) != "i1" for total in old)
    if not numbers or len(combiners_of(generic, False)) == len(yielded):
        return False
    leaves = [{*_leaves(value)} - {total} for total, value in zip(old, yielded, strict=True)]
    return all(len(total) == 1 and not depends(next(iter(total)), old) for total in leaves)


def _copied(value: mlir.Value, mapping: dict[mlir.Value, mlir.Value]) -> mlir.Value:
    if value not in mapping:
        owner = mlir.defining(value)
        assert owner is not None
        operands = [_copied(operand, mapping) for operand in owner.operands]
        copy = mlir.clone(owner)
        for number, operand in enumerate(operands):
            copy.operands[number] = operand
        mapping[value] = copy.results[0]
    return mapping[value]


def selection_of(generic: mlir.Op) -> Selection | None:
    """The selection that a reduction on buffers computes, if its chunks may be reduced independently."""
    body = mlir.block_of(generic)
    yielded = tuple(mlir.last(body).operands)
    old = tuple(list(body.arguments)[-len(yielded) :])
    outputs = list(generic.operands)[-len(yielded) :]
    reduced = ["reduction" in kind for kind in mlir.iterator_types(generic)]
    if sum(reduced) != 1 or len(yielded) > MOST or any(str(value.type) == "i1" for value in old):
        return None
    new: list[mlir.Value] = []
    for total, value in zip(old, yielded, strict=True):
        leaves = {leaf for leaf in _leaves(value) if leaf != total}
        if len(leaves) != 1 or (element := leaves.pop()) in old or element.type != total.type:
            return None
        new.append(element)
    if any(depends(element, old) for element in new) or len(set(new)) != len(new):
        return None
    starts = [_start(generic, output) for output in outputs]
    constants = tuple(start for start in starts if start is not None)
    if [start.results[0].type for start in constants] != [value.type for value in old]:
        return None
    reducer = _Reading(old, tuple(new)).reducer(yielded, constants)
    return (
        Selection(old, tuple(new), yielded, constants) if reducer is not None and regroups(reducer) else None
    )


def _leaves(value: mlir.Value) -> set[mlir.Value]:
    """The values among which ``value`` is selected."""
    owner = mlir.defining(value)
    name = None if owner is None else mlir.name_of(owner)
    if owner is None or name not in ("arith.select", *_HELD, *_EXTREMES):
        return {value}
    choices = list(owner.operands)[name == "arith.select" :]
    return {leaf for choice in choices for leaf in _leaves(choice)}


def _start(generic: mlir.Op, buffer: mlir.Value) -> mlir.Op | None:
    """The constant with which ``buffer`` is filled directly before ``generic`` reduces into it."""
    writers: list[mlir.Op] = []
    users = {user for user, _ in mlir.uses(buffer)}
    for operation in mlir.operations(generic.operation.block):
        if operation == generic:
            break
        writers += [operation] if operation in users else []
    if not writers or any(not mlir.same_block(user, generic) for user in users):
        return None
    fill = writers[-1]
    if any(mlir.name_of(user) != "linalg.generic" for user in writers):
        return None
    body = mlir.block_of(fill)
    operands, arguments = list(fill.operands), list(body.arguments)
    if any("parallel" not in kind for kind in mlir.iterator_types(fill)):
        return None
    values = list(mlir.last(body).operands)
    outputs = operands[-len(values) :]
    if outputs.count(buffer) != 1:
        return None
    value = values[outputs.index(buffer)]
    if value in arguments:
        value = operands[arguments.index(value)]
    owner = mlir.defining(value)
    return owner if owner is not None and mlir.name_of(owner) == "arith.constant" else None


@dataclass
class _Reading:
    """Translates a reducer's operations to steps; ``signs`` records the signedness of comparisons."""

    old: tuple[mlir.Value, ...]
    new: tuple[mlir.Value, ...]
    steps: list[ReducerOperation] = field(default_factory=list[ReducerOperation])
    registers: dict[mlir.Value, int | None] = field(default_factory=dict[mlir.Value, "int | None"])
    #: By register, the result that its value belongs to; None for a bit.
    kinds: list[int | None] = field(default_factory=list["int | None"])
    signs: set[tuple[int, bool]] = field(default_factory=set[tuple[int, bool]])

    def reducer(self, yielded: Sequence[mlir.Value], starts: Sequence[mlir.Op]) -> Reducer | None:
        self.registers = {value: number for number, value in enumerate((*self.old, *self.new))}
        self.kinds = [*range(len(self.old)), *range(len(self.new))]
        registers = [self._register(value) for value in yielded]
        results: list[Result] = []
        for number, (register, start) in enumerate(zip(registers, starts, strict=True)):
            if register is None or self.kinds[register] != number:
                return None
            integer = mlir.constant_int(start.results[0])
            floating = mlir.constant_float(start.results[0])
            if integer is None and floating is None:
                return None
            results.append(Result(integer is None, 0.0 if floating is None else floating))
            if {(number, True), (number, False)} <= self.signs:
                return None
        numbers = tuple(number for number in registers if number is not None)
        return Reducer(tuple(results), tuple(self.steps), numbers)

    def _register(self, value: mlir.Value) -> int | None:
        """The register of ``value``; None if an operation other than a selection computes it."""
        if value not in self.registers:
            self.registers[value] = None
            owner = mlir.defining(value)
            step = None if owner is None else self._read(owner)
            if step is not None:
                self.steps.append(step[0])
                self.kinds.append(step[1])
                self.registers[value] = len(self.kinds) - 1
        return self.registers[value]

    def _read(self, owner: mlir.Op) -> tuple[ReducerOperation, int | None] | None:
        operands = [self._register(operand) for operand in owner.operands]
        registers = tuple(register for register in operands if register is not None)
        if len(registers) != len(operands):
            return None
        return self._step(owner, registers, [self.kinds[register] for register in registers])

    def _step(
        self, owner: mlir.Op, operands: tuple[int, ...], kinds: list[int | None]
    ) -> tuple[ReducerOperation, int | None] | None:
        """Return an operation of a reducer and the number that it yields; None if it is unsupported."""
        name = mlir.name_of(owner)
        short = name.removeprefix("arith.")
        if name in _HELD and kinds[0] is not None:
            return (ReducerOperation("same", operands), kinds[0]) if self._keeps(owner, kinds[0]) else None
        if name == "arith.constant" and str(owner.results[0].type) == "i1":
            return ReducerOperation(short, (), int(mlir.constant_int(owner.results[0]) != 0)), None
        if name in _BITS and kinds == [None, None]:
            return ReducerOperation(short, operands), None
        if name == "arith.select" and kinds[0] is None and kinds[1] == kinds[2]:
            return ReducerOperation(short, operands), kinds[1]
        if len(kinds) != 2 or kinds[0] is None or kinds[0] != kinds[1]:
            return None
        number = kinds[0]
        predicate = mlir.int_of(owner.attributes["predicate"]) if "predicate" in owner.attributes else 0
        if name == "arith.cmpf":
            return ReducerOperation(short, operands, predicate), None
        if _is_float(self.old[number].type):
            return None  # the bits of floats have another order as integers
        if name == "arith.cmpi":
            self.signs |= {(number, predicate >= UNSIGNED)} if predicate > 1 else set()
            return ReducerOperation(short, operands, predicate), None
        if name in _EXTREMES:
            step, unsigned = _EXTREMES[name]
            self.signs.add((number, unsigned))
            return ReducerOperation(step, operands), number
        return None

    def _keeps(self, owner: mlir.Op, number: int) -> bool:
        """Whether a conversion preserves the order of values, or its result is never compared."""
        kind, total = owner.results[0].type, self.old[number].type
        if mlir.name_of(owner) == "arith.extf" or kind == total:
            return True  # a value that was never wider than the total is rounded to its type without loss
        return mlir.name_of(owner) == "arith.bitcast" and _is_float(total) and not _is_float(kind)


def _is_float(kind: mlir.Type) -> bool:
    return str(kind).startswith(("f", "bf"))

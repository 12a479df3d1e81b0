"""Sentences that describe differing operations: "here" is the requested graph, "there" the stored one."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.difference.frontier import COMMUTATIVE, Numbered, is_constant
from kcache_compiler.difference.literal import literal
from kcache_compiler.difference.spec_reader import Operation, Use
from kcache_compiler.mlir.attribute_text import split_attributes

#: A ``Difference`` whose sentence lacks the position: name, value here, value there, sentence.
_Detail = tuple[str, str, str, str]

#: Most characters of an attribute that a sentence quotes.
_MAX_QUOTED = 120


@dataclass(frozen=True)
class Difference:
    """A property that differs: its name, its value in both specs, and a sentence that describes it."""

    name: str
    yours: str
    theirs: str
    sentence: str


class Side:
    """Describes operations of one graph. Values that both graphs have are named as in the requested graph."""

    def __init__(self, numbered: Numbered, shared_names: dict[int, str] | None = None) -> None:
        self.numbered = numbered
        self._shared = shared_names or {}

    def names(self) -> dict[int, str]:
        """Return the name of each value, by number."""
        return {number: name for name, number in self.numbered.values.items()}

    def operation(self, position: int) -> Operation:
        """Return the operation at a position."""
        return self.numbered.body.operations[position]

    def use(self, use: Use) -> str:
        """Return an operand: a constant by its value, ``argument 0``, ``%6``."""
        if use.name.startswith("%"):
            operation = self.operation(int(use.name[1:]))
            if is_constant(operation):
                return _leaf(operation)
            shared = self._shared.get(self.numbered.values[use.name])
            return str(Use(shared or use.name, use.result, use.view))
        return {"a": "argument", "k": "lifted constant", "p": "parameter", "q": "captured value"}.get(
            use.name[0], use.name[0]
        ) + f" {use.name[1:]}"

    def phrase(self, position: int) -> str:
        """Return the operation at a position as ``add of argument 0 and 0.5``."""
        return self.describe(self.operation(position))

    def describe(self, operation: Operation) -> str:
        """Return an operation as ``add of argument 0 and 0.5``."""
        operands = [self.use(use) for use in operation.uses]
        if not operands:
            return operation.op
        if len(operands) > 4:
            return f"{operation.op} of {len(operands)} values"
        return f"{operation.op} of {' and '.join(operands)}"


def operations_differ(here: Side, position: int, there: Side, other: int, where: str) -> Difference:
    """Return the difference between an operation and its counterpart."""
    mine, theirs = here.operation(position), there.operation(other)
    yours, stored = here.phrase(position), there.phrase(other)
    if mine.op != theirs.op:
        sentence = f"{where}: yours is {yours}, the stored one is {stored}"
        return Difference("operation", yours, stored, sentence)
    candidates = (_operands(here, mine, there, theirs), _attributes_or_types(mine, theirs))
    details = [detail for detail in candidates if detail]
    if not details:
        text = f"yours is {yours}, the stored one is {stored}"
        if yours == stored:
            text = f"{yours} has other types or sizes in the stored graph"
        return Difference("operation", yours, stored, f"{where}: {text}")
    name, left, right, _ = details[0]
    return Difference(name, left, right, f"{where}, {mine.op}: {'; '.join(detail[3] for detail in details)}")


def only_here(here: Side, position: int, where: str) -> Difference:
    """Return the difference that an operation has no counterpart in the stored graph."""
    phrase = here.phrase(position)
    return Difference("operation", phrase, "", f"{where}: {phrase} is not in the stored graph")


def only_there(there: Side, position: int, where: str) -> Difference:
    """Return the difference that an operation is in the stored graph only."""
    phrase = there.phrase(position)
    return Difference("operation", "", phrase, f"{where} of the stored graph: {phrase} is not in yours")


def _operands(here: Side, mine: Operation, there: Side, theirs: Operation) -> _Detail | None:
    if len(mine.uses) != len(theirs.uses):
        left, right = str(len(mine.uses)), str(len(theirs.uses))
        return "operands", left, right, f"it takes {left} operands here and {right} there"
    ours, others = [here.use(use) for use in mine.uses], [there.use(use) for use in theirs.uses]
    if ours != others and sorted(ours) == sorted(others) and not mine.regions:
        left, right = ", ".join(ours), ", ".join(others)
        return "operands", left, right, f"its operands are {left} here and {right} there: another order"
    pairs = [(i, j) for i, j in _pairs(mine.op, ours, others) if ours[i] != others[j]]
    if pairs:
        return _unequal(here, mine, there, theirs, pairs)
    for index, (use, other) in enumerate(zip(mine.uses, theirs.uses, strict=True)):
        if use.view != other.view:
            left, right = f"[{use.view}]", f"[{other.view}]"
            text = f"operand {index}, {ours[index]}, is read as {left} here and as {right} there: other axes"
            return "axes", left, right, text
    return None


def _leaf(operation: Operation) -> str:
    """A value without operands: a constant, a size, ``iota i32[8]``."""
    if operation.op == "constant" and operation.types:
        return truncated(literal(operation.types[0].element, operation.attributes))
    if operation.op == "extent":
        return f"the size {operation.attributes}"
    words = [operation.op, *map(str, operation.types)]
    return " ".join(words) + (f" ({truncated(operation.attributes)})" if operation.attributes else "")


def _unequal(
    here: Side, mine: Operation, there: Side, theirs: Operation, pairs: list[tuple[int, int]]
) -> _Detail | None:
    """The differing operand, if there is exactly one; else both operations in full."""
    (index, other), *more = pairs
    left, right = here.use(mine.uses[index]), there.use(theirs.uses[other])
    constants = _constant(here, mine.uses[index]), _constant(there, theirs.uses[other])
    if constants == (True, True) and not more:
        return "constant", left, right, f"a constant differs: {left} here, {right} there"
    if constants == (False, False) and not more:
        return "operand", left, right, f"operand {index} is {left} here and {right} there"
    ours, others = here.describe(mine), there.describe(theirs)
    return (
        ("operation", ours, others, f"yours is {ours}, the stored one is {others}")
        if ours != others
        else None
    )


def _pairs(op: str, ours: list[str], others: list[str]) -> list[tuple[int, int]]:
    """Pairs of operands to compare: by position; of a commutative operation, those without an equal one."""
    if op not in COMMUTATIVE:
        return list(zip(range(len(ours)), range(len(others)), strict=True))
    mine = [index for index, text in enumerate(ours) if text not in others]
    theirs = [index for index, text in enumerate(others) if text not in ours]
    return list(zip(mine, theirs, strict=False))


def _constant(side: Side, use: Use) -> bool:
    return use.name.startswith("%") and is_constant(side.operation(int(use.name[1:])))


def _attributes_or_types(mine: Operation, theirs: Operation) -> _Detail | None:
    if mine.attributes != theirs.attributes:
        left, right = _differing(mine.attributes, theirs.attributes)
        return "attribute", left, right, f"{left or 'nothing'} here, {right or 'nothing'} there"
    if mine.types != theirs.types:
        left, right = (" ".join(map(str, types)) for types in (mine.types, theirs.types))
        return "type", left, right, f"it gives {left} here and {right} there"
    return None


def _differing(mine: str, theirs: str) -> tuple[str, str]:
    """The attributes that only one of two lists has, truncated."""
    ours, others = split_attributes(mine), split_attributes(theirs)
    left = ", ".join(part for part in ours if part not in others) or mine
    right = ", ".join(part for part in others if part not in ours) or theirs
    return truncated(left), truncated(right)


def truncated(text: str) -> str:
    """Return a text, truncated if it is long."""
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."

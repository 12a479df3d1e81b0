"""The first operations in which two graphs differ: only one graph has them, but both have their operands.

Values are numbered by what they compute (hash-consing, bottom up), so equal values of both graphs have one
number. All users of a differing operation differ too, so only operations with common operands are reported.
Constants are part of the operations that use them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass

from kcache_compiler.difference.literal import numbers
from kcache_compiler.difference.spec_reader import Body, Operation, Use

_DIGITS = re.compile(r"-?\d+")
COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})


@dataclass(frozen=True)
class Numbered:
    """A body and the number of every value in it, by name."""

    body: Body
    values: dict[str, int]


class Numbering:
    """Numbers values by what they compute.

    ``loose``: sizes, views, element types and the order of commutative operands are ignored, as they follow
    from the types of the arguments, which differ. ``rounded``: constants are compared by two digits, which
    every element type rounds alike.
    """

    def __init__(self, loose: bool, rounded: bool = False) -> None:
        self._loose = loose
        self._rounded = rounded
        self._numbers: dict[Hashable, int] = {}

    def body(self, body: Body) -> Numbered:
        """Return a body with the number of every value."""
        values: dict[str, int] = {}
        for position, operation in enumerate(body.operations):
            values[f"%{position}"] = self._number(self._operation(operation, values))
        return Numbered(body, values)

    def returned(self, numbered: Numbered) -> tuple[Hashable, ...]:
        """Return the results of a body, comparable with those of another graph."""
        return tuple(self.use(use, numbered.values) for use in numbered.body.results)

    def use(self, use: Use, values: dict[str, int]) -> Hashable:
        """Return an operand, comparable with one of another graph."""
        if not self._loose:
            return values.get(use.name, use.name), use.result, use.view
        return values.get(use.name, "q" if use.name.startswith("q") else use.name), use.result

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _operation(self, operation: Operation, values: dict[str, int]) -> Hashable:
        uses: list[Hashable] = [self.use(use, values) for use in operation.uses]
        if self._loose and (operation.op in COMMUTATIVE or operation.regions):
            uses.sort(key=repr)
        regions = tuple(self._region(region) for region in operation.regions)
        if not self._loose:
            return operation.op, tuple(uses), operation.types, operation.attributes, regions
        return operation.op, tuple(uses), self._attributes(operation), regions

    def _attributes(self, operation: Operation) -> Hashable:
        if is_constant(operation) and operation.types:
            values = numbers(operation.types[0].element, operation.attributes, 2 if self._rounded else 17)
            return values or operation.attributes
        return _DIGITS.sub("#", operation.attributes)

    def _region(self, region: Body) -> Hashable:
        numbered = self.body(region)
        head = "" if self._loose else region.head
        return head, tuple(numbered.values.values()), self.returned(numbered)


def is_constant(operation: Operation) -> bool:
    """Return whether an operation has no operands and no regions."""
    return not operation.uses and not operation.regions


def frontier(mine: Numbered, others: Numbered) -> list[int]:
    """Return the positions of operations of ``mine`` that ``others`` lacks, but whose operands it has."""
    common = set(others.values.values())
    here = mine.values
    operations = mine.body.operations

    def shared(name: str) -> bool:
        number = here.get(name)
        return number is None or number in common or is_constant(operations[int(name[1:])])

    return [
        position
        for position, operation in enumerate(operations)
        if here[f"%{position}"] not in common
        and not is_constant(operation)
        and all(shared(use.name) for use in operation.uses)
    ]


def counterpart(mine: Numbered, position: int, others: Numbered, candidates: list[int]) -> int | None:
    """Return the candidate of ``others`` that is most similar to an operation of ``mine``, if any is."""
    operation = mine.body.operations[position]
    operands = [mine.values.get(use.name, use.name) for use in operation.uses]

    def similarity(candidate: int) -> tuple[int, ...]:
        other = others.body.operations[candidate]
        theirs = [others.values.get(use.name, use.name) for use in other.uses]
        shared = len(set(map(str, operands)) & set(map(str, theirs)))
        return (
            (2 if operands == theirs else 0) + (2 if operation.op == other.op else 0) + min(shared, 1),
            shared,
            int(operation.types == other.types),
            -abs(candidate - position),
        )

    best = max(candidates, key=similarity, default=None)
    return best if best is not None and similarity(best)[0] > 0 else None

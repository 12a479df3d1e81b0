"""Proves by enumeration that a reducer which only selects among its operands is associative.

Such a reducer compares and selects, so its result for three elements depends on their relative order only.
A small set of values, with NaN and both zeros, represents every relative order of three elements and a
start value. If the reducer is associative on this set, it is associative.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TypeAlias

#: By predicate, the outcomes for which it holds: less, equal, greater, and ``?`` for unordered.
_FLOATS = ("", "=", ">", ">=", "<", "<=", "<>", "<=>", "=?", ">?", ">=?", "<?", "<=?", "<>?", "?", "<=>?")
_INTEGERS = ("=", "<>", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
#: The first unsigned predicate of ``arith.cmpi``.
UNSIGNED = 6


@dataclass(frozen=True)
class ReducerOperation:
    """One operation: register numbers of its operands; ``detail`` is a predicate, or a constant bit."""

    name: str
    operands: tuple[int, ...]
    detail: int = 0


@dataclass(frozen=True)
class Result:
    """A result of the reducer: a float or an integer, and its start value."""

    is_float: bool
    start: float = 0.0


@dataclass(frozen=True)
class Reducer:
    """Registers are old totals, new elements and results of steps; ``yielded`` are the new totals."""

    results: tuple[Result, ...]
    steps: tuple[ReducerOperation, ...]
    yielded: tuple[int, ...]


#: Values by number, and the number of the start value.
_Domain: TypeAlias = tuple[tuple[float, ...], int]


def _domain(result: Result) -> _Domain:
    """Values that represent every relative order of two elements and the start value."""
    if not result.is_float:
        return (0.0, 1.0, 2.0, 3.0, 4.0), 2
    start = result.start
    values = (-1.0, -0.0, 0.0, 1.0, math.nan, math.nan)
    if math.isnan(start):
        return values, 4
    if start == 0:
        return values, 1 if math.copysign(1, start) < 0 else 2
    if math.isinf(start):
        return (*values, start), 6
    return (-3.0, -2.0, 2.0, 3.0, *values), 4 if start < 0 else 7


def _trio(result: Result) -> tuple[float, ...]:
    """Values that represent every relative order of three elements."""
    return (-1.0, -0.0, 0.0, 1.0, math.nan, math.nan) if result.is_float else (0.0, 1.0, 2.0)


@functools.lru_cache(maxsize=256)
def regroups(reducer: Reducer) -> bool:
    """Whether reducing chunks from the start value, then their totals, equals a sequential reduction."""
    if not _associates(reducer):
        return False
    domains = [_domain(result) for result in reducer.results]
    table = _Table(reducer, [values for values, _ in domains])
    start = tuple(number for _, number in domains)
    from_start = [table(start, element) for element in table.elements]
    if any(table(start, element) != element for element in from_start):
        return False
    return all(
        table(left, table(start, right)) == table(left, right)
        for left in from_start
        for right in table.elements
    )


def _associates(reducer: Reducer) -> bool:
    table = _Table(reducer, [_trio(result) for result in reducer.results])
    return all(
        table(table(a, b), c) == table(a, table(b, c))
        for a, b, c in itertools.product(table.elements, repeat=3)
    )


_Element: TypeAlias = tuple[int, ...]


class _Table:
    """The reducer as a table; an element is a tuple of value numbers."""

    def __init__(self, reducer: Reducer, values: list[tuple[float, ...]]) -> None:
        self.elements: list[_Element] = list(itertools.product(*(range(len(value)) for value in values)))
        self.found = {
            (old, new): _apply(reducer, values, old, new) for old in self.elements for new in self.elements
        }

    def __call__(self, old: _Element, new: _Element) -> _Element:
        return self.found[old, new]


def _apply(reducer: Reducer, values: list[tuple[float, ...]], old: _Element, new: _Element) -> _Element:
    registers: list[int] = [*old, *new]
    # The result whose values a register numbers; unused for registers that hold bits.
    kinds = [*range(len(old)), *range(len(old))]
    for step in reducer.steps:
        operands = [registers[number] for number in step.operands]
        kind = kinds[step.operands[-1]] if step.operands else 0
        registers.append(_evaluate(step, operands, values[kind]))
        kinds.append(kind)
    return tuple(registers[number] for number in reducer.yielded)


def _evaluate(step: ReducerOperation, operands: list[int], values: tuple[float, ...]) -> int:
    match step.name, operands:
        case "constant", _:
            return step.detail
        case "andi", [a, b]:
            return a & b
        case "ori", [a, b]:
            return a | b
        case "xori", [a, b]:
            return a ^ b
        case "select", [bit, a, b]:
            return a if bit else b
        case "cmpf", [a, b]:
            return int(_order(values[a], values[b]) in _FLOATS[step.detail])
        case "cmpi", [a, b]:
            return int(_order(values[a], values[b]) in _INTEGERS[step.detail])
        case "max", [a, b]:
            return a if values[a] > values[b] else b
        case "min", [a, b]:
            return a if values[a] < values[b] else b
        case "same", [a]:
            return a
        case _:
            raise AssertionError(step.name)


def _order(a: float, b: float) -> str:
    if math.isnan(a) or math.isnan(b):
        return "?"
    return "<" if a < b else ">" if a > b else "="

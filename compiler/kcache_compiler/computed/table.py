"""Symbols of sizes: those of the arguments, and those that are derived from them.

A derived symbol is a *sum*, a polynomial that is no monomial, or a *root*: what divides or chooses, and is
a symbol of its own as far as code is concerned. Formulas are over roots, by name ``s<index>``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.canonical.graph import DYNAMIC
from kcache_compiler.canonical.sizes import factors, monomial, symbol
from kcache_compiler.codegen.formula import EVALUATE, Formula, apply, evaluate, replaced, symbols_in
from kcache_compiler.codegen.nest import Check
from kcache_compiler.codegen.polynomial import formula_of, normal, polynomial

#: Most that one value of sizes may be made of.
_DEPTH = 64
_LIMIT = 200
#: What is least where nothing is known.
_NOWHERE = -(1 << 62)


class Unresolved(Exception):
    """A size that is not followed; ``args`` says of what."""


def _nobody(_: Formula) -> None:
    """Sizes of the arguments are what they are."""


@dataclass(frozen=True)
class Exact:
    """What is known of a symbol of an argument: it is ``factor * t - less`` for some size ``t``, or a formula
    of the other ones.
    """

    factor: int = 1
    less: int = 0
    formula: Formula | None = None

    def check(self, name: str) -> Check:
        """What must hold for that."""
        if self.formula is not None:
            return Check(name, self.formula, equal=True)
        return Check(apply("%", apply("+", name, self.less), self.factor), 0, equal=True)

    def value(self, drawn: Sequence[int], index: int) -> int:
        """The size, where that of ``index`` was drawn as ``t``."""
        if self.formula is not None:
            return evaluate(self.formula, {f"s{place}": size for place, size in enumerate(drawn)})
        return self.factor * drawn[index] - self.less


class Symbols:
    """The symbols of one program; the first ``count`` are of the arguments."""

    def __init__(self, count: int, least: Mapping[str, int], exact: Mapping[int, Exact]) -> None:
        """``least``: what symbols are at least. ``exact``: what is known of those of arguments."""
        self.count = count
        self.least = least
        #: By index: what it is, over roots; None of a symbol of an argument that is a root itself.
        self.meaning: list[Formula | None] = [None] * count
        self._known: dict[str, int] = {}
        self._ranges: dict[str, tuple[int, int | None]] = {}
        #: Definitions of derived roots, over symbols of arguments and other roots.
        self.definitions: dict[str, Formula] = {}
        #: Told of what is a size, and must not be less than 0.
        self.least_of: Callable[[Formula], None] = _nobody
        for index, one in sorted(exact.items(), key=lambda known: (known[1].formula is not None, known[0])):
            if one.formula is not None:
                meaning = {f"s{place}": m for place, m in enumerate(self.meaning) if m is not None}
                self.meaning[index] = self._named(self.simple(replaced(one.formula, meaning)))
                continue
            part = self._root(apply("ceildiv", apply("+", f"s{index}", one.less), one.factor))
            self.meaning[index] = normal(apply("-", apply("*", one.factor, part), one.less))

    # -- sizes

    def formula(self, size: int) -> Formula:
        """A size of the graph over roots."""
        if size == DYNAMIC:
            raise Unresolved("a size that nothing shows")
        coefficient, indices = factors(size)
        found: Formula = coefficient
        for index in indices:
            meaning = self.meaning[index]
            found = apply("*", found, f"s{index}" if meaning is None else meaning)
        return normal(found)

    def size(self, formula: Formula) -> int:
        """A formula as a size of the graph."""
        found = self.simple(formula)
        if isinstance(found, int):
            if found < 0:
                raise Unresolved("a negative size")
            return found
        terms = polynomial(found)
        if self.range(found)[0] < 0:
            self.least_of(found)
        if terms is None:
            return symbol(int(self._root(found)[1:]))
        if len(terms) == 1:
            ((names, coefficient),) = terms.items()
            size = monomial(coefficient, [int(name[1:]) for name in names]) if coefficient > 0 else None
            if size is not None:
                return size
        return symbol(self._index(found, found))

    def natural(self, formula: Formula) -> Formula:
        """A number that must not be less than 0, where it may be open."""
        if isinstance(formula, int):
            return max(formula, 0)
        if self.range(formula)[0] < 0:
            self.least_of(formula)
        return formula

    def _root(self, formula: Formula) -> str:
        """A symbol that stands for a formula which is no polynomial."""
        known = repr(formula)
        if known not in self._known:
            index = self._index(formula, None)
            self.definitions[f"s{index}"] = formula
            self._ranges[f"s{index}"] = self.range(formula)
        return f"s{self._known[known]}"

    def _index(self, formula: Formula, meaning: Formula | None) -> int:
        known = repr(formula)
        if known not in self._known:
            if len(self.meaning) >= _LIMIT:
                raise Unresolved("too many sizes that are computed")
            self._known[known] = len(self.meaning)
            self.meaning.append(meaning)
        return self._known[known]

    def simple(self, formula: Formula) -> Formula:
        """The formula with what divides or chooses named, where it is part of a sum or product."""
        terms = polynomial(formula)
        if terms is not None:
            return formula_of(terms)
        if isinstance(formula, tuple) and formula[0] in "+-*":
            operator, left, right = formula
            parts = [self._named(self.simple(part)) for part in (left, right)]
            return normal(apply(operator, *parts))
        return formula

    def _named(self, formula: Formula) -> Formula:
        return formula if polynomial(formula) is not None else self._root(formula)

    # -- what is computed

    def apply(self, operator: str, left: Formula, right: Formula) -> Formula:
        """``left operator right``, decided where it always comes out the same."""
        left, right = self._named(self.simple(left)), self._named(self.simple(right))
        made = normal(apply(operator, left, right))
        if operator in ("min", "max") and not isinstance(made, int):
            apart = self.range(apply("-", right, left))
            if apart[0] >= 0:
                made = left if operator == "min" else right
            elif apart[1] is not None and apart[1] <= 0:
                made = right if operator == "min" else left
        if operator in ("%", "ceildiv") and isinstance(right, int) and right > 0:
            divided = self._divided(operator, left, right)
            made = made if divided is None else divided
        if len(repr(made)) > _DEPTH * 16:
            raise Unresolved("a size that is computed of too much")
        return made

    def floor(self, left: Formula, by: Formula) -> Formula:
        """How often ``by``, which is above 0, goes into ``left``, which is not below 0."""
        below = self.apply("-", left, self.apply("-", by, 1))
        exact = self._divided("ceildiv", below, by) if isinstance(by, int) else None
        return self.apply("ceildiv", self.apply("max", below, 0), by) if exact is None else exact

    @staticmethod
    def _divided(operator: str, left: Formula, by: int) -> Formula | None:
        """Of a sum whose terms are all divided, or all but a number."""
        terms = polynomial(left)
        if terms is None or any(names and number % by for names, number in terms.items()):
            return None
        rest = terms.get((), 0)
        if operator == "%":
            return rest % by
        return formula_of({names: -(-number // by) for names, number in terms.items() if -(-number // by)})

    def range(self, formula: Formula) -> tuple[int, int | None]:
        """The least and the greatest value, None where there is none."""
        formula = normal(formula)
        if isinstance(formula, int):
            return formula, formula
        if isinstance(formula, str):
            found = self._ranges.get(formula, (0, None))
            return max(found[0], self.least.get(formula, found[0])), found[1]
        terms = polynomial(formula)
        if terms is not None:
            return self._range_of(terms)
        operator, left, right = formula
        (a, b), (c, d) = self.range(left), self.range(right)
        match operator:
            case "%" if isinstance(right, int):
                return 0, right - 1
            case "ceildiv" if isinstance(right, int) and right > 0:
                return -(-a // right), None if b is None else -(-b // right)
            case "min":
                return min(a, c), b if d is None else d if b is None else min(b, d)
            case "max":
                return max(a, c), None if b is None or d is None else max(b, d)
            case _:
                return _NOWHERE, None

    def _range_of(self, terms: Mapping[tuple[str, ...], int]) -> tuple[int, int | None]:
        low: float = 0
        high: float = 0
        for names, number in terms.items():
            ends = [number * end for end in self._range_of_product(names)]
            low, high = low + min(ends), high + max(ends)
        return int(max(low, _NOWHERE)), None if high == math.inf else int(high)

    def _range_of_product(self, names: Sequence[str]) -> tuple[float, float]:
        """The least and the greatest value of a product: integers, or infinities where there is none."""
        least: float = 1
        most: float = 1
        for name in names:
            a, b = self.range(name)
            mine = (-math.inf if a <= _NOWHERE else a, math.inf if b is None else b)
            ends = [x * y if x and y else 0 for x in (least, most) for y in mine]
            least, most = min(ends), max(ends)
        return least, most

    def shown(self, formula: Formula) -> tuple[str, Formula, Formula] | None:
        """The operation that a formula is, or that it names; None where it is none."""
        found = self.definitions.get(formula, formula) if isinstance(formula, str) else formula
        return found if isinstance(found, tuple) else None

    # -- at a call, and at a sample

    def roots(self, used: Iterable[int]) -> list[int]:
        """The roots of some symbols: what code knows as sizes of their own, by index."""
        found: set[int] = set()
        for index in used:
            meaning = self.meaning[index]
            found |= {index} if meaning is None else {int(name[1:]) for name in symbols_in(meaning)}
        return sorted(found)

    def expanded(self, formula: Formula) -> Formula:
        """A formula over the symbols of the arguments."""
        if isinstance(formula, str) and formula in self.definitions:
            return self.expanded(self.definitions[formula])
        if not isinstance(formula, tuple):
            return formula
        operator, left, right = formula
        return apply(operator, self.expanded(left), self.expanded(right))

    def values(self, given: Sequence[int]) -> list[int]:
        """The values of all symbols, of those of the arguments."""
        names = {f"s{index}": value for index, value in enumerate(given)}
        found = list(given)
        for index in range(self.count, len(self.meaning)):
            meaning = self.meaning[index]
            formula = self.definitions[f"s{index}"] if meaning is None else meaning
            found.append(_evaluated(formula, names))
            names[f"s{index}"] = found[-1]
        return found


def _evaluated(formula: Formula, names: Mapping[str, int]) -> int:
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return names[formula]
    operator, left, right = formula
    a, b = _evaluated(left, names), _evaluated(right, names)
    if operator in ("%", "ceildiv") and b <= 0:
        raise Unresolved("a division by nothing")
    return EVALUATE[operator](a, b)

"""Symbols of sizes: those of the arguments, and those that are derived from them.

A derived symbol is a *sum*, a polynomial that is no monomial, or a *root*: what divides or chooses, and is
a symbol of its own as far as code is concerned. Formulas are over roots, by name ``s<index>``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import EVALUATE, Formula, apply, evaluate, replaced, symbols_in
from kcache_compiler.shapes.monomial import factors, monomial, symbol
from kcache_compiler.shapes.polynomial import Polynomial, formula_of, normal, polynomial
from kcache_compiler.spec.graph.nodes import DYNAMIC

#: Most that one value of sizes may be made of.
_DEPTH = 64
_LIMIT = 200
#: Quotients of one sum that are looked into.
_CLOSER = 3
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
        found = self.plain(self.simple(formula))
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
            apart = apply("-", right, left)
            for low, high in map(self.range, (apart, self.plain(apart))):
                if low >= 0:
                    made = left if operator == "min" else right
                elif high is not None and high <= 0:
                    made = right if operator == "min" else left
        if operator == "%" and self.range(left)[0] >= 0 and self.range(apply("-", right, left))[0] > 0:
            made = left
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

    def quotient(self, of: Formula, by: int) -> Formula:
        """What is not below 0 divided and rounded up: one symbol, where something is left to divide."""
        whole = self._named(self.simple(of))
        if by == 1 or isinstance(whole, int):
            return self.apply("ceildiv", whole, by)
        return self._root(apply("ceildiv", whole, by))

    def plain(self, formula: Formula) -> Formula:
        """The formula with every rest written by its quotient: ``x % m`` as ``x - m * (x / m)``."""
        meaning = {name: self._by_quotient(name) for name in symbols_in(formula)}
        known = {name: found for name, found in meaning.items() if found is not None}
        return normal(replaced(formula, known)) if known else formula

    def _by_quotient(self, name: str) -> Formula | None:
        """A rest, or whether there is one, by quotients; None of anything else."""
        shown = self.definitions.get(name)
        rest = self._rest(name)
        if rest is not None:
            of, by = rest
            return normal(apply("-", self.plain(of), apply("*", by, self._quotient(of, by))))
        if not isinstance(shown, tuple) or shown[0] not in ("min", "max"):
            return None
        some = shown[0] == "min" and shown[2] == 1
        of_rest = shown[1] if some else normal(apply("-", 1, shown[1]))
        rest = self._rest(of_rest) if some or shown[2] == 0 else None
        if rest is None:
            return None
        of, by = rest
        up = self._named(self.simple(self.apply("ceildiv", of, by)))
        truth = normal(apply("-", up, self._quotient(of, by)))
        return truth if some else normal(apply("-", 1, truth))

    def _rest(self, formula: Formula) -> tuple[Formula, int] | None:
        """What is divided, which is not below 0, and by which number, of a symbol that is the rest."""
        shown = self.definitions.get(formula) if isinstance(formula, str) else None
        if not isinstance(shown, tuple) or shown[0] != "%" or not isinstance(shown[2], int):
            return None
        return (shown[1], shown[2]) if shown[2] > 0 and self.range(shown[1])[0] >= 0 else None

    def _quotient(self, of: Formula, by: int) -> Formula:
        """Rounded down, as a symbol."""
        return self._named(self.simple(self.floor(of, by)))

    def divides(self, size: int) -> bool:
        """Whether what divides or chooses is in a size."""
        return bool(symbols_in(self.formula(size)) & set(self.definitions))

    def _divided(self, operator: str, left: Formula, by: int) -> Formula | None:
        """Of a sum: what of it is divided, and one quotient or rest of what is not; None of no sum, and where
        what is not divided may be below 0.

        Half of what may be odd is written by the half that is rounded down: both halves are the whole.
        """
        terms = polynomial(self.plain(left))
        if terms is None:
            return None
        whole = {names: -(-number // by) if not names else number // by for names, number in terms.items()}
        rest = {names: number - by * whole[names] for names, number in terms.items()}
        rest = {names: number for names, number in rest.items() if number}
        divided = formula_of({names: number for names, number in whole.items() if number})
        odd = rest.get((), 0)
        if not rest.keys() - {()}:
            return odd % by if operator == "%" else divided
        if self.range(formula_of({**rest, (): 0}))[0] < 0:
            return None
        if operator == "%":
            return (
                None
                if rest == terms
                else apply("%", normal(apply("+", formula_of(rest), by if odd else 0)), by)
            )
        if by == 2 and not odd:
            half = apply("-", formula_of(rest), self._quotient_of(formula_of({**rest, (): -1}), by))
            return normal(apply("+", divided, half))
        return normal(apply("+", divided, self._quotient_of(formula_of(rest), by)))

    def _quotient_of(self, base: Formula, by: int) -> str:
        """The symbol of ``base`` divided and rounded up, where that is above ``-by``."""
        if self.range(base)[0] < 0:
            base = self._root(apply("max", base, 0))
        return self._root(apply("ceildiv", base, by))

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
            return self._range_of_sum(terms)
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

    def _range_of_sum(self, terms: Polynomial) -> tuple[int, int | None]:
        """The range of a sum, as what it is of the sizes that it divides, where that is narrower."""
        low, high = self._range_of(terms)
        turned = {names: -number for names, number in terms.items()}
        if low < 0:
            low = max(low, self._least(terms, _CLOSER))
        if high is None:
            found = self._least(turned, _CLOSER)
            high = -found if found > _NOWHERE else None
        return low, high

    def _least(self, terms: Polynomial, left: int) -> int:
        """What a sum is at least: quotients are not below what they round up, and less than one above."""
        found, _ = self._range_of(terms)
        if found >= 0 or not left:
            return found
        for names, number in terms.items():
            shown = self.definitions.get(names[0]) if len(names) == 1 else None
            if not isinstance(shown, tuple) or shown[0] != "ceildiv" or not isinstance(shown[2], int):
                continue
            by = shown[2]
            of = polynomial(apply("+", shown[1], by - 1 if number < 0 else 0)) if by > 0 else None
            rest = formula_of({one: by * count for one, count in terms.items() if one != names})
            whole = None if of is None else polynomial(apply("+", rest, apply("*", number, formula_of(of))))
            if whole is not None:
                found = max(found, -(-self._least(whole, left - 1) // by))
        return found

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

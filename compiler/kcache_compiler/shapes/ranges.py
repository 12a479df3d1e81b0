"""Value ranges of formulas: interval arithmetic over symbols with lower bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kcache_compiler.shapes.formula import Formula, Polynomial, apply, formula_of, normalize, polynomial

#: Quotients within one sum that are replaced by their dividends to narrow its range.
_MAX_SUBSTITUTIONS = 3
#: The lower bound of a formula that has none.
UNBOUNDED = -(1 << 62)

Range = tuple[int, int | None]


class Ranges:
    """The least and the greatest value of formulas, of which the greatest may be unknown (None)."""

    def __init__(self, definitions: Mapping[str, Formula], lower_bounds: Mapping[str, int]) -> None:
        """``definitions`` has the formulas of opaque symbols and may grow; other symbols are at least 0, or
        at least ``lower_bounds``.
        """
        self._definitions = definitions
        self._lower_bounds = lower_bounds
        self._opaque: dict[str, Range] = {}

    def define(self, name: str, formula: Formula) -> None:
        """Give an opaque symbol the range of its formula."""
        self._opaque[name] = self.of(formula)

    def of(self, formula: Formula) -> Range:
        """Return the least and the greatest value; None where no upper bound is known."""
        formula = normalize(formula)
        if isinstance(formula, int):
            return formula, formula
        if isinstance(formula, str):
            low, high = self._opaque.get(formula, (0, None))
            return max(low, self._lower_bounds.get(formula, low)), high
        terms = polynomial(formula)
        if terms is not None:
            return self._of_sum(terms)
        operator, left, right = formula
        (a, b), (c, d) = self.of(left), self.of(right)
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
                return UNBOUNDED, None

    def _of_sum(self, terms: Polynomial) -> Range:
        """The range of a sum, narrowed by replacing its quotients by what they divide."""
        low, high = self._of_terms(terms)
        negated = {names: -coefficient for names, coefficient in terms.items()}
        if low < 0:
            low = max(low, self._lower_bound(terms, _MAX_SUBSTITUTIONS))
        if high is None:
            bound = self._lower_bound(negated, _MAX_SUBSTITUTIONS)
            high = -bound if bound > UNBOUNDED else None
        return low, high

    def _lower_bound(self, terms: Polynomial, substitutions: int) -> int:
        """A lower bound, by ``x <= m * ceildiv(x, m) <= x + m - 1``."""
        bound, _ = self._of_terms(terms)
        if bound >= 0 or not substitutions:
            return bound
        for names, coefficient in terms.items():
            definition = self._definitions.get(names[0]) if len(names) == 1 else None
            if not isinstance(definition, tuple) or definition[0] != "ceildiv":
                continue
            _, dividend, divisor = definition
            if not isinstance(divisor, int):
                continue
            slack = divisor - 1 if coefficient < 0 else 0
            numerator = polynomial(apply("+", dividend, slack)) if divisor > 0 else None
            rest = formula_of({other: divisor * count for other, count in terms.items() if other != names})
            if numerator is None:
                continue
            scaled = polynomial(apply("+", rest, apply("*", coefficient, formula_of(numerator))))
            if scaled is not None:
                bound = max(bound, -(-self._lower_bound(scaled, substitutions - 1) // divisor))
        return bound

    def _of_terms(self, terms: Mapping[tuple[str, ...], int]) -> Range:
        low: float = 0
        high: float = 0
        for names, coefficient in terms.items():
            ends = [coefficient * end for end in self._of_product(names)]
            low, high = low + min(ends), high + max(ends)
        return int(max(low, UNBOUNDED)), None if high == math.inf else int(high)

    def _of_product(self, names: Sequence[str]) -> tuple[float, float]:
        """The range of a product of symbols; infinities where a bound is unknown."""
        low: float = 1
        high: float = 1
        for name in names:
            a, b = self.of(name)
            bounds = (-math.inf if a <= UNBOUNDED else a, math.inf if b is None else b)
            ends = [x * y if x and y else 0 for x in (low, high) for y in bounds]
            low, high = min(ends), max(ends)
        return low, high

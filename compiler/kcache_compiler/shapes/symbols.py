"""Symbols of sizes: those of the arguments, and those that are derived from them.

A derived symbol is *composite* if it is a polynomial that is no monomial (``s0 + 3``), and *opaque* if it
divides or chooses (``ceildiv(s0, 2)``, ``max(s0, 5)``). Argument symbols and opaque symbols are independent:
formulas in normal form are polynomials over them, by name ``s<index>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.formula import (
    EVALUATE,
    Check,
    Formula,
    UnresolvedSize,
    apply,
    evaluate,
    formula_of,
    normalize,
    polynomial,
    substitute,
    symbols_in,
)
from kcache_compiler.shapes.monomial import factors, monomial, symbol
from kcache_compiler.shapes.ranges import Range, Ranges

#: Longest text of one formula, and most symbols of one program.
_MAX_FORMULA = 1024
_MAX_SYMBOLS = 200


def _ignore(_: Formula) -> None:
    """Sizes of arguments are not below 0."""


@dataclass(frozen=True)
class SymbolFact:
    """What guards say of an argument symbol: it is ``factor * t - offset`` for a size ``t``, or ``formula``
    of the other symbols.
    """

    factor: int = 1
    offset: int = 0
    formula: Formula | None = None

    def check(self, name: str) -> Check:
        """Return the guard that the fact comes from."""
        if self.formula is not None:
            return Check(name, self.formula, equal=True)
        return Check(apply("%", apply("+", name, self.offset), self.factor), 0, equal=True)

    def value(self, sample: Sequence[int], index: int) -> int:
        """Return the size of symbol ``index``, whose value in ``sample`` is ``t``."""
        if self.formula is not None:
            return evaluate(self.formula, {f"s{other}": size for other, size in enumerate(sample)})
        return self.factor * sample[index] - self.offset


class SymbolTable:
    """The symbols of one program; the first ``argument_count`` are sizes of arguments."""

    def __init__(
        self, argument_count: int, lower_bounds: Mapping[str, int], facts: Mapping[int, SymbolFact]
    ) -> None:
        """``lower_bounds`` by name of an independent symbol; ``facts`` by index of an argument symbol."""
        self.argument_count = argument_count
        #: By index: the symbol over independent ones; None of an independent symbol.
        self.expansions: list[Formula | None] = [None] * argument_count
        #: Formulas of opaque symbols, over argument symbols and other opaque ones.
        self.definitions: dict[str, Formula] = {}
        #: Called with each formula that is a size, and therefore must not be below 0.
        self.require_nonnegative: Callable[[Formula], None] = _ignore
        self._indices: dict[str, int] = {}
        self._ranges = Ranges(self.definitions, lower_bounds)
        for index, fact in sorted(facts.items(), key=lambda item: (item[1].formula is not None, item[0])):
            self._apply_fact(index, fact)

    def _apply_fact(self, index: int, fact: SymbolFact) -> None:
        if fact.formula is not None:
            known = {f"s{other}": e for other, e in enumerate(self.expansions) if e is not None}
            self.expansions[index] = self._as_polynomial(self.simplify(substitute(fact.formula, known)))
            return
        quotient = self._opaque(apply("ceildiv", apply("+", f"s{index}", fact.offset), fact.factor))
        self.expansions[index] = normalize(apply("-", apply("*", fact.factor, quotient), fact.offset))

    # -- sizes of a spec and formulas

    def formula(self, size: int) -> Formula:
        """Return a size of the graph over independent symbols; raises ``UnresolvedSize``."""
        if size < 0:
            raise UnresolvedSize("a size that depends on data")
        coefficient, indices = factors(size)
        formula: Formula = coefficient
        for index in indices:
            expansion = self.expansions[index]
            formula = apply("*", formula, f"s{index}" if expansion is None else expansion)
        return normalize(formula)

    def size(self, formula: Formula) -> int:
        """Return a formula as a size of the graph, which may be a new derived symbol."""
        formula = self.without_remainders(self.simplify(formula))
        if isinstance(formula, int):
            if formula < 0:
                raise UnresolvedSize("a negative size")
            return formula
        terms = polynomial(formula)
        self.nonnegative(formula)
        if terms is None:
            return symbol(int(self._opaque(formula)[1:]))
        if len(terms) == 1:
            ((names, coefficient),) = terms.items()
            size = monomial(coefficient, [int(name[1:]) for name in names]) if coefficient > 0 else None
            if size is not None:
                return size
        return symbol(self._index(formula, formula))

    def nonnegative(self, formula: Formula) -> Formula:
        """Return the formula, which is required not to be below 0; a constant is clamped to 0."""
        if isinstance(formula, int):
            return max(formula, 0)
        if self.range(formula)[0] < 0:
            self.require_nonnegative(formula)
        return formula

    def _opaque(self, formula: Formula) -> str:
        """The symbol that stands for a formula which is no polynomial."""
        text = repr(formula)
        if text not in self._indices:
            name = f"s{self._index(formula, None)}"
            self.definitions[name] = formula
            self._ranges.define(name, formula)
        return f"s{self._indices[text]}"

    def _index(self, formula: Formula, expansion: Formula | None) -> int:
        text = repr(formula)
        if text not in self._indices:
            if len(self.expansions) >= _MAX_SYMBOLS:
                raise UnresolvedSize("too many derived sizes")
            self._indices[text] = len(self.expansions)
            self.expansions.append(expansion)
        return self._indices[text]

    # -- arithmetic

    def simplify(self, formula: Formula) -> Formula:
        """Return the normal form: operands of sums and products that divide or choose become symbols."""
        terms = polynomial(formula)
        if terms is not None:
            return formula_of(terms)
        if isinstance(formula, tuple) and formula[0] in "+-*":
            operator, *operands = formula
            left, right = (self._as_polynomial(self.simplify(operand)) for operand in operands)
            return normalize(apply(operator, left, right))
        return formula

    def _as_polynomial(self, formula: Formula) -> Formula:
        return formula if polynomial(formula) is not None else self._opaque(formula)

    def apply(self, operator: str, left: Formula, right: Formula) -> Formula:
        """Return ``left operator right`` without choices that ranges decide and exact divisions."""
        left, right = self._as_polynomial(self.simplify(left)), self._as_polynomial(self.simplify(right))
        result = normalize(apply(operator, left, right))
        if operator in ("min", "max") and not isinstance(result, int):
            chosen = self._choice(operator, left, right)
            result = result if chosen is None else chosen
        if operator == "%" and self.range(left)[0] >= 0 and self.range(apply("-", right, left))[0] > 0:
            result = left
        if operator in ("%", "ceildiv") and isinstance(right, int) and right > 0:
            divided = self._divide_sum(operator, left, right)
            result = result if divided is None else divided
        if len(repr(result)) > _MAX_FORMULA:
            raise UnresolvedSize("a formula that is too long")
        return result

    def _choice(self, operator: str, left: Formula, right: Formula) -> Formula | None:
        """The operand that ``min`` or ``max`` always returns, if ranges tell which."""
        chosen: Formula | None = None
        difference = apply("-", right, left)
        for low, high in map(self.range, (difference, self.without_remainders(difference))):
            if low >= 0:
                chosen = left if operator == "min" else right
            elif high is not None and high <= 0:
                chosen = right if operator == "min" else left
        return chosen

    def floor_divide(self, dividend: Formula, divisor: Formula) -> Formula:
        """Return the quotient rounded down of ``dividend >= 0`` by ``divisor > 0``."""
        numerator = self.apply("-", dividend, self.apply("-", divisor, 1))
        exact = self._divide_sum("ceildiv", numerator, divisor) if isinstance(divisor, int) else None
        return self.apply("ceildiv", self.apply("max", numerator, 0), divisor) if exact is None else exact

    def opaque_quotient(self, dividend: Formula, divisor: int) -> Formula:
        """Return the quotient rounded up of ``dividend >= 0`` as one symbol, unless it is trivial."""
        dividend = self._as_polynomial(self.simplify(dividend))
        if divisor == 1 or isinstance(dividend, int):
            return self.apply("ceildiv", dividend, divisor)
        return self._opaque(apply("ceildiv", dividend, divisor))

    def without_remainders(self, formula: Formula) -> Formula:
        """Return the formula with each remainder ``x % m`` written as ``x - m * floor(x / m)``."""
        replacements = {name: self._by_quotient(name) for name in symbols_in(formula)}
        known = {name: quotient for name, quotient in replacements.items() if quotient is not None}
        return normalize(substitute(formula, known)) if known else formula

    def _by_quotient(self, name: str) -> Formula | None:
        """A remainder, or the boolean whether it is 0 or not, over quotients; None of another symbol."""
        definition = self.definitions.get(name)
        division = self._remainder(name)
        if division is not None:
            dividend, divisor = division
            plain = self.without_remainders(dividend)
            return normalize(apply("-", plain, apply("*", divisor, self._floor_quotient(dividend, divisor))))
        if not isinstance(definition, tuple) or definition[0] not in ("min", "max"):
            return None
        operator, operand, bound = definition
        is_nonzero = operator == "min" and bound == 1  # min(x % m, 1); its negation is max(1 - x % m, 0)
        remainder = operand if is_nonzero else normalize(apply("-", 1, operand))
        division = self._remainder(remainder) if is_nonzero or bound == 0 else None
        if division is None:
            return None
        dividend, divisor = division
        rounded_up = self._as_polynomial(self.simplify(self.apply("ceildiv", dividend, divisor)))
        nonzero = normalize(apply("-", rounded_up, self._floor_quotient(dividend, divisor)))
        return nonzero if is_nonzero else normalize(apply("-", 1, nonzero))

    def _remainder(self, formula: Formula) -> tuple[Formula, int] | None:
        """Dividend, which is not below 0, and constant divisor of a symbol that is a remainder."""
        definition = self.definitions.get(formula) if isinstance(formula, str) else None
        if not isinstance(definition, tuple) or definition[0] != "%":
            return None
        _, dividend, divisor = definition
        if not isinstance(divisor, int) or divisor <= 0 or self.range(dividend)[0] < 0:
            return None
        return dividend, divisor

    def _floor_quotient(self, dividend: Formula, divisor: int) -> Formula:
        return self._as_polynomial(self.simplify(self.floor_divide(dividend, divisor)))

    def _divide_sum(self, operator: str, dividend: Formula, divisor: int) -> Formula | None:
        """``ceildiv`` or ``%`` of a sum: what divides exactly, and one quotient or remainder of the rest.

        None if ``dividend`` is no sum, or if the rest may be below 0. Half of a size ``n`` that may be odd is
        written by the half that is rounded down, so that both halves add up to ``n``.
        """
        terms = polynomial(self.without_remainders(dividend))
        if terms is None:
            return None
        quotients = {
            names: -(-count // divisor) if not names else count // divisor for names, count in terms.items()
        }
        rest = {names: count - divisor * quotients[names] for names, count in terms.items()}
        rest = {names: count for names, count in rest.items() if count}
        exact = formula_of({names: count for names, count in quotients.items() if count})
        constant = rest.get((), 0)
        if not rest.keys() - {()}:
            return constant % divisor if operator == "%" else exact
        if self.range(formula_of({**rest, (): 0}))[0] < 0:
            return None
        if operator == "%":
            if rest == terms:
                return None
            return apply("%", normalize(apply("+", formula_of(rest), divisor if constant else 0)), divisor)
        if divisor == 2 and not constant:
            lower_half = self._ceil_quotient(formula_of({**rest, (): -1}), divisor)
            return normalize(apply("+", exact, apply("-", formula_of(rest), lower_half)))
        return normalize(apply("+", exact, self._ceil_quotient(formula_of(rest), divisor)))

    def _ceil_quotient(self, dividend: Formula, divisor: int) -> str:
        """The symbol of a quotient rounded up, of a dividend above ``-divisor``."""
        if self.range(dividend)[0] < 0:
            dividend = self._opaque(apply("max", dividend, 0))
        return self._opaque(apply("ceildiv", dividend, divisor))

    # -- queries

    def range(self, formula: Formula) -> Range:
        """Return the least and the greatest value; None where no upper bound is known."""
        return self._ranges.of(formula)

    def is_opaque(self, size: int) -> bool:
        """Return whether a size contains a division or a choice."""
        return bool(symbols_in(self.formula(size)) & set(self.definitions))

    def operation(self, formula: Formula) -> tuple[str, Formula, Formula] | None:
        """Return the operation that a formula is, or that the opaque symbol stands for; None of others."""
        definition = self.definitions.get(formula, formula) if isinstance(formula, str) else formula
        return definition if isinstance(definition, tuple) else None

    def independent(self, indices: Iterable[int]) -> list[int]:
        """Return the independent symbols, by index, that symbols are made of."""
        independent: set[int] = set()
        for index in indices:
            expansion = self.expansions[index]
            independent |= {index} if expansion is None else {int(name[1:]) for name in symbols_in(expansion)}
        return sorted(independent)

    def expand(self, formula: Formula) -> Formula:
        """Return a formula over argument symbols only."""
        if isinstance(formula, str) and formula in self.definitions:
            return self.expand(self.definitions[formula])
        if not isinstance(formula, tuple):
            return formula
        operator, left, right = formula
        return apply(operator, self.expand(left), self.expand(right))

    def values(self, argument_sizes: Sequence[int]) -> list[int]:
        """Return the values of all symbols for these sizes of the argument symbols.

        Raises ``UnresolvedSize`` where a divisor is not above 0.
        """
        sizes = {f"s{index}": value for index, value in enumerate(argument_sizes)}
        values = list(argument_sizes)
        for index in range(self.argument_count, len(self.expansions)):
            expansion = self.expansions[index]
            formula = self.definitions[f"s{index}"] if expansion is None else expansion
            values.append(_evaluate(formula, sizes))
            sizes[f"s{index}"] = values[-1]
        return values


def _evaluate(formula: Formula, sizes: Mapping[str, int]) -> int:
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return sizes[formula]
    operator, left, right = formula
    a, b = _evaluate(left, sizes), _evaluate(right, sizes)
    if operator in ("%", "ceildiv") and b <= 0:
        raise UnresolvedSize("a division by 0")
    return EVALUATE[operator](a, b)

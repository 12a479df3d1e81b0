"""Size expressions ("formulas"): integers, symbols and the operators of the manifest's grammar.

A formula is an ``int``, the name of a symbol, or ``(operator, left, right)``. Constructors fold constants and
neutral elements: a program of static shapes has integer formulas only, and equal sizes mostly have equal
formulas. The normal form of a formula without division and choice is a ``Polynomial`` over symbols. A
``Check`` is a relation between two formulas: proven for all sizes, or checked when a kernel is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from kcache_compiler.shapes.monomial import factors

Formula: TypeAlias = Union[int, str, "tuple[str, Formula, Formula]"]

_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|[-+*%(),]")
_INFIX = {"+": 1, "-": 1, "*": 2, "%": 2}


class UnresolvedSize(Exception):
    """Shape inference has no formula for a size, which ``args`` describes."""


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def _roundup(a: int, b: int) -> int:
    return -(-a // b) * b


EVALUATE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": lambda a, b: a % b,
    "ceildiv": _ceildiv,
    "roundup": _roundup,
    "min": min,
    "max": max,
}


def apply(operator: str, a: Formula, b: Formula) -> Formula:
    """Return ``a operator b``, folded. The caller ensures that a divisor is not 0."""
    if isinstance(a, int) and isinstance(b, int) and not (b == 0 and operator in ("%", "ceildiv", "roundup")):
        return EVALUATE[operator](a, b)
    match operator, a, b:
        case ("+", 0, other) | ("+", other, 0) | ("-", other, 0):
            return other
        case ("*", 1, other) | ("*", other, 1) | ("ceildiv", other, 1) | ("roundup", other, 1):
            return other
        case ("*", 0, _) | ("*", _, 0):
            return 0
        case (("min" | "max"), _, _) if a == b:
            return a
        case ("-", _, _) if a == b:
            return 0
        case (("+" | "*" | "min" | "max"), _, _):
            left, right = sorted((a, b), key=_order)
            return (operator, left, right)
        case _:
            return (operator, a, b)


def _order(formula: Formula) -> tuple[bool, str]:
    return isinstance(formula, int), repr(formula)


def add(a: Formula, b: Formula) -> Formula:
    """Return ``a + b``, folded."""
    return a + b if isinstance(a, int) and isinstance(b, int) else apply("+", a, b)


def mul(a: Formula, b: Formula) -> Formula:
    """Return ``a * b``, folded."""
    return a * b if isinstance(a, int) and isinstance(b, int) else apply("*", a, b)


def product(factors: Sequence[Formula]) -> Formula:
    """Return the product of the factors, folded; 1 if there are none."""
    total: Formula = 1
    for factor in factors:
        total = mul(total, factor)
    return total


def text(formula: Formula, outer: int = 0) -> str:
    """Return the formula in the manifest's grammar; ``outer`` is the precedence of the enclosing operator."""
    if not isinstance(formula, tuple):
        return str(formula)
    operator, a, b = formula
    if operator not in _INFIX:
        return f"{operator}({text(a)},{text(b)})"
    level = _INFIX[operator]
    chained = operator in "+*" and isinstance(b, tuple) and b[0] == operator
    written = f"{text(a, level)} {operator} {text(b, level if chained else level + 1)}"
    return f"({written})" if level < outer else written


def evaluate(formula: Formula, symbols: dict[str, int]) -> int:
    """Return the value of a formula for these sizes of its symbols."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return symbols[formula]
    operator, a, b = formula
    return EVALUATE[operator](evaluate(a, symbols), evaluate(b, symbols))


def substitute(formula: Formula, replacements: Mapping[str, Formula]) -> Formula:
    """Return the formula with symbols replaced by formulas; other symbols are kept."""
    if isinstance(formula, tuple):
        operator, a, b = formula
        return apply(operator, substitute(a, replacements), substitute(b, replacements))
    return replacements.get(formula, formula) if isinstance(formula, str) else formula


def symbols_in(formula: Formula) -> set[str]:
    """Return the names of the symbols of a formula."""
    if isinstance(formula, tuple):
        return symbols_in(formula[1]) | symbols_in(formula[2])
    return {formula} if isinstance(formula, str) else set()


def evaluate_text(written: str, symbols: dict[str, int]) -> int:
    """Return the value of a formula in the manifest's grammar for these sizes of its symbols."""
    tokens = _TOKEN.findall(written)
    value, rest = _sum(tokens, symbols)
    if rest:
        raise ValueError(f"not a formula: {written!r}")
    return value


def _sum(tokens: list[str], symbols: dict[str, int]) -> tuple[int, list[str]]:
    value, tokens = _term(tokens, symbols)
    while tokens and tokens[0] in "+-":
        other, rest = _term(tokens[1:], symbols)
        value, tokens = EVALUATE[tokens[0]](value, other), rest
    return value, tokens


def _term(tokens: list[str], symbols: dict[str, int]) -> tuple[int, list[str]]:
    value, tokens = _factor(tokens, symbols)
    while tokens and tokens[0] in "*%":
        other, rest = _factor(tokens[1:], symbols)
        value, tokens = EVALUATE[tokens[0]](value, other), rest
    return value, tokens


def _factor(tokens: list[str], symbols: dict[str, int]) -> tuple[int, list[str]]:
    head, *rest = tokens
    if head == "-":
        value, rest = _factor(rest, symbols)
        return -value, rest
    if head == "(":
        value, rest = _sum(rest, symbols)
        return value, rest[1:]
    if head in EVALUATE:
        left, rest = _sum(rest[1:], symbols)
        right, rest = _sum(rest[1:], symbols)
        return EVALUATE[head](left, right), rest[1:]
    return (int(head) if head.isdigit() else symbols[head]), rest


#: Names of the symbols of a monomial, sorted, with repetitions -> its coefficient; never 0.
Polynomial: TypeAlias = dict[tuple[str, ...], int]


def polynomial(formula: Formula) -> Polynomial | None:
    """Return the formula multiplied out; None if it divides or chooses (``%``, ``ceildiv``, ``min``, ...)."""
    if isinstance(formula, int):
        return {(): formula} if formula else {}
    if isinstance(formula, str):
        return {(formula,): 1}
    operator, left, right = formula
    if operator not in ("+", "-", "*"):
        return None
    a, b = polynomial(left), polynomial(right)
    if a is None or b is None:
        return None
    return _multiply_terms(a, b) if operator == "*" else _add_terms(a, b, 1 if operator == "+" else -1)


def subtract(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return ``a - b``."""
    return _add_terms(a, b, -1)


def _add_terms(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for names, coefficient in b.items():
        total[names] = total.get(names, 0) + sign * coefficient
    return {names: coefficient for names, coefficient in total.items() if coefficient}


def _multiply_terms(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            total = _add_terms(total, {tuple(sorted(left + right)): x * y}, 1)
    return total


def formula_of(terms: Polynomial) -> Formula:
    """Return the polynomial as a formula; equal polynomials give equal formulas."""
    total: Formula = 0
    for names in sorted(terms, key=lambda names: (-len(names), names)):
        term: Formula = 1
        for name in names:
            term = mul(term, name)
        total = add(total, mul(terms[names], term))
    return total


def formula_of_size(size: int) -> Formula:
    """Return a size of a spec, an integer or a monomial of symbols, as a formula over ``s0``, ``s1``, ..."""
    coefficient, indices = factors(size)
    return formula_of({tuple(f"s{index}" for index in indices): coefficient} if coefficient else {})


def normalize(formula: Formula) -> Formula:
    """Return the normal form of a polynomial; other formulas are returned unchanged."""
    terms = polynomial(formula)
    return formula if terms is None else formula_of(terms)


def monomial_text(formula: Formula) -> str | None:
    """Return ``2*s0*s1`` for a formula that is a monomial, else None."""
    terms = polynomial(formula)
    if terms is None or len(terms) != 1:
        return None
    ((names, coefficient),) = terms.items()
    return "*".join([str(coefficient), *names] if coefficient != 1 or not names else names)


def proves(left: Formula, right: Formula, equal: bool) -> bool:
    """Return whether ``left == right`` (``equal``), or ``left <= right``, holds for all sizes.

    The test is sufficient, not complete: it compares the coefficients of polynomials, whose symbols are at
    least 0. False means "not proven".
    """
    if left == right:
        return True
    a, b = polynomial(left), polynomial(right)
    if a is None or b is None:
        return False
    difference = subtract(b, a)
    return not difference if equal else all(coefficient >= 0 for coefficient in difference.values())


@dataclass(frozen=True)
class Check:
    """The runtime check ``left == right`` (``equal``) or ``left <= right``: made before the kernel runs.

    Not a guard, which chooses among variants.
    """

    left: Formula
    right: Formula
    equal: bool

    @property
    def holds(self) -> bool:
        """Whether it is proven for all sizes, so that no code is needed."""
        return proves(self.left, self.right, self.equal)

    def met(self, sizes: dict[str, int]) -> bool:
        """Return whether it holds for the sizes of the symbols."""
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        return left == right if self.equal else left <= right

"""Formulas as polynomials, where they are: to see which are equal, and which never exceed which."""

from __future__ import annotations

from typing import TypeAlias

from kcache_compiler.shapes.formula import Formula, add, mul

#: Names of the symbols of a monomial, sorted, with repetitions -> its coefficient; never 0.
Polynomial: TypeAlias = dict[tuple[str, ...], int]


def polynomial(formula: Formula) -> Polynomial | None:
    """The formula multiplied out; None when it divides or chooses."""
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
    return _product(a, b) if operator == "*" else _sum(a, b, 1 if operator == "+" else -1)


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for names, coefficient in b.items():
        total[names] = total.get(names, 0) + sign * coefficient
    return {names: coefficient for names, coefficient in total.items() if coefficient}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            total = _sum(total, {tuple(sorted(left + right)): x * y}, 1)
    return total


def formula_of(terms: Polynomial) -> Formula:
    """The polynomial as a formula; equal polynomials give equal formulas."""
    total: Formula = 0
    for names in sorted(terms, key=lambda names: (-len(names), names)):
        term: Formula = 1
        for name in names:
            term = mul(term, name)
        total = add(total, mul(terms[names], term))
    return total


def normal(formula: Formula) -> Formula:
    """The formula as every equal polynomial has it; itself where it is none."""
    terms = polynomial(formula)
    return formula if terms is None else formula_of(terms)


def settled(left: Formula, right: Formula, equal: bool) -> bool:
    """Whether ``left`` equals ``right``, or is at most ``right``, for all sizes: a sufficient test."""
    if left == right:
        return True
    a, b = polynomial(left), polynomial(right)
    if a is None or b is None:
        return False
    apart = _sum(b, a, -1)
    return not apart if equal else all(coefficient >= 0 for coefficient in apart.values())


def text_of(formula: Formula) -> str | None:
    """``2*s0*s1`` for a formula that is a monomial, else None."""
    terms = polynomial(formula)
    if terms is None or len(terms) != 1:
        return None
    ((names, coefficient),) = terms.items()
    return "*".join([str(coefficient), *names] if coefficient != 1 or not names else names)

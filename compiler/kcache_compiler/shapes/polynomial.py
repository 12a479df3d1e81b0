"""The normal form of formulas without division and choice: polynomials over symbols."""

from __future__ import annotations

from typing import TypeAlias

from kcache_compiler.shapes.formula import Formula, add, mul
from kcache_compiler.shapes.monomial import factors

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
    return _product(a, b) if operator == "*" else _sum(a, b, 1 if operator == "+" else -1)


def subtract(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return ``a - b``."""
    return _sum(a, b, -1)


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

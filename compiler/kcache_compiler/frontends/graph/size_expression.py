"""Sizes of dynamic dimensions: polynomials over symbols, and symbols for sizes that are not polynomials.

A size is an ``int``, or a ``SizeExpression`` if it depends on a symbol. Sizes are the same if they are equal
polynomials; that ``n`` and ``m`` are equal at run time is never assumed. A size that is not a polynomial, as
that of a strided window, is a symbol whose name is the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kcache_compiler.errors import InvalidProgram, LimitExceeded

#: Largest number of terms of one size, and of bits of a coefficient.
_MAX_TERMS = 64
_MAX_BITS = 62

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class SizeExpression:
    """A non-constant polynomial: (symbols with repetitions, coefficient), sorted by symbols."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        return " + ".join(_term(monomial, factor) for monomial, factor in self.terms)


Size = int | SizeExpression


def symbol(name: str) -> SizeExpression:
    """Return the size that is the symbol ``name``."""
    return SizeExpression((((name,), 1),))


def plus(left: Size, right: Size) -> Size:
    """Return the sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    terms = dict(_terms(left))
    for monomial, factor in _terms(right):
        terms[monomial] = terms.get(monomial, 0) + factor
    return _size(terms)


def times(left: Size, right: Size) -> Size:
    """Return the product."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    terms: dict[Monomial, int] = {}
    for left_symbols, left_factor in _terms(left):
        for right_symbols, right_factor in _terms(right):
            monomial = tuple(sorted(left_symbols + right_symbols))
            terms[monomial] = terms.get(monomial, 0) + left_factor * right_factor
    return _size(terms)


def product(sizes: tuple[Size, ...]) -> Size:
    """Return the product of all sizes, 1 for none."""
    result: Size = 1
    for size in sizes:
        result = times(result, size)
    return result


def quotient(left: Size, right: Size) -> Size | None:
    """Return ``left / right`` if it is a polynomial and ``right`` has one term, otherwise None."""
    divisor = _terms(right)
    if len(divisor) != 1:
        return 1 if left == right else None
    (divisor_symbols, divisor_factor) = divisor[0]
    terms: dict[Monomial, int] = {}
    for monomial, factor in _terms(left):
        remaining = list(monomial)
        for name in divisor_symbols:
            if name not in remaining:
                return None
            remaining.remove(name)
        if divisor_factor == 0 or factor % divisor_factor:
            return None
        terms[tuple(remaining)] = factor // divisor_factor
    return _size(terms)


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Return the value of a size for these values of its symbols."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, factor in size.terms:
        for name in monomial:
            factor *= values[name]
        total += factor
    return total


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, SizeExpression):
        return size.terms
    return (((), size),) if size else ()


def _size(terms: dict[Monomial, int]) -> Size:
    nonzero = tuple(sorted((m, f) for m, f in terms.items() if f))
    if len(nonzero) > _MAX_TERMS or any(len(monomial) > _MAX_TERMS for monomial, _ in nonzero):
        raise LimitExceeded("number of terms of a dynamic size", len(nonzero), _MAX_TERMS)
    if any(abs(factor).bit_length() > _MAX_BITS for _, factor in nonzero):
        raise InvalidProgram("a dynamic size does not fit 64 bits")
    if not nonzero:
        return 0
    return nonzero[0][1] if len(nonzero) == 1 and not nonzero[0][0] else SizeExpression(nonzero)


def _term(monomial: Monomial, factor: int) -> str:
    names = [name if name.isidentifier() or name.startswith("?") else f"({name})" for name in monomial]
    return "*".join([str(factor)] * (factor != 1 or not monomial) + names)

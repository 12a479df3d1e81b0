"""Sizes of axes that a graph leaves open: polynomials over symbols, and names for what is none.

A size is an ``int``, or an ``Extent`` where it depends on a symbol. Sizes are the same where they are equal
polynomials; whether ``n`` and ``m`` are equal at run time is never assumed. Sizes that are no polynomials (of
strided windows, say) are symbols whose name is the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kcache_compiler.errors import InvalidProgram, LimitExceeded

#: Terms of one size, and bits of a coefficient: far above any model, and far below what costs time.
_MAX_TERMS = 64
_MAX_BITS = 62

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Extent:
    """A polynomial that is no constant: (symbols with repetitions, coefficient), in the order of symbols."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        return " + ".join(_term(monomial, factor) for monomial, factor in self.terms)


Size = int | Extent


def symbol(name: str) -> Extent:
    """The size that is a symbol."""
    return Extent((((name,), 1),))


def plus(left: Size, right: Size) -> Size:
    """The sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    found = dict(_terms(left))
    for monomial, factor in _terms(right):
        found[monomial] = found.get(monomial, 0) + factor
    return _size(found)


def minus(left: Size, right: Size) -> Size:
    """The difference."""
    return plus(left, times(right, -1))


def times(left: Size, right: Size) -> Size:
    """The product."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    found: dict[Monomial, int] = {}
    for one, factor in _terms(left):
        for other, second in _terms(right):
            monomial = tuple(sorted(one + other))
            found[monomial] = found.get(monomial, 0) + factor * second
    return _size(found)


def product(sizes: tuple[Size, ...]) -> Size:
    """The product of all; 1 of none."""
    result: Size = 1
    for size in sizes:
        result = times(result, size)
    return result


def quotient(left: Size, right: Size) -> Size | None:
    """``left / right`` where that is a size whatever the symbols are (and ``right`` one term), else None."""
    divisor = _terms(right)
    if len(divisor) != 1:
        return 1 if left == right else None
    (by, own) = divisor[0]
    found: dict[Monomial, int] = {}
    for monomial, factor in _terms(left):
        rest = list(monomial)
        for name in by:
            if name not in rest:
                return None
            rest.remove(name)
        if own == 0 or factor % own:
            return None
        found[tuple(rest)] = factor // own
    return _size(found)


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The number that a size is for these values of its symbols."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, factor in size.terms:
        for name in monomial:
            factor *= values[name]
        total += factor
    return total


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, Extent):
        return size.terms
    return (((), size),) if size else ()


def _size(found: dict[Monomial, int]) -> Size:
    kept = tuple(sorted((m, f) for m, f in found.items() if f))
    if len(kept) > _MAX_TERMS or any(len(monomial) > _MAX_TERMS for monomial, _ in kept):
        raise LimitExceeded("number of terms of the size of an open axis", len(kept), _MAX_TERMS)
    if any(abs(factor).bit_length() > _MAX_BITS for _, factor in kept):
        raise InvalidProgram("a size of an open axis does not fit 64 bits")
    if not kept:
        return 0
    return kept[0][1] if len(kept) == 1 and not kept[0][0] else Extent(kept)


def _term(monomial: Monomial, factor: int) -> str:
    names = [name if name.isidentifier() or name.startswith("?") else f"({name})" for name in monomial]
    return "*".join([str(factor)] * (factor != 1 or not monomial) + names)

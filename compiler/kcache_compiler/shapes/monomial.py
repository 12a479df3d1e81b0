"""Sizes of a spec: integers, and where shapes are erased, monomials of symbols.

A size is one int. Below ``SYMBOLIC`` it is the static size (or ``nodes.DYNAMIC``); from ``SYMBOLIC`` on it
encodes ``c * s_i * s_j * ...`` by its structure only, so that equal sizes are equal ints in every process,
are compared and hashed as ints, and fit into views (as ``~size``).

A symbol that shape erasure made stands for a size of at least 2, as sizes 0 and 1 of static programs are not
erased; ``constant_folding.py`` relies on that for extents. The symbol of a dimension that the program leaves
dynamic stands for any size from 0, which is all that ``formula.proves`` assumes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

#: Sizes from here on are symbolic; no tensor has this number of elements.
SYMBOLIC = 1 << 64

_FIELD = 16
_MAX_FACTORS = 8
_FACTORS = 1 << (_FIELD * _MAX_FACTORS)

#: Most symbols of a spec: beyond, further axes keep their sizes.
MAX_SYMBOLS = (1 << _FIELD) - 1

_SIZE = re.compile(r"\d+|(?:\d+\*)?s\d+(?:\*s\d+)*")


def is_symbolic(size: int) -> bool:
    """Whether a size is a monomial of symbols."""
    return size >= SYMBOLIC


def symbol(index: int) -> int:
    """Return the size that is the symbol ``s<index>``."""
    return SYMBOLIC + index + 1


def monomial(coefficient: int, symbols: Sequence[int]) -> int | None:
    """Return ``coefficient`` times the symbols, given by index; None when there are too many to code."""
    if not symbols:
        return coefficient
    if len(symbols) > _MAX_FACTORS:
        return None
    code = 0
    for position, index in enumerate(sorted(symbols)):
        code |= (index + 1) << (_FIELD * position)
    return SYMBOLIC + code + (coefficient - 1) * _FACTORS


@lru_cache(4096)
def factors(size: int) -> tuple[int, tuple[int, ...]]:
    """Return the coefficient and the indices of the symbols, sorted, with repetitions."""
    if size < SYMBOLIC:
        return size, ()
    coefficient, code = divmod(size - SYMBOLIC, _FACTORS)
    indices: list[int] = []
    while code:
        indices.append((code & ((1 << _FIELD) - 1)) - 1)
        code >>= _FIELD
    return coefficient + 1, tuple(indices)


def product(sizes: Sequence[int]) -> int | None:
    """Return the product of sizes none of which is unknown; None when it has too many factors to code."""
    coefficient, symbols = 1, list[int]()
    for size in sizes:
        own, indices = factors(size)
        coefficient *= own
        symbols += indices
    return monomial(coefficient, symbols)


def quotient(size: int, divisor: int) -> int | None:
    """Return ``size / divisor`` where that is a size for all values of the symbols, else None."""
    coefficient, symbols = factors(size)
    own, indices = factors(divisor)
    rest = list(symbols)
    for index in indices:
        if index not in rest:
            return None
        rest.remove(index)
    if not own or coefficient % own:
        return None
    return monomial(coefficient // own, rest)


def evaluate(size: int, values: Mapping[int, int]) -> int:
    """Return a size with values, or sizes, for some of its symbols, by index; other symbols are kept."""
    if size < SYMBOLIC:
        return size
    coefficient, symbols = factors(size)
    evaluated = product([coefficient, *(values.get(index, symbol(index)) for index in symbols)])
    assert evaluated is not None
    return evaluated


@lru_cache(4096)
def size_text(size: int) -> str:
    """Write a size: ``12``, ``s0``, ``2*s0*s1``; ``?`` where it is unknown."""
    if size < 0:
        return "?"
    coefficient, symbols = factors(size)
    names = [f"s{index}" for index in symbols]
    return "*".join([str(coefficient), *names] if coefficient != 1 or not names else names)


@lru_cache(4096)
def read_size(text: str) -> int:
    """Read what ``size_text`` writes; raises ``ValueError``."""
    if text == "?":
        return -1
    if not _SIZE.fullmatch(text):
        raise ValueError(f"not a size: {text!r}")
    coefficients = [part for part in text.split("*") if part[0] != "s"]
    symbols = [int(part[1:]) for part in text.split("*") if part[0] == "s"]
    size = monomial(int(coefficients[0]) if coefficients else 1, symbols)
    if size is None or any(index >= MAX_SYMBOLS for index in symbols):
        raise ValueError(f"a size with too many symbols: {text!r}")
    return size

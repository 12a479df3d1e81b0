"""One kernel for all sizes, from code for a few: sizes that vary together are one formula.

A program with open sizes is lowered at several *samples*, sizes that it never has outside. Nothing in the
lowering depends on which they are, so the modules differ in numbers only, and how a number varies from
sample to sample says what it is of the open sizes: ``s0``, ``8*s0*s1``, ``s0 + 2``. What has no such
answer, or two, is refused, and code generation proves the answers by giving the same code for two samples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from typing import TypeAlias

from kcache_compiler.errors import CompileFailed, CompilerError
from kcache_compiler.shapes.formula import Formula, mul, replaced
from kcache_compiler.shapes.polynomial import Polynomial, formula_of, polynomial

#: For each sample, the sizes of the symbols ``s0``, ``s1``, ...
Samples: TypeAlias = Sequence[Sequence[int]]

#: Terms of a sum beside its constant, and their largest coefficient.
_TERMS = 3
_COEFFICIENT = 1 << 12

_NUMBER = re.compile(
    r"(%c)-?\d\w*"  # values named after what they are
    r'|"(?:[^"\\]|\\.)*"'  # strings, hex contents of constants
    r"|[%#@^!][\w.$#-]+"  # names
    r"|(?:(?<=tensor<)|(?<=memref<))((?:(?:\d+|\?)x)+)"  # sizes of a type
    r"|0x[0-9A-Fa-f]+|\d+\.\d+(?:[eE][-+]?\d+)?"  # floats
    r"|[A-Za-z_][\w.$]*"  # words: i32, d0
    r"|(\d+)"
)


class Ambiguous(CompilerError):
    """A number of one sample stands for two things, or for nothing: other samples may tell."""


@dataclass(frozen=True)
class Numbers:
    """A module's ``text`` without the numbers that may be sizes, and these, as they are ``found``."""

    text: str
    found: list[int]


class SizeCodes:
    """What the numbers of the first sample's module are, by formula over ``s0``, ``s1``, ...

    Without samples every number is itself.
    """

    def __init__(
        self,
        samples: Samples = (),
        texts: Sequence[str | Numbers] = (),
        meaning: Mapping[str, Formula] | None = None,
        sizes: Mapping[tuple[int, ...], Formula] | None = None,
    ) -> None:
        """``texts``: the modules at the samples. ``meaning``: what symbols of the samples stand for, where it
        is not themselves. ``sizes``: by values, what sizes of the program are: a number that seems to be
        something else may be either.
        """
        self._samples = samples
        self._sizes = sizes or {}
        self._meaning = meaning or {}
        self._varying: dict[int, tuple[int, ...]] = {}
        self._fixed: set[int] = set()
        self._known: dict[int, Formula] = {}
        self._monomials: list[tuple[str, ...]] = []
        if samples:
            self._compare(texts)

    def _compare(self, texts: Sequence[str | Numbers]) -> None:
        read = [numbers_in(text) if isinstance(text, str) else text for text in texts]
        if any(one.text != read[0].text or len(one.found) != len(read[0].found) for one in read):
            raise CompileFailed("sizes", "the code for two sizes differs in more than sizes")
        for numbers in set(zip(*(one.found for one in read), strict=True)):
            first = numbers[0]
            if len(set(numbers)) == 1:
                self._fixed.add(first)
            elif self._varying.setdefault(first, numbers) != numbers:
                raise Ambiguous
        found = {monomial for numbers in self._varying.values() if (monomial := self._monomial(numbers))}
        names = {monomial[0] for monomial in found}
        self._monomials = sorted(names | {(name,) for name in self._names()}, key=lambda m: (len(m), m))

    def __bool__(self) -> bool:
        return bool(self._samples)

    def __call__(self, number: int) -> Formula:
        """The formula of a number that stands in the module; raises ``Ambiguous``."""
        size = abs(number)
        if size not in self._varying:
            return number
        if size in self._fixed:
            raise Ambiguous
        if number not in self._known:
            sign = 1 if number > 0 else -1
            terms = self._solve(self._varying[size])
            if self._sizes.get(self._varying[size], formula_of(terms)) != formula_of(terms):
                raise Ambiguous
            found = formula_of({names: sign * c for names, c in terms.items()})
            self._known[number] = replaced(found, self._meaning) if self._meaning else found
        return self._known[number]

    def varies(self, number: int) -> bool:
        return abs(number) in self._varying

    def _names(self) -> list[str]:
        return [f"s{position}" for position in range(len(self._samples[0]))]

    def _solve(self, numbers: tuple[int, ...]) -> Polynomial:
        pure = self._monomial(numbers)
        if pure is not None:
            return {pure[0]: pure[1]}
        near = [names for names in self._monomials if _value(names, self._samples[0]) <= 2 * numbers[0]]
        plain = [names for names in self._monomials if len(names) == 1]
        for among in (near, plain):  # a small number may be apart what two large ones are
            for count in range(1, _TERMS + 1):
                found = [
                    terms
                    for monomials in combinations(among, count)
                    if (terms := self._sum_of(monomials, numbers)) is not None
                ]
                if len(found) > 1:
                    raise Ambiguous
                if found:
                    return found[0]
        return self._product(numbers)

    def _product(self, numbers: tuple[int, ...]) -> Polynomial:
        """A size of the program that is a sum, times a monomial or a number, or a product of symbols; raises
        ``Ambiguous``.
        """
        found: dict[Formula, Polynomial] = {}
        for values, formula in self._sizes.items():
            terms = polynomial(formula)
            if terms is None or len(terms) < 2 or min(values) < 2:
                continue
            if any(number % value for number, value in zip(numbers, values, strict=True)):
                continue
            rest = tuple(number // value for number, value in zip(numbers, values, strict=True))
            pure = ((), rest[0]) if len(set(rest)) == 1 else self._monomial(rest)
            if pure is None:
                continue
            whole = polynomial(mul(formula, formula_of({pure[0]: pure[1]})))
            if whole is not None:
                found[formula_of(whole)] = whole
        found = found or self._symbols_multiplied(numbers)
        if len(found) != 1:
            raise Ambiguous
        return next(iter(found.values()))

    def _symbols_multiplied(self, numbers: tuple[int, ...]) -> dict[Formula, Polynomial]:
        """Products of two or three symbols, whose values may divide each other at some samples."""
        found: dict[Formula, Polynomial] = {}
        for degree in (2, 3):
            for names in combinations_with_replacement(self._names(), degree):
                values = [_value(names, sizes) for sizes in self._samples]
                if any(not value or number % value for number, value in zip(numbers, values, strict=True)):
                    continue
                rest, *others = {number // value for number, value in zip(numbers, values, strict=True)}
                if not others:
                    found[formula_of({names: rest})] = {names: rest}
        sums = [(values, polynomial(formula)) for values, formula in self._sizes.items()]
        for (these, left), (those, right) in combinations_with_replacement(sums, 2):
            if left and right and all(n == a * b for n, a, b in zip(numbers, these, those, strict=True)):
                formula = mul(formula_of(left), formula_of(right))
                found[formula_of(polynomial(formula) or {})] = polynomial(formula) or {}
        return found

    def _monomial(self, numbers: tuple[int, ...]) -> tuple[tuple[str, ...], int] | None:
        """The only monomial that has these values: sizes of samples are primes of nothing else."""
        powers: set[tuple[int, ...]] = set()
        rests: set[int] = set()
        for sizes, number in zip(self._samples, numbers, strict=True):
            exponents: list[int] = []
            rest = number
            for size in sizes:
                exponents.append(0)
                while rest and rest % size == 0:
                    rest //= size
                    exponents[-1] += 1
            powers.add(tuple(exponents))
            rests.add(rest)
        if len(powers) != 1 or len(rests) != 1 or not any(powers_of := powers.pop()):
            return None
        names = [name for name, power in zip(self._names(), powers_of, strict=True) for _ in range(power)]
        return tuple(names), rests.pop()

    def _sum_of(self, monomials: Sequence[tuple[str, ...]], numbers: tuple[int, ...]) -> Polynomial | None:
        """Coefficients of the monomials and a constant that give all the numbers, if integers do."""
        rows = [
            [Fraction(_value(names, sizes)) for names in monomials] + [Fraction(1), Fraction(number)]
            for sizes, number in zip(self._samples, numbers, strict=True)
        ]
        solution = _solution(rows)
        if solution is None or any(value.denominator != 1 for value in solution):
            return None
        *coefficients, constant = [int(value) for value in solution]
        if not all(0 < abs(coefficient) < _COEFFICIENT for coefficient in coefficients):
            return None
        terms: Polynomial = dict(zip(monomials, coefficients, strict=True))
        return terms | {(): constant} if constant else terms


def _value(names: Sequence[str], sizes: Sequence[int]) -> int:
    value = 1
    for name in names:
        value *= sizes[int(name[1:])]
    return value


def _solution(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The only solution of linear equations, of which there may be more than unknowns; else None."""
    unknowns = len(rows[0]) - 1
    if len(rows) <= unknowns:
        return None
    for column in range(unknowns):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        lead = rows[column]
        for r, row in enumerate(rows):
            if r != column and row[column]:
                scale = row[column] / lead[column]
                rows[r] = [x - scale * y for x, y in zip(row, lead, strict=True)]
    if any(row[-1] for row in rows[unknowns:]):
        return None
    return [rows[i][-1] / rows[i][i] for i in range(unknowns)]


def numbers_in(text: str) -> Numbers:
    """What of a module may be sizes."""
    numbers: list[int] = []

    def take(match: re.Match[str]) -> str:
        named, sizes, number = match.groups()
        if named:
            return named
        if number is not None:
            numbers.append(int(number))
            return "N"
        if sizes is None:
            return match[0]
        numbers.extend(int(size) for size in sizes.split("x") if size.isdigit())
        return re.sub(r"\d+", "N", sizes)

    return Numbers(_NUMBER.sub(take, text), numbers)

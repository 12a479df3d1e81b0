"""Recovery of size expressions from code that was lowered at samples of the symbolic sizes.

A program of dynamic shape is lowered at several *samples*: static sizes that occur nowhere else in it.
Lowering does not depend on which sizes a sample has, so the modules differ in integers only, and how an
integer varies from sample to sample determines its formula: ``s0``, ``8*s0*s1``, ``s0 + 2``. An integer
without a formula, or with two, is rejected (``Ambiguous``), and the driver proves the formulas: with them,
two samples give one code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from typing import TypeAlias

from kcache_compiler.errors import CompileFailed, CompilerError
from kcache_compiler.shapes.formula import Formula, Polynomial, formula_of, mul, polynomial, substitute

#: For each sample, the sizes of the symbols ``s0``, ``s1``, ...
Samples: TypeAlias = Sequence[Sequence[int]]

#: Most terms of a sum besides its constant, and their largest coefficient.
_MAX_TERMS = 3
_MAX_COEFFICIENT = 1 << 12

_INTEGER = re.compile(
    r"(%c)-?\d\w*"  # names of constants, such as %c8_i32
    r'|"(?:[^"\\]|\\.)*"'  # strings, hex contents of constants
    r"|[%#@^!][\w.$#-]+"  # names
    r"|(?:(?<=tensor<)|(?<=memref<))((?:(?:\d+|\?)x)+)"  # sizes of a type
    r"|0x[0-9A-Fa-f]+|\d+\.\d+(?:[eE][-+]?\d+)?"  # floats
    r"|[A-Za-z_][\w.$]*"  # words: i32, d0
    r"|(\d+)"
)


class Ambiguous(CompilerError):
    """An integer of the code has two formulas at these samples, or none: other samples may determine it."""


@dataclass(frozen=True)
class ModuleIntegers:
    """A module's ``text`` with its integers masked, and these ``integers`` in order of occurrence."""

    text: str
    integers: list[int]


class RecoveredSizes:
    """Maps integers of the first sample's module to formulas over ``s0``, ``s1``, ...

    Without samples, of a program of static shape, every integer is a constant. Raises ``CompileFailed`` if
    the modules differ in more than integers, and ``Ambiguous`` if one integer varies in two ways.
    """

    def __init__(
        self,
        samples: Samples = (),
        texts: Sequence[str | ModuleIntegers] = (),
        definitions: Mapping[str, Formula] | None = None,
        sizes: Mapping[tuple[int, ...], Formula] | None = None,
    ) -> None:
        """``texts``: the modules at the samples. ``definitions``: formulas of the samples' symbols over those
        of the arguments, where they differ. ``sizes``: by values at the samples, the formulas of sizes of the
        program, which a recovered formula must not contradict.
        """
        self._samples = samples
        self._sizes = sizes or {}
        self._definitions = definitions or {}
        self._varying: dict[int, tuple[int, ...]] = {}
        self._constants: set[int] = set()
        self._formulas: dict[int, Formula] = {}
        self._monomials: list[tuple[str, ...]] = []
        if samples:
            self._compare(texts)

    def _compare(self, texts: Sequence[str | ModuleIntegers]) -> None:
        modules = [integers_in(text) if isinstance(text, str) else text for text in texts]
        first = modules[0]
        if any(m.text != first.text or len(m.integers) != len(first.integers) for m in modules):
            raise CompileFailed("sizes", "the code for two sizes differs in more than sizes")
        for values in set(zip(*(module.integers for module in modules), strict=True)):
            if len(set(values)) == 1:
                self._constants.add(values[0])
            elif self._varying.setdefault(values[0], values) != values:
                raise Ambiguous
        monomials = {monomial for values in self._varying.values() if (monomial := self._monomial(values))}
        names = {monomial[0] for monomial in monomials}
        self._monomials = sorted(names | {(name,) for name in self._names()}, key=lambda m: (len(m), m))

    def __bool__(self) -> bool:
        return bool(self._samples)

    def __call__(self, integer: int) -> Formula:
        """Return the formula of an integer of the module; raises ``Ambiguous``."""
        size = abs(integer)
        if size not in self._varying:
            return integer
        if size in self._constants:
            raise Ambiguous
        if integer not in self._formulas:
            sign = 1 if integer > 0 else -1
            terms = self._solve(self._varying[size])
            if self._sizes.get(self._varying[size], formula_of(terms)) != formula_of(terms):
                raise Ambiguous
            formula = formula_of({names: sign * c for names, c in terms.items()})
            self._formulas[integer] = substitute(formula, self._definitions) if self._definitions else formula
        return self._formulas[integer]

    def varies(self, integer: int) -> bool:
        """Return whether an integer of the module depends on the sample."""
        return abs(integer) in self._varying

    def _names(self) -> list[str]:
        return [f"s{index}" for index in range(len(self._samples[0]))]

    def _solve(self, values: tuple[int, ...]) -> Polynomial:
        """The polynomial with these values at the samples: a monomial, else a short sum, else a product."""
        monomial = self._monomial(values)
        if monomial is not None:
            return {monomial[0]: monomial[1]}
        near = [names for names in self._monomials if _value(names, self._samples[0]) <= 2 * values[0]]
        linear = [names for names in self._monomials if len(names) == 1]
        for candidates in (near, linear):  # the difference of two large monomials may be small
            for count in range(1, _MAX_TERMS + 1):
                solutions = [
                    terms
                    for monomials in combinations(candidates, count)
                    if (terms := self._sum_of(monomials, values)) is not None
                ]
                if len(solutions) > 1:
                    raise Ambiguous
                if solutions:
                    return solutions[0]
        return self._product(values)

    def _product(self, values: tuple[int, ...]) -> Polynomial:
        """A size of the program that is a sum, times a monomial or constant, or a product of symbols; raises
        ``Ambiguous``.
        """
        solutions: dict[Formula, Polynomial] = {}
        for divisors, formula in self._sizes.items():
            terms = polynomial(formula)
            if terms is None or len(terms) < 2 or min(divisors) < 2:
                continue
            if any(value % divisor for value, divisor in zip(values, divisors, strict=True)):
                continue
            quotients = tuple(value // divisor for value, divisor in zip(values, divisors, strict=True))
            factor = ((), quotients[0]) if len(set(quotients)) == 1 else self._monomial(quotients)
            if factor is None:
                continue
            result = polynomial(mul(formula, formula_of({factor[0]: factor[1]})))
            if result is not None:
                solutions[formula_of(result)] = result
        solutions = solutions or self._products_of_symbols(values)
        if len(solutions) != 1:
            raise Ambiguous
        return next(iter(solutions.values()))

    def _products_of_symbols(self, values: tuple[int, ...]) -> dict[Formula, Polynomial]:
        """Products of two or three symbols, whose values may divide each other at some samples."""
        solutions: dict[Formula, Polynomial] = {}
        for degree in (2, 3):
            for names in combinations_with_replacement(self._names(), degree):
                divisors = [_value(names, sizes) for sizes in self._samples]
                pairs = list(zip(values, divisors, strict=True))
                if any(not divisor or value % divisor for value, divisor in pairs):
                    continue
                coefficient, *others = {value // divisor for value, divisor in pairs}
                if not others:
                    solutions[formula_of({names: coefficient})] = {names: coefficient}
        sums = [(sizes, polynomial(formula)) for sizes, formula in self._sizes.items()]
        for (first, left), (second, right) in combinations_with_replacement(sums, 2):
            if left and right and all(n == a * b for n, a, b in zip(values, first, second, strict=True)):
                terms = polynomial(mul(formula_of(left), formula_of(right))) or {}
                solutions[formula_of(terms)] = terms
        return solutions

    def _monomial(self, values: tuple[int, ...]) -> tuple[tuple[str, ...], int] | None:
        """The only monomial with these values: sizes of samples are primes that divide no literal."""
        powers: set[tuple[int, ...]] = set()
        rests: set[int] = set()
        for sizes, value in zip(self._samples, values, strict=True):
            exponents: list[int] = []
            rest = value
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

    def _sum_of(self, monomials: Sequence[tuple[str, ...]], values: tuple[int, ...]) -> Polynomial | None:
        """The sum of the monomials and a constant with these values, if its coefficients are integers."""
        rows = [
            [Fraction(_value(names, sizes)) for names in monomials] + [Fraction(1), Fraction(value)]
            for sizes, value in zip(self._samples, values, strict=True)
        ]
        solution = _solution(rows)
        if solution is None or any(value.denominator != 1 for value in solution):
            return None
        *coefficients, constant = [int(value) for value in solution]
        if not all(0 < abs(coefficient) < _MAX_COEFFICIENT for coefficient in coefficients):
            return None
        terms: Polynomial = dict(zip(monomials, coefficients, strict=True))
        return terms | {(): constant} if constant else terms


def _value(names: Sequence[str], sizes: Sequence[int]) -> int:
    value = 1
    for name in names:
        value *= sizes[int(name[1:])]
    return value


def _solution(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The only solution of a linear system with more equations than unknowns; else None."""
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


def integers_in(text: str) -> ModuleIntegers:
    """Return the integers of a module's text that may be sizes, and the text without them."""
    integers: list[int] = []

    def mask(match: re.Match[str]) -> str:
        name, dims, integer = match.groups()
        if name:
            return name
        if integer is not None:
            integers.append(int(integer))
            return "N"
        if dims is None:
            return match[0]
        integers.extend(int(size) for size in dims.split("x") if size.isdigit())
        return re.sub(r"\d+", "N", dims)

    return ModuleIntegers(_INTEGER.sub(mask, text), integers)


@dataclass(frozen=True)
class Sampling:
    """Samples of a program's symbolic sizes, and what ``RecoveredSizes`` needs to know of them."""

    samples: Samples
    definitions: Mapping[str, Formula] = field(default_factory=dict[str, Formula])
    sizes: Mapping[tuple[int, ...], Formula] = field(default_factory=dict[tuple[int, ...], Formula])

    def recover(self, modules: Sequence[ModuleIntegers], first: int = 0) -> RecoveredSizes:
        """Return the formulas of the integers of sample ``first``; ``modules`` are those of all samples."""
        order = [*range(first, len(modules)), *range(first)]
        sizes = {tuple(values[k] for k in order): formula for values, formula in self.sizes.items()}
        samples = [self.samples[k] for k in order]
        return RecoveredSizes(samples, [modules[k] for k in order], self.definitions, sizes)

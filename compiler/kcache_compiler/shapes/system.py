"""The symbolic sizes of one program: formulas, guards and samples, whichever way they were determined."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.formula import Check, Formula, formula_of_size
from kcache_compiler.shapes.monomial import evaluate, factors
from kcache_compiler.shapes.recovery import Samples, Sampling


@dataclass(frozen=True)
class ProgramSizes:
    """The sizes that occur in a program: integers, and monomials as ``shapes.monomial`` encodes them.

    ``shapes`` are those of all values, ``symbolic`` the symbolic sizes in types and attributes, ``symbols``
    the indices of the symbols in them, ``literals`` all other integers. Of each pair of ``limits`` the
    first size must not exceed the second one.
    """

    shapes: Sequence[tuple[int, ...]]
    symbolic: frozenset[int]
    symbols: frozenset[int]
    literals: frozenset[int]
    limits: Sequence[tuple[int, int]]

    def within_limits(self, sample: Sequence[int]) -> bool:
        """Return whether the limits hold at a sample."""
        values = dict(enumerate(sample))
        return all(evaluate(a, values) <= evaluate(b, values) for a, b in self.limits)


class SizeSystem(ABC):
    """The sizes of a program, as a driver needs them to compile one kernel for all of their values."""

    @abstractmethod
    def formula(self, size: int) -> Formula:
        """Return a size of the program over the symbols of its arguments."""

    @property
    @abstractmethod
    def checks(self) -> tuple[Check, ...]:
        """The guards that the kernel evaluates when it is called."""

    @abstractmethod
    def samples(self, count: int, attempt: int) -> Samples | None:
        """Return ``count`` samples, the values of all symbols; another ``attempt`` gives other ones.

        None if no sizes seem to satisfy the guards, or if tensors would have 2**59 elements and more.
        """

    @abstractmethod
    def sampling(self, samples: Samples) -> Sampling:
        """Return the samples as recovery of formulas takes them: the symbols that occur in code."""


@dataclass(frozen=True)
class StatedSizes(SizeSystem):
    """The program states every size as a monomial of ``count`` argument symbols: nothing is to be inferred.

    Samples are distinct primes that divide no literal of the program.
    """

    sizes: ProgramSizes
    count: int

    def formula(self, size: int) -> Formula:
        """Return the monomial."""
        return formula_of_size(size)

    @property
    def checks(self) -> tuple[Check, ...]:
        """The limits."""
        pairs = self.sizes.limits
        return tuple(Check(self.formula(a), self.formula(b), equal=False) for a, b in pairs)

    def samples(self, count: int, attempt: int) -> Samples | None:
        """Return primes in the first order, of growing sizes by symbol, that keeps the limits."""
        needed = self.count * count
        for scale in range(min(_bits(self.sizes.shapes), 13), 4, -1):
            candidates = primes(1 << scale, 2 * (needed + attempt * needed + 8), self.sizes.literals)
            chosen = candidates[attempt * needed : (attempt + 1) * needed]
            for order in _orders(self.count):
                samples = [
                    [chosen[order[symbol] * count + number] for symbol in range(self.count)]
                    for number in range(count)
                ]
                if all(map(self.sizes.within_limits, samples)):
                    return samples
        return None

    def sampling(self, samples: Samples) -> Sampling:
        """Every symbol is one of an argument."""
        return Sampling(samples)


def _bits(shapes: Sequence[tuple[int, ...]]) -> int:
    """Bits of a sampled size with which every tensor has fewer than 2**59 elements."""
    bits = 13
    for dims in shapes:
        parts = [factors(size) for size in dims]
        degree = sum(len(symbols) for _, symbols in parts)
        if degree:
            literal = math.prod(max(1, coefficient) for coefficient, _ in parts)
            bits = min(bits, (58 - literal.bit_length()) // degree)
    return bits


def _orders(count: int) -> Iterator[list[int]]:
    """Orders in which symbols get growing sizes: as named, reversed, then rotated."""
    ascending = list(range(count))
    yield ascending
    yield ascending[::-1]
    for shift in range(1, count):
        yield ascending[shift:] + ascending[:shift]
        yield (ascending[shift:] + ascending[:shift])[::-1]


def primes(start: int, count: int, avoided: frozenset[int] = frozenset()) -> list[int]:
    """Return ``count`` primes from ``start`` on that divide none of ``avoided``."""
    result: list[int] = []
    candidate = start | 1
    while len(result) < count:
        is_prime = all(candidate % divisor for divisor in range(3, math.isqrt(candidate) + 1, 2))
        if is_prime and not any(number and number % candidate == 0 for number in avoided):
            result.append(candidate)
        candidate += 2
    return result

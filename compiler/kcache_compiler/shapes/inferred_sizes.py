"""Sizes of a program that computes some of them: derived symbols, facts, and samples that tell them apart.

An opaque size, a quotient, remainder or choice, is a separate symbol in code. Its values follow from those
of the arguments, so samples are drawn at random, and kept if no two sizes of the program agree at all of
them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.formula import (
    Check,
    Formula,
    UnresolvedSize,
    add,
    formula_of,
    mul,
    normalize,
    polynomial,
    substitute,
    symbols_in,
)
from kcache_compiler.shapes.formula import evaluate as evaluate_formula
from kcache_compiler.shapes.monomial import evaluate, is_symbolic
from kcache_compiler.shapes.recovery import Samples, Sampling
from kcache_compiler.shapes.symbols import SymbolFact, SymbolTable
from kcache_compiler.shapes.system import ProgramSizes, SizeSystem, primes

#: Draws for one number of bits.
_MAX_DRAWS = 20_000
_MAX_TENSOR_ELEMENTS = 1 << 58
#: The least size of a symbol in a sample.
_MIN_SAMPLE = 32
#: Most combinations of remainders that are enumerated.
_MAX_REMAINDERS = 256

Row = Sequence[int]


@dataclass(frozen=True)
class InferredSizes(SizeSystem):
    """Sizes over the symbols of ``table``.

    ``guards`` are over argument symbols and hold at every sample; ``run_time_guards`` need not. ``facts`` are
    what guards say of argument symbols, by index.
    """

    sizes: ProgramSizes
    table: SymbolTable
    guards: tuple[Check, ...]
    run_time_guards: tuple[Check, ...]
    facts: Mapping[int, SymbolFact]

    def formula(self, size: int) -> Formula:
        """Return the size with its opaque symbols replaced by their definitions."""
        return self.table.expand(self.table.formula(size))

    @property
    def checks(self) -> tuple[Check, ...]:
        """All guards."""
        return (*self.guards, *self.run_time_guards)

    def sampling(self, samples: Samples) -> Sampling:
        """Independent symbols stand for sizes in code; each has a formula over the arguments."""
        shown = self._independent()
        names = {f"s{index}": f"s{position}" for position, index in enumerate(shown)}
        return Sampling(
            [[sample[index] for index in shown] for sample in samples],
            {f"s{position}": self.table.expand(f"s{index}") for position, index in enumerate(shown)},
            {
                _at(size, samples): normalize(substitute(self.table.formula(size), names))
                for size, *equal in self._classes()
                if not equal
            },
        )

    def samples(self, count: int, attempt: int) -> Samples | None:
        """Return random samples, which ``attempt`` seeds, at which the sizes of the program differ."""
        shapes = [dims for dims in self.sizes.shapes if any(map(is_symbolic, dims))]
        independent = self._independent()
        representatives = [sizes[0] for sizes in self._classes()]
        for bits in (12, 10, 8, 6):
            rng = random.Random(f"{attempt} {bits}")  # noqa: S311
            samples: list[list[int]] = []
            taken: set[int] = set()
            equal_so_far = [representatives]
            for row in self._draws(independent, bits, rng):
                values = dict(enumerate(row))
                own = {row[index] for index in independent}
                if taken & own or any(n and n % size == 0 for n in self.sizes.literals for size in own):
                    continue
                if any(
                    math.prod(max(1, evaluate(size, values)) for size in dims) >= _MAX_TENSOR_ELEMENTS
                    for dims in shapes
                ):
                    break
                if not self.sizes.within_limits(row):
                    continue
                still_equal = [group for groups in equal_so_far for group in _equal_at(groups, [row])]
                is_last = len(samples) == count - 1
                if is_last and (still_equal or not self._varied(independent, [*samples, row])):
                    continue
                equal_so_far = still_equal
                samples.append(row)
                taken |= own
                if len(samples) == count:
                    return sorted(samples, key=self._exact_divisions)
        return None

    def _independent(self) -> list[int]:
        return self.table.independent(self.sizes.symbols)

    def _draws(self, independent: Row, bits: int, rng: random.Random) -> Iterator[list[int]]:
        """Values of all symbols that meet the guards: primes, and any integers for divided symbols."""
        candidates = primes(1 << bits, 1 << (bits - 3))
        divided = {
            name
            for formula in self.table.definitions.values()
            for name in symbols_in(self.table.expand(formula))
            if int(name[1:]) not in self.facts
        }
        for _ in range(_MAX_DRAWS):
            sizes = [
                rng.randrange(1 << bits, 2 << bits) if f"s{index}" in divided else rng.choice(candidates)
                for index in range(self.table.argument_count)
            ]
            for index, fact in sorted(self.facts.items(), key=lambda item: item[1].formula is not None):
                sizes[index] = fact.value(sizes, index)
            try:
                row = self.table.values(sizes)
            except UnresolvedSize:
                continue
            own = [row[index] for index in independent]
            if len(set(own)) != len(own) or min(row, default=0) < 0:
                continue
            if min(own, default=_MIN_SAMPLE) < _MIN_SAMPLE:
                continue
            names = {f"s{index}": value for index, value in enumerate(sizes)}
            if all(guard.met(names) for guard in self.guards):
                yield row

    def _exact_divisions(self, row: Row) -> int:
        """The number of divisions with remainder 0, where other sizes often agree."""
        names = {f"s{index}": value for index, value in enumerate(row)}
        operations = [formula for formula in self.table.definitions.values() if isinstance(formula, tuple)]
        return sum(
            evaluate_formula(("%", left, right), names) in (0, 1 if operator == "ceildiv" else 0)
            for operator, left, right in operations
            if operator in ("%", "ceildiv")
        )

    def _varied(self, independent: Row, rows: Sequence[Row]) -> bool:
        """Whether each division has two remainders, and each choice takes both operands, at some samples."""
        names = [{f"s{index}": value for index, value in enumerate(row)} for row in rows]
        multiples = [fact for fact in self.facts.values() if fact.formula is None]
        exact = {f"s{self.table.argument_count + position}" for position in range(len(multiples))}
        for name, formula in self.table.definitions.items():
            if not isinstance(formula, tuple) or name in exact:
                continue
            operator, left, right = formula
            pairs = [(evaluate_formula(left, row), evaluate_formula(right, row)) for row in names]
            divides = operator in ("%", "ceildiv") and not self._has_constant_remainder(left, right)
            if divides and len({a % b for a, b in pairs}) == 1:
                return False
            chooses = operator in ("min", "max") and int(name[1:]) in independent
            is_clamp = operator == "max" and 0 in (left, right)  # samples are where no size is clamped to 0
            if chooses and not is_clamp and len({a < b for a, b in pairs}) == 1:
                return False
        return True

    def _has_constant_remainder(self, left: Formula, right: Formula) -> bool:
        """Whether division by a constant has one remainder at all sizes, as ``n * (n + 1)`` by 2 does."""
        terms = polynomial(_without_clamps(self.table.expand(left)))
        names = sorted({name for monomial in terms or () for name in monomial})
        if (
            terms is None
            or not isinstance(right, int)
            or not 0 < right ** max(len(names), 1) <= _MAX_REMAINDERS
        ):
            return False
        dividend = formula_of(terms)
        rows = itertools.product(range(right), repeat=len(names))
        return (
            len({evaluate_formula(dividend, dict(zip(names, row, strict=True))) % right for row in rows}) == 1
        )

    def _classes(self) -> list[list[int]]:
        """The symbolic sizes of the program in classes of sizes that are equal, or that guards make equal."""
        table = self.table
        classes: dict[str, list[int]] = {}
        for size in sorted(self.sizes.symbolic):
            formula = table.without_remainders(table.formula(size))
            same = classes.setdefault(repr(table.expand(self._reduce_squares(formula))), [size])
            classes.setdefault(repr(table.expand(formula)), same)  # the form that guards have
        for guard in self.guards:
            left, right = (classes.get(repr(side)) for side in (guard.left, guard.right))
            if guard.equal and left is not None and right is not None and left is not right:
                left += right
                classes = {key: left if sizes is right else sizes for key, sizes in classes.items()}
        return list({id(sizes): sizes for sizes in classes.values()}.values())

    def _reduce_squares(self, formula: Formula) -> Formula:
        """The normal form of a polynomial in which halves of sizes occur.

        The remainder of ``s`` by 2, ``s - 2 * h``, is its own square, so ``s * s`` is a polynomial of lower
        degree in ``s``.
        """
        terms = polynomial(formula)
        halves = {
            definition[1][1]: half
            for half, definition in self.table.definitions.items()
            if isinstance(definition, tuple) and definition[0] == "ceildiv" and definition[2] == 2
            if isinstance(definition[1], tuple) and definition[1][0] == "+" and definition[1][2] == -1
            if isinstance(definition[1][1], str)
        }
        for size, half in halves.items() if terms else ():
            square = formula_of({(size, half): 4, (half, half): -4, (size,): 1, (half,): -2})
            while squared := next((names for names in terms or () if names.count(size) > 1), None):
                assert terms is not None
                rest = list(squared)
                rest.remove(size)
                rest.remove(size)
                reduced = mul(formula_of({tuple(rest): terms.pop(squared)}), square)
                terms = polynomial(add(formula_of(terms), reduced)) or {}
        return formula if terms is None else formula_of(terms)


def _without_clamps(formula: Formula) -> Formula:
    """A formula with ``x`` for ``max(x, 0)``."""
    if not isinstance(formula, tuple):
        return formula
    operator, left, right = formula
    if operator == "max" and 0 in (left, right):
        return _without_clamps(left if right == 0 else right)
    return operator, _without_clamps(left), _without_clamps(right)


def _equal_at(sizes: Sequence[int], rows: Sequence[Row]) -> list[list[int]]:
    """Groups of sizes with the same values at all rows."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for size in sizes:
        groups.setdefault(_at(size, rows), []).append(size)
    return [group for group in groups.values() if len(group) > 1]


def _at(size: int, rows: Sequence[Row]) -> tuple[int, ...]:
    return tuple(evaluate(size, dict(enumerate(row))) for row in rows)

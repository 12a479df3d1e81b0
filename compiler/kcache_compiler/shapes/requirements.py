"""Requirements: what a program takes for granted of its sizes, and what follows from that.

A requirement that is proven is dropped, one that is never met raises ``UnresolvedSize``, and the others
become guards of the kernel. Guards are also facts: ``s0 % 2 == 0`` makes ``s0`` twice another size, ``s0 ==
s1 + 1`` removes a symbol, ``s0 >= 5`` is a lower bound. Inference is repeated with the facts until none is
new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.formula import (
    Check,
    Formula,
    UnresolvedSize,
    apply,
    formula_of,
    polynomial,
    symbols_in,
)
from kcache_compiler.shapes.symbols import SymbolFact, SymbolTable


@dataclass(frozen=True)
class Facts:
    """What is known of symbols: lower bounds by name, and facts by index of an argument symbol."""

    lower_bounds: dict[str, int]
    exact: dict[int, SymbolFact]

    def checks(self, symbols: SymbolTable) -> list[Check]:
        """Return the guards that the facts come from, over argument symbols."""
        exact = [fact.check(f"s{index}") for index, fact in self.exact.items()]
        bounds = self.lower_bounds.items()
        return exact + [Check(bound, symbols.expand(name), equal=False) for name, bound in bounds]


class Requirements:
    """The requirements of one run of inference, over independent symbols."""

    def __init__(self, symbols: SymbolTable) -> None:
        self._symbols = symbols
        self._required: list[Check] = []
        self._run_time_only: list[Check] = []
        symbols.require_nonnegative = lambda formula: self.require(0, formula, equal=False)

    def require(self, left: Formula, right: Formula, equal: bool) -> None:
        """Require ``left == right`` or ``left <= right`` of all sizes of the kernel, and of samples."""
        if self._is_undecided(left, right, equal):
            self._required.append(Check(left, right, equal))

    def require_at_run_time(self, left: Formula, right: Formula, equal: bool) -> None:
        """Require a relation when the kernel is called; samples need not meet it."""
        if self._is_undecided(left, right, equal):
            self._run_time_only.append(Check(left, right, equal))

    def _is_undecided(self, left: Formula, right: Formula, equal: bool) -> bool:
        """Whether it holds of some sizes and not of others."""
        difference = self._symbols.apply("-", right, left)
        if self._symbols.without_remainders(difference) == 0:
            return False
        for low, high in map(self._symbols.range, (difference, self._symbols.without_remainders(difference))):
            if low >= 0 and not equal:
                return False
            if (high is not None and high < 0) or (equal and low > 0):
                raise UnresolvedSize("sizes that never satisfy a requirement")
        return True

    def checks(self, facts: Facts, limits: Sequence[Check]) -> tuple[Check, ...]:
        """Return what is not proven of facts, requirements and ``limits``, over argument symbols."""
        checks = [*facts.checks(self._symbols), *map(self._expand, (*self._required, *limits))]
        return tuple(dict.fromkeys(check for check in checks if not check.holds))

    @property
    def run_time_checks(self) -> tuple[Check, ...]:
        """What samples need not meet, over argument symbols."""
        return tuple(dict.fromkeys(map(self._expand, self._run_time_only)))

    def _expand(self, check: Check) -> Check:
        return Check(self._symbols.expand(check.left), self._symbols.expand(check.right), check.equal)

    def learn(self, facts: Facts) -> bool:
        """Add facts that follow from the requirements; return whether any is new."""
        divided = sum(fact.formula is None for fact in facts.exact.values())
        stable = {f"s{index}" for index in range(self._symbols.argument_count + divided)}
        learned = False
        for check in self._required:
            if not check.equal:
                name, bound = _lower_bound(check)
                if name in stable and bound > max(facts.lower_bounds.get(name, 0), 0):
                    facts.lower_bounds[name] = bound
                    learned = True
                continue
            for zero, remainder in ((check.left, check.right), (check.right, check.left)):
                operation = self._symbols.operation(remainder)
                is_division = zero == 0 and operation is not None and operation[0] == "%"
                fact = self._multiple(operation) if is_division and operation else None
                fact = fact or self._eliminated(check, facts)
                if fact is not None and fact[0] not in facts.exact:
                    facts.exact[fact[0]] = fact[1]
                    facts.lower_bounds.clear()
                    return True
        return learned

    def _multiple(self, operation: tuple[str, Formula, Formula]) -> tuple[int, SymbolFact] | None:
        """The fact of an argument symbol that follows from ``(s + k) % m == 0``."""
        _, dividend, divisor = operation
        terms = polynomial(dividend) or {}
        names = [monomial for monomial in terms if monomial]
        if not isinstance(divisor, int) or divisor < 2 or len(names) != 1:
            return None
        (name,) = names
        if len(name) != 1 or terms[name] != 1:
            return None
        index = int(name[0][1:])
        fact = SymbolFact(divisor, terms.get((), 0))
        return (index, fact) if index < self._symbols.argument_count else None

    def _eliminated(self, check: Check, facts: Facts) -> tuple[int, SymbolFact] | None:
        """The last argument symbol that an equation gives as a formula of others."""
        candidates: list[tuple[int, SymbolFact]] = []
        used = {
            name
            for fact in facts.exact.values()
            if fact.formula is not None
            for name in symbols_in(fact.formula)
        }
        for index, solution in self._solutions(check.left, check.right):
            formula = self._symbols.expand(solution)
            parts = {int(name[1:]) for name in symbols_in(formula)}
            if index not in facts.exact and f"s{index}" not in used and not parts & {index, *facts.exact}:
                candidates.append((index, SymbolFact(formula=formula)))
        return max(candidates, key=lambda candidate: candidate[0], default=None)

    def _solutions(self, left: Formula, right: Formula) -> list[tuple[int, Formula]]:
        """Argument symbols, by index, and their formulas where ``left == right``."""
        terms = polynomial(apply("-", right, left)) or {}
        count = self._symbols.argument_count
        solutions: list[tuple[int, Formula]] = []
        for names, coefficient in terms.items():
            others = [other for other in terms if other != names and names[0:1] and names[0] in other]
            if len(names) != 1 or abs(coefficient) != 1 or others:
                continue
            rest = formula_of({other: -coefficient * n for other, n in terms.items() if other != names})
            index = int(names[0][1:])
            if index < count:
                solutions.append((index, rest))
        for side, other in ((left, right), (right, left)):
            if isinstance(side, str) and int(side[1:]) < count:
                solutions.append((int(side[1:]), other))
        return solutions


def _lower_bound(check: Check) -> tuple[str, int]:
    """A name and its lower bound, of ``left <= right``; an empty name if there is none."""
    terms = polynomial(apply("-", check.right, check.left)) or {}
    names = [monomial for monomial in terms if monomial]
    if len(names) == 1 and len(names[0]) == 1 and terms[names[0]] == 1:
        return names[0][0], -terms.get((), 0)
    return "", 0

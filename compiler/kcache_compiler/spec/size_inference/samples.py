"""Samples of the sizes of a program that computes some: numbers that stand nowhere else.

A size that divides or chooses is a number of its own. At no two samples is it the same sum of other sizes,
so that what a number of the code stands for is told apart from what it happens to be.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from kcache_compiler.shapes.formula import Formula, add, mul, replaced, symbols_in
from kcache_compiler.shapes.formula import evaluate as value_of
from kcache_compiler.shapes.monomial import evaluate, is_symbolic
from kcache_compiler.shapes.polynomial import formula_of, normal, polynomial
from kcache_compiler.spec.dynamic_samples import OpenGraph, primes, used
from kcache_compiler.spec.size_inference.resolve import Resolved
from kcache_compiler.spec.size_inference.symbols import Unresolved

_TRIES = 20_000
_ROOM = 1 << 58
#: Sizes of samples are larger.
_LEAST = 32
#: Most rests of sizes that are tried.
_RESTS = 256


def samples(resolved: Resolved, count: int, attempt: int) -> list[list[int]] | None:
    """``count`` times the values of all symbols; None when there seem to be none."""
    graph = OpenGraph(resolved.graph, resolved.names)
    shapes = [dims for dims in graph.sizes if any(map(is_symbolic, dims))]
    limits, numbers = graph.limits, graph.numbers
    shown = roots(resolved)
    sizes = [sizes[0] for sizes in _apart(resolved)]
    for bits in (12, 10, 8, 6):
        rng = random.Random(f"{attempt} {bits}")  # noqa: S311
        found: list[list[int]] = []
        taken: set[int] = set()
        alike = [sizes]
        for one in _drawn(resolved, shown, bits, rng):
            values = dict(enumerate(one))
            own = {one[index] for index in shown}
            if taken & own or any(number and number % size == 0 for number in numbers for size in own):
                continue
            if any(math.prod(max(1, evaluate(s, values)) for s in dims) >= _ROOM for dims in shapes):
                break
            if not all(evaluate(a, values) <= evaluate(b, values) for a, b in limits):
                continue
            following = [group for groups in alike for group in _alike(groups, [one])]
            if len(found) == count - 1 and (following or not _varied(resolved, shown, [*found, one])):
                continue
            alike = following
            found.append(one)
            taken |= own
            if len(found) == count:
                return sorted(found, key=lambda row: _even(resolved, row))
    return None


def roots(resolved: Resolved) -> list[int]:
    """Symbols that are sizes of their own in the code, by index."""
    return resolved.symbols.roots(used(OpenGraph(resolved.graph, resolved.names)))


def _drawn(resolved: Resolved, shown: Sequence[int], bits: int, rng: random.Random) -> Iterator[list[int]]:
    """Values of all symbols: primes, and any numbers where they are divided; all checks hold."""
    symbols = resolved.symbols
    among = primes(1 << bits, 1 << (bits - 3), set())
    divided = {
        name
        for formula in symbols.definitions.values()
        for name in symbols_in(symbols.expanded(formula))
        if int(name[1:]) not in resolved.exact
    }
    for _ in range(_TRIES):
        given = [
            rng.randrange(1 << bits, 2 << bits) if f"s{index}" in divided else rng.choice(among)
            for index in range(symbols.count)
        ]
        for index, known in sorted(resolved.exact.items(), key=lambda one: one[1].formula is not None):
            given[index] = known.value(given, index)
        try:
            values = symbols.values(given)
        except Unresolved:
            continue
        own = [values[index] for index in shown]
        if len(set(own)) != len(own) or min(values, default=0) < 0 or min(own, default=_LEAST) < _LEAST:
            continue
        names = {f"s{index}": value for index, value in enumerate(given)}
        if all(check.met(names) for check in resolved.checks):
            yield values


def _even(resolved: Resolved, row: Sequence[int]) -> int:
    """How many divisions leave no rest: other numbers are often the same then, so such samples come last."""
    names = {f"s{index}": value for index, value in enumerate(row)}
    made = [one for one in resolved.symbols.definitions.values() if isinstance(one, tuple)]
    return sum(
        value_of(("%", left, right), names) in (0, 1 if operator == "ceildiv" else 0)
        for operator, left, right in made
        if operator in ("%", "ceildiv")
    )


def _varied(resolved: Resolved, shown: Sequence[int], rows: Sequence[Sequence[int]]) -> bool:
    """Whether what divides leaves different rests, and what chooses chooses both."""
    names = [{f"s{index}": value for index, value in enumerate(row)} for row in rows]
    halves = [one for one in resolved.exact.values() if one.formula is None]
    exact = {f"s{resolved.symbols.count + place}" for place in range(len(halves))}
    for name, formula in resolved.symbols.definitions.items():
        if not isinstance(formula, tuple) or name in exact:
            continue
        operator, left, right = formula
        pairs = [(value_of(left, row), value_of(right, row)) for row in names]
        divides = operator in ("%", "ceildiv") and not _same_rest(resolved, left, right)
        if divides and len({a % b for a, b in pairs}) == 1:
            return False
        chooses = operator in ("min", "max") and int(name[1:]) in shown
        if chooses and not _clamps(operator, left, right) and len({a < b for a, b in pairs}) == 1:
            return False
    return True


def _same_rest(resolved: Resolved, left: Formula, right: Formula) -> bool:
    """Whether a division by a number leaves one rest at all sizes, as that of ``n * (n + 1)`` by 2 does."""
    terms = polynomial(_unclamped(resolved.symbols.expanded(left)))
    names = sorted({name for one in terms or () for name in one})
    if terms is None or not isinstance(right, int) or not 0 < right ** max(len(names), 1) <= _RESTS:
        return False
    whole = formula_of(terms)
    rows = itertools.product(range(right), repeat=len(names))
    return len({value_of(whole, dict(zip(names, row, strict=True))) % right for row in rows}) == 1


def _unclamped(formula: Formula) -> Formula:
    """A formula as it is where no size is 0 instead of less."""
    if not isinstance(formula, tuple):
        return formula
    operator, left, right = formula
    if operator == "max" and 0 in (left, right):
        return _unclamped(left if right == 0 else right)
    return operator, _unclamped(left), _unclamped(right)


def _alike(sizes: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Sizes that are the same at all samples so far."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for size in sizes:
        groups.setdefault(_at(size, rows), []).append(size)
    return [group for group in groups.values() if len(group) > 1]


def _at(size: int, rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(evaluate(size, dict(enumerate(row))) for row in rows)


def stated(
    resolved: Resolved, shown: Sequence[int], rows: Sequence[Sequence[int]]
) -> dict[tuple[int, ...], Formula]:
    """What the sizes of the graph are of the symbols ``shown``, by their values at samples."""
    names = {f"s{index}": f"s{place}" for place, index in enumerate(shown)}
    return {
        _at(size, rows): normal(replaced(resolved.symbols.formula(size), names))
        for size, *others in _apart(resolved)
        if not others
    }


def _apart(resolved: Resolved) -> list[list[int]]:
    """The sizes of the graph, those together that checks say are equal."""
    symbols = resolved.symbols
    classes: dict[str, list[int]] = {}
    for size in sorted(OpenGraph(resolved.graph, resolved.names).open):
        formula = symbols.plain(symbols.formula(size))
        same = classes.setdefault(repr(symbols.expanded(_halved(resolved, formula))), [size])
        classes.setdefault(repr(symbols.expanded(formula)), same)  # as checks have it
    for check in resolved.checks:
        pair = [classes.get(repr(side)) for side in (check.left, check.right)]
        if check.equal and pair[0] is not None and pair[1] is not None and pair[0] is not pair[1]:
            pair[0] += pair[1]
            classes = {key: pair[0] if one is pair[1] else one for key, one in classes.items()}
    return list({id(one): one for one in classes.values()}.values())


def _halved(resolved: Resolved, formula: Formula) -> Formula:
    """A sum as every equal one is written that has halves of sizes in it: the rest of ``s`` by 2, which is
    ``s - 2 * h``, is its own square, so that ``s * s`` is a sum of what has fewer ``s``.
    """
    terms = polynomial(formula)
    halves = {
        shown[1][1]: half
        for half, shown in resolved.symbols.definitions.items()
        if isinstance(shown, tuple) and shown[0] == "ceildiv" and shown[2] == 2
        if isinstance(shown[1], tuple) and shown[1][0] == "+" and shown[1][2] == -1
        if isinstance(shown[1][1], str)
    }
    for size, half in halves.items() if terms else ():
        square = formula_of({(size, half): 4, (half, half): -4, (size,): 1, (half,): -2})
        while squared := next((names for names in terms or () if names.count(size) > 1), None):
            assert terms is not None
            rest = list(squared)
            rest.remove(size)
            rest.remove(size)
            instead = mul(formula_of({tuple(rest): terms.pop(squared)}), square)
            terms = polynomial(add(formula_of(terms), instead)) or {}
    return formula if terms is None else formula_of(terms)


def _clamps(operator: str, left: Formula, right: Formula) -> bool:
    """Whether it is a size that is 0 where it would be less: samples are where it is not."""
    return operator == "max" and 0 in (left, right)

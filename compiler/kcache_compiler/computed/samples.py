"""Samples of the sizes of a program that computes some: every root is a prime that stands nowhere else."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kcache_compiler.canonical.open_sizes import OpenGraph, primes, used
from kcache_compiler.canonical.sizes import evaluate, is_symbolic
from kcache_compiler.computed.resolve import Resolved
from kcache_compiler.computed.table import Unresolved

_TRIES = 20_000
_ROOM = 1 << 58


def samples(resolved: Resolved, count: int, attempt: int) -> list[list[int]] | None:
    """``count`` times the values of all symbols; None when there seem to be none."""
    graph = OpenGraph(resolved.graph, resolved.names)
    shapes, limits, numbers = graph.sizes, graph.limits, graph.numbers
    shown = roots(resolved)
    for bits in (12, 10, 8, 6):
        among = primes(1 << bits, 1 << (bits - 3), set())
        rng = random.Random(f"{attempt} {bits}")  # noqa: S311
        found: list[list[int]] = []
        taken: set[int] = set()
        for _ in range(_TRIES):
            one = _sample(resolved, shown, among, rng)
            if one is None:
                continue
            values = dict(enumerate(one))
            own = [one[index] for index in shown]
            if taken & set(own) or any(number and number % size == 0 for number in numbers for size in own):
                continue
            if any(
                math.prod(max(1, evaluate(s, values)) for s in dims) >= _ROOM
                for dims in shapes
                if any(map(is_symbolic, dims))
            ):
                break
            if all(evaluate(a, values) <= evaluate(b, values) for a, b in limits):
                found.append(one)
                taken |= set(own)
                if len(found) == count:
                    return found
    return None


def roots(resolved: Resolved) -> list[int]:
    """Symbols that are sizes of their own in the code, by index."""
    return resolved.symbols.roots(used(OpenGraph(resolved.graph, resolved.names)))


def _sample(
    resolved: Resolved, shown: Sequence[int], among: Sequence[int], rng: random.Random
) -> list[int] | None:
    """Values of all symbols of which those of roots are primes that differ, and all checks hold."""
    symbols = resolved.symbols
    given = [rng.choice(among) for _ in range(symbols.count)]
    for index, known in sorted(resolved.exact.items()):
        given[index] = known.value(given, index)
    try:
        values = symbols.values(given)
    except Unresolved:
        return None
    own = [values[index] for index in shown]
    if len(set(own)) != len(own) or min(values, default=0) < 0 or not all(map(_is_prime, own)):
        return None
    names = {f"s{index}": value for index, value in enumerate(given)}
    return values if all(check.met(names) for check in resolved.checks) else None


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, math.isqrt(number) + 1))

"""Guards: for which sizes a variant of a kernel may be used.

A conjunction over symbols, small enough for a client in any language::

    guard   = "" | atom ("&" atom)*
    atom    = symbol "==" (integer | symbol)
            | symbol ("<=" | "<" | ">=" | ">") integer | integer ("<=" | "<" | ">=" | ">") symbol
            | symbol "%" integer "==" 0

Symbols are ``[A-Za-z_][A-Za-z0-9_]*``. Sizes are integers from 0 to 2**62. ``Guard.text`` is canonical: two
guards that hold for the same sizes have the same text, since equal symbols are merged, bounds are moved to
the nearest multiple, and what follows from the rest is left out. The empty text holds always.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kcache_grpc.errors import ArgumentError, IntegrityError

#: The largest size of an axis.
MAX_SIZE = 1 << 62

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(==|<=|>=|<|>|%|&))", re.ASCII)
_MAX_TEXT = 4096
_MIRRORED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "=="}


@dataclass(frozen=True)
class Sizes:
    """``low``, ``low + step``, ... up to ``high``. Made by ``sizes``, which gives each set one form."""

    low: int = 0
    high: int = MAX_SIZE
    step: int = 1

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high and size % self.step == 0

    @property
    def count(self) -> int:
        """How many sizes these are."""
        return (self.high - self.low) // self.step + 1

    def within(self, other: Sizes) -> Sizes | None:
        """The sizes that are in both; ``None`` when there are none."""
        return sizes(max(self.low, other.low), min(self.high, other.high), math.lcm(self.step, other.step))

    def atoms(self, symbol: str) -> list[str]:
        """What says that ``symbol`` is one of them."""
        if self.low == self.high:
            return [f"{symbol} == {self.low}"]
        conditions: list[str] = []
        if self.low > 0:
            conditions.append(f"{self.low} <= {symbol}")
        if self.high <= MAX_SIZE - self.step:
            conditions.append(f"{symbol} <= {self.high}")
        if self.step > 1:
            conditions.append(f"{symbol} % {self.step} == 0")
        return conditions


def sizes(low: int = 0, high: int = MAX_SIZE, step: int = 1) -> Sizes | None:
    """The multiples of ``step`` from ``low`` to ``high``; ``None`` when there are none."""
    low, high = -(-max(low, 0) // step) * step, min(high, MAX_SIZE) // step * step
    if low > high:
        return None
    return Sizes(low, high, step if low < high else 1)


ANY = Sizes()


@dataclass(frozen=True)
class Guard:
    """A predicate over symbols. Made by ``parse_guard`` or ``guard_of``; equal predicates are equal."""

    #: Symbols that are equal, by name, and their sizes; in the order of the first names. Those that may have
    #: any size and equal no other are left out.
    groups: tuple[tuple[tuple[str, ...], Sizes], ...] = ()

    @property
    def text(self) -> str:
        """The canonical text, an ingredient of the kernel's identity."""
        atoms: list[str] = []
        for (first, *others), allowed in self.groups:
            atoms += [f"{first} == {other}" for other in others]
            atoms += allowed.atoms(first)
        return " & ".join(atoms)

    @property
    def symbols(self) -> frozenset[str]:
        """Those that it says something of."""
        return frozenset(name for names, _ in self.groups for name in names)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether these sizes are admitted. Raises ``IntegrityError`` when a symbol has no value."""
        return self.broken(values) is None

    def broken(self, values: Mapping[str, int]) -> tuple[str, str] | None:
        """The first symbol whose size is rejected, and the atom that rejects it; ``None`` when it holds."""
        for (first, *others), allowed in self.groups:
            size = _value(values, first)
            for other in others:
                if _value(values, other) != size:
                    return other, f"{first} == {other}"
            if size not in allowed:
                return first, next(atom for atom in allowed.atoms(first) if not _atom_holds(atom, size))
        return None

    def count(self, symbols: Iterable[str]) -> int:
        """How many tuples of sizes of ``symbols`` are admitted. The guard names no others."""
        free = set(symbols) - self.symbols
        return math.prod((allowed.count for _, allowed in self.groups), start=(MAX_SIZE + 1) ** len(free))

    def __str__(self) -> str:
        return self.text


def guard_of(allowed: Mapping[str, Sizes], equal: Iterable[tuple[str, str]] = ()) -> Guard | None:
    """The guard that says so; ``None`` when no sizes meet it."""
    leaders: dict[str, str] = {name: name for name in allowed}

    def leader(name: str) -> str:
        while (above := leaders.setdefault(name, name)) != name:
            name = above
        return name

    for left, right in equal:
        first, second = sorted((leader(left), leader(right)), key=_order)
        leaders[second] = first
    members: dict[str, list[str]] = {}
    for name in sorted(leaders, key=_order):
        members.setdefault(leader(name), []).append(name)
    groups: list[tuple[tuple[str, ...], Sizes]] = []
    for names in members.values():
        common: Sizes | None = ANY
        for name in names:
            common = common and common.within(allowed.get(name, ANY))
        if common is None:
            return None
        if common.low == common.high:  # equal because they are fixed: said of each alone
            groups += [((name,), common) for name in names]
        elif len(names) > 1 or common != ANY:
            groups.append((tuple(names), common))
    return Guard(tuple(sorted(groups, key=lambda group: _order(group[0][0]))))


@lru_cache(maxsize=4096)
def parse_guard(text: str) -> Guard:
    """Raises ``IntegrityError`` for a bad text, ``ArgumentError`` for a guard that no sizes meet."""
    allowed: dict[str, Sizes] = {}
    equal: list[tuple[str, str]] = []
    for atom in _atoms(text):
        match atom:
            case [str() as left, "==", str() as right] if left.isidentifier() and right.isidentifier():
                equal.append((left, right))
                continue
            case [str() as symbol, "%", int() as step, "==", 0] if symbol.isidentifier() and step > 0:
                constraint = sizes(step=step)
            case [str() as symbol, str() as relation, int() as bound] if _said(symbol, relation):
                constraint = _bounded(relation, bound)
            case [int() as bound, str() as relation, str() as symbol] if _said(symbol, relation):
                constraint = _bounded(_MIRRORED[relation], bound)
            case _:
                raise IntegrityError(
                    f"bad guard {text[:200]!r}: {' '.join(map(str, atom))!r} is no condition"
                )
        before = allowed.get(symbol, ANY)
        meets = constraint and before.within(constraint)
        if meets is None:
            raise _never(text)
        allowed[symbol] = meets
    guard = guard_of(allowed, equal)
    if guard is None:
        raise _never(text)
    return guard


def _said(symbol: str, relation: str) -> bool:
    return symbol.isidentifier() and relation in _MIRRORED


def _bounded(relation: str, bound: int) -> Sizes | None:
    match relation:
        case "==":
            return sizes(bound, bound)
        case "<=":
            return sizes(high=bound)
        case "<":
            return sizes(high=bound - 1)
        case ">=":
            return sizes(low=bound)
        case _:
            return sizes(low=bound + 1)


def _atoms(text: str) -> list[list[str | int]]:
    """The tokens between the ampersands: numbers, and symbols and signs as texts."""
    if len(text) > _MAX_TEXT:
        raise IntegrityError(f"a guard of {len(text)} characters is longer than {_MAX_TEXT}")
    stripped = text.rstrip()
    if not stripped:
        return []
    atoms: list[list[str | int]] = [[]]
    position = 0
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise IntegrityError(f"bad guard {text[:200]!r}: unexpected {stripped[position]!r}")
        number, symbol, sign = match.groups()
        if sign == "&":
            atoms.append([])
        elif number is not None:
            atoms[-1].append(_integer(number))
        else:
            atoms[-1].append(symbol or sign)
        position = match.end()
    return atoms


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) < 20 else MAX_SIZE + 1
    if value > MAX_SIZE:
        raise IntegrityError(f"{digits[:40]} in a guard is above {MAX_SIZE}")
    return value


def _atom_holds(atom: str, size: int) -> bool:
    """One of ``Sizes.atoms`` for a size of its symbol."""
    return all(size in allowed for _, allowed in parse_guard(atom).groups)


def _value(values: Mapping[str, int], symbol: str) -> int:
    if symbol not in values:
        raise IntegrityError(f"a guard names the unknown symbol {symbol!r}")
    return values[symbol]


def _order(name: str) -> tuple[int, str]:
    """``s2`` before ``s10``."""
    return len(name), name


def _never(text: str) -> ArgumentError:
    return ArgumentError(f"the guard {text[:200]!r} is unsatisfiable")

"""Which of many specs are most like one: a distance that needs no graph, only words of the texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kcache_compiler.difference.compare import compare_interfaces, compare_specs
from kcache_compiler.difference.outline import Type, read_outline, read_types
from kcache_compiler.difference.words import Difference

K = TypeVar("K")

_HEADER = re.compile(r"kcache\.spec \S+ canonicalizer=\S+ numerics=(\S+) family=(\S+)")
_ARGUMENT = re.compile(r"(?m)^(?:arg|const) \S+ (.*)$")
_OPERATION = re.compile(r"(?m)^ *%\d+ = (\S+)[^|\n]*(?:\| (.*))?$")

#: Texts that are compared operation by operation, all together; the nearest always is.
COMPARED_CHARACTERS = 4 << 20
#: What each part of the distance weighs; the whole is at most their sum.
ARGUMENTS, OPERATIONS, ATTRIBUTES, NUMERICS, FAMILY = 300, 450, 250, 50, 1000


class _Sketch(NamedTuple):
    header: tuple[str, ...]
    arguments: list[Type]
    operations: Counter[str]
    attributes: Counter[tuple[str, str]]


@dataclass(frozen=True)
class Neighbour:
    """A candidate by its index, its distance, and what differs."""

    index: int
    distance: int
    differences: tuple[Difference, ...]


def nearest_specs(yours: str, candidates: Sequence[str], most: int) -> tuple[Neighbour, ...]:
    """The ``most`` candidates nearest to a spec text, nearest first; of equals those that come first."""
    mine = _sketch(yours)
    distances = [(_distance(mine, _sketch(text)), index) for index, text in enumerate(candidates)]
    found: list[Neighbour] = []
    characters = 0
    for distance, index in sorted(distances)[:most]:
        characters += len(yours) + len(candidates[index])
        whole = not found or characters <= COMPARED_CHARACTERS
        compare = compare_specs if whole else _compare_large
        found.append(Neighbour(index, distance, compare(yours, candidates[index])))
    return tuple(found)


def _compare_large(yours: str, theirs: str) -> tuple[Difference, ...]:
    """What differs before the first operation, and that the rest was not looked at."""
    here, there = (read_outline(text[: text.find("\n%") + 1] or text) for text in (yours, theirs))
    text = "the graphs are too large to be compared operation by operation"
    return (*compare_interfaces(here, there), Difference("operations", "", "", text))


def distance(yours: str, theirs: str) -> int:
    """0 for texts with the same arguments, operations, attributes and constants, whatever their wiring.

    Shares of what differs, weighed: argument types by position (half for other sizes), operations, operations
    with their attributes and constants, numerics class, family. 1000 at most within a family and class.
    """
    return _distance(_sketch(yours), _sketch(theirs))


def _sketch(text: str) -> _Sketch:
    header = _HEADER.match(text)
    leaves = [type for line in _ARGUMENT.findall(text) for type in read_types(line)]
    found = _OPERATION.findall(text)
    return _Sketch(
        header.groups() if header else ("", ""), leaves, Counter(op for op, _ in found), Counter(found)
    )


def _distance(a: _Sketch, b: _Sketch) -> int:
    total = ARGUMENTS * _arguments(a.arguments, b.arguments)
    total += OPERATIONS * _apart(a.operations, b.operations)
    total += ATTRIBUTES * _apart(a.attributes, b.attributes)
    numerics, family = (mine != other for mine, other in zip(a.header, b.header, strict=True))
    return -int(-total // 1) + NUMERICS * numerics + FAMILY * family


def _arguments(a: Sequence[Type], b: Sequence[Type]) -> float:
    """The share of positions that differ; a half where only sizes do."""
    most = max(len(a), len(b))
    alike = sum(1.0 if x == y else 0.5 * _same_rank(x, y) for x, y in zip(a, b, strict=False))
    return 1 - alike / most if most else 0.0


def _same_rank(x: Type, y: Type) -> bool:
    return x.element == y.element and len(x.dims or ()) == len(y.dims or ())


def _apart(a: Counter[K], b: Counter[K]) -> float:
    """1 - |a and b| / |a or b|, counted with repetition."""
    union = (a | b).total()
    return 1 - (a & b).total() / union if union else 0.0

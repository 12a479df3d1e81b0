"""The specs most similar to one: a distance on multisets of operations, read only from the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kcache_compiler.difference.compare import compare_interfaces, compare_specs
from kcache_compiler.difference.sentences import Difference
from kcache_compiler.difference.spec_reader import Type, read_spec, read_types

K = TypeVar("K")

_HEADER = re.compile(r"kcache\.spec \S+ canonicalizer=\S+ numerics=(\S+) family=(\S+)")
_ARGUMENT = re.compile(r"(?m)^(?:arg|const) \S+ (.*)$")
_OPERATION = re.compile(r"(?m)^ *%\d+ = (\S+)[^|\n]*(?:\| (.*))?$")

#: Most characters, of all pairs together, that are compared operation by operation; the nearest always is.
COMPARED_CHARACTERS = 4 << 20
#: Weights of the parts of the distance.
ARGUMENTS, OPERATIONS, ATTRIBUTES, NUMERICS, FAMILY = 300, 450, 250, 50, 1000


class _Sketch(NamedTuple):
    header: tuple[str, ...]
    arguments: list[Type]
    operations: Counter[str]
    attributes: Counter[tuple[str, str]]


@dataclass(frozen=True)
class Neighbor:
    """A candidate by its index, its distance, and the differences."""

    index: int
    distance: int
    differences: tuple[Difference, ...]


def nearest_specs(yours: str, candidates: Sequence[str], limit: int) -> tuple[Neighbor, ...]:
    """Return the ``limit`` candidates nearest to a spec text, nearest first; ties go to the earlier one."""
    mine = _sketch(yours)
    distances = [(_distance(mine, _sketch(text)), index) for index, text in enumerate(candidates)]
    neighbors: list[Neighbor] = []
    characters = 0
    for distance, index in sorted(distances)[:limit]:
        characters += len(yours) + len(candidates[index])
        in_full = not neighbors or characters <= COMPARED_CHARACTERS
        compare = compare_specs if in_full else _compare_large
        neighbors.append(Neighbor(index, distance, compare(yours, candidates[index])))
    return tuple(neighbors)


def _compare_large(yours: str, theirs: str) -> tuple[Difference, ...]:
    """The differences before the first operation, and a note that operations were not compared."""
    here, there = (read_spec(text[: text.find("\n%") + 1] or text) for text in (yours, theirs))
    text = "the graphs are too large to be compared operation by operation"
    return (*compare_interfaces(here, there), Difference("operations", "", "", text))


def distance(yours: str, theirs: str) -> int:
    """Return the distance of two specs: 0 for equal multisets of arguments, operations and attributes.

    It is the weighted sum of the shares that differ: argument types by position (half if only sizes differ),
    operations, operations with their attributes and constants, numerics class, family. It is at most 1000
    within a family and numerics class.
    """
    return _distance(_sketch(yours), _sketch(theirs))


def _sketch(text: str) -> _Sketch:
    header = _HEADER.match(text)
    leaves = [type for line in _ARGUMENT.findall(text) for type in read_types(line)]
    operations = _OPERATION.findall(text)
    return _Sketch(
        header.groups() if header else ("", ""),
        leaves,
        Counter(op for op, _ in operations),
        Counter(operations),
    )


def _distance(a: _Sketch, b: _Sketch) -> int:
    total = ARGUMENTS * _arguments(a.arguments, b.arguments)
    total += OPERATIONS * _jaccard_distance(a.operations, b.operations)
    total += ATTRIBUTES * _jaccard_distance(a.attributes, b.attributes)
    numerics, family = (mine != other for mine, other in zip(a.header, b.header, strict=True))
    return -int(-total // 1) + NUMERICS * numerics + FAMILY * family


def _arguments(a: Sequence[Type], b: Sequence[Type]) -> float:
    """The share of positions that differ; those where only sizes do count half."""
    count = max(len(a), len(b))
    equal = sum(1.0 if x == y else 0.5 * _same_rank(x, y) for x, y in zip(a, b, strict=False))
    return 1 - equal / count if count else 0.0


def _same_rank(x: Type, y: Type) -> bool:
    return x.element == y.element and len(x.dims or ()) == len(y.dims or ())


def _jaccard_distance(a: Counter[K], b: Counter[K]) -> float:
    """1 - |a & b| / |a | b| of multisets."""
    union = (a | b).total()
    return 1 - (a & b).total() / union if union else 0.0

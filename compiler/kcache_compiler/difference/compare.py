"""Comparison of two spec texts: the header, arguments, and the first operations that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kcache_compiler.difference.frontier import Numbered, Numbering, counterpart, frontier
from kcache_compiler.difference.sentences import (
    Difference,
    Side,
    only_here,
    only_there,
    operations_differ,
    truncated,
)
from kcache_compiler.difference.spec_reader import Body, ReadSpec, Type, read_spec

#: Differing arguments that are described one by one; the others are counted.
_MAX_ARGUMENTS = 4


def compare_specs(yours: str, theirs: str) -> tuple[Difference, ...]:
    """Return the differences between the spec of a request and a stored one; empty only for equal texts."""
    if yours == theirs:
        return ()
    here, there = read_spec(yours), read_spec(theirs)
    differences = [*compare_interfaces(here, there)]
    other_arguments = (here.arguments, here.constants) != (there.arguments, there.constants)
    differences += _compare_bodies(here, there, other_arguments)
    if not differences:
        differences += _compare_unknown_lines(here, there) or [_first_differing_line(yours, theirs)]
    return tuple(differences)


def compare_interfaces(here: ReadSpec, there: ReadSpec) -> Iterator[Difference]:
    """Yield the differences before the first operation: header, arguments, lifted constants."""
    yield from _compare_headers(here, there)
    yield from _compare_leaves("argument", here.arguments, there.arguments)
    yield from _compare_leaves("lifted constant", here.constants, there.constants)


def _compare_headers(here: ReadSpec, there: ReadSpec) -> Iterator[Difference]:
    if here.numerics != there.numerics:
        text = f"the numerics class differs: {here.numerics} here, {there.numerics} there"
        yield Difference("numerics", here.numerics, there.numerics, text)
    if here.family != there.family:
        text = f"the families differ: {here.family} here, {there.family} there; the two never share a key"
        yield Difference("family", here.family, there.family, text)
    if here.canonicalizer != there.canonicalizer:
        text = (
            f"the stored graph was made by canonicalizer {there.canonicalizer}, yours by {here.canonicalizer}"
        )
        yield Difference("canonicalizer", here.canonicalizer, there.canonicalizer, text)


def _compare_leaves(label: str, here: Sequence[Type], there: Sequence[Type]) -> Iterator[Difference]:
    if len(here) != len(there):
        text = f"{label}s: {len(here)} here, {len(there)} there"
        yield Difference(f"{label}s", str(len(here)), str(len(there)), text)
    differing = [index for index, (a, b) in enumerate(zip(here, there, strict=False)) if a != b]
    for index in differing[:_MAX_ARGUMENTS]:
        a, b = here[index], there[index]
        yield Difference(f"{label} {index}", str(a), str(b), f"{label} {index} {_describe_types(a, b)}")
    if len(differing) > _MAX_ARGUMENTS:
        others = len(differing) - _MAX_ARGUMENTS
        text = f"{others} more {label}{'s' if others > 1 else ''} differ{'' if others > 1 else 's'}"
        yield Difference(f"{label}s", "", "", text)


def _describe_types(a: Type, b: Type) -> str:
    types = f" ({a} here, {b} there)"
    if a.element != b.element:
        return f"is of {a.element} here and of {b.element} there{types}"
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        ranks = ["none" if dims is None else str(len(dims)) for dims in (a.dims, b.dims)]
        return f"has rank {ranks[0]} here and rank {ranks[1]} there{types}"
    return f"is {a} here and {b} there"


def _compare_bodies(here: ReadSpec, there: ReadSpec, other_arguments: bool) -> list[Difference]:
    elements = ([leaf.element for leaf in side.arguments + side.constants] for side in (here, there))
    numbering = Numbering(other_arguments, rounded=next(elements) != next(elements))
    return _compare_regions(numbering, here.body, there.body, "")


def _compare_operations(
    numbering: Numbering, mine: Numbered, others: Numbered, inside: str
) -> list[Difference]:
    """The first operation of each graph that the other one lacks."""
    ours, theirs = frontier(mine, others), frontier(others, mine)
    here = Side(mine)
    there = Side(others, here.names())
    if not ours:
        return [only_there(there, theirs[0], f"{inside}operation {theirs[0]}")] if theirs else []
    first = ours[0]
    where = f"{inside}operation {first}"
    match = counterpart(mine, first, others, theirs)
    if match is None:
        missing = [only_there(there, other, f"{inside}operation {other}") for other in theirs[:1]]
        return [only_here(here, first, where), *missing]
    inner = _compare_inner_regions(numbering, mine, first, others, match, where)
    return inner or [operations_differ(here, first, there, match, where)]


def _compare_inner_regions(
    numbering: Numbering, mine: Numbered, first: int, others: Numbered, match: int, where: str
) -> list[Difference]:
    """The first difference inside two operations that differ in their regions only."""
    a, b = mine.body.operations[first], others.body.operations[match]
    same_interface = (a.op, len(a.uses), len(a.regions)) == (b.op, len(b.uses), len(b.regions)) and (
        [numbering.use(use, mine.values) for use in a.uses]
        == [numbering.use(use, others.values) for use in b.uses]
    )
    if not same_interface or a.attributes != b.attributes:
        return []
    for index, (ours, theirs) in enumerate(zip(a.regions, b.regions, strict=True)):
        inside = f"in region {index} of {where} ({a.op}), "
        differences = _compare_regions(numbering, ours, theirs, inside)
        if differences:
            return differences
    return []


def _compare_regions(numbering: Numbering, ours: Body, theirs: Body, inside: str) -> list[Difference]:
    mine, others = numbering.body(ours), numbering.body(theirs)
    differences = _compare_operations(numbering, mine, others, inside)
    return differences or _compare_results(numbering, mine, others, inside)


def _compare_results(numbering: Numbering, mine: Numbered, others: Numbered, inside: str) -> list[Difference]:
    ours, theirs = numbering.returned(mine), numbering.returned(others)
    if len(ours) != len(theirs):
        text = f"{inside}results: {len(ours)} here, {len(theirs)} there"
        return [Difference("results", str(len(ours)), str(len(theirs)), text)]
    here = Side(mine)
    there = Side(others, here.names())
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a == b:
            continue
        use, other = mine.body.results[index], others.body.results[index]
        left, right = here.use(use), there.use(other)
        text = f"{inside}result {index} is {left} here and {right} there"
        if left == right:
            value, left, right = left, f"[{use.view}]", f"[{other.view}]"
            text = f"{inside}result {index}, {value}, is read as {left} here and as {right} there: other axes"
        return [Difference("result", left, right, text)]
    return []


def _compare_unknown_lines(here: ReadSpec, there: ReadSpec) -> list[Difference]:
    """Lines of unknown form that only one of the two has."""
    ours = [line.strip() for line in here.others if line not in there.others]
    theirs = [line.strip() for line in there.others if line not in here.others]
    if not ours and not theirs:
        return []
    left, right = (lines[0] if lines else "" for lines in (ours, theirs))
    return [_line_differs(left, right)]


def _first_differing_line(yours: str, theirs: str) -> Difference:
    """The first line that differs, of texts that differ in nothing else that is compared."""
    pairs = zip([*yours.splitlines(), ""], [*theirs.splitlines(), ""], strict=False)
    left, right = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return _line_differs(left, right)


def _line_differs(left: str, right: str) -> Difference:
    left, right = truncated(left), truncated(right)
    return Difference("line", left, right, f"a line differs: {left!r} here, {right!r} there")

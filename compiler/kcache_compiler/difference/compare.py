"""Two spec texts side by side: what differs, from the header down to the first operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kcache_compiler.difference.frontier import Numbered, Numbering, frontier, partner
from kcache_compiler.difference.outline import Body, Outline, Type, read_outline
from kcache_compiler.difference.words import (
    Difference,
    Side,
    only_here,
    only_there,
    operations_differ,
    shortened,
)

#: Differing arguments that get a sentence each; the rest is counted.
_ARGUMENTS = 4


def compare_specs(yours: str, theirs: str) -> tuple[Difference, ...]:
    """What differs between the spec of a request and a stored one; empty only for equal texts."""
    if yours == theirs:
        return ()
    here, there = read_outline(yours), read_outline(theirs)
    found = [*compare_interfaces(here, there)]
    loose = (here.arguments, here.constants) != (there.arguments, there.constants)
    found += _bodies(here, there, loose)
    if not found:
        found += _lines(here, there) or [_unnamed(yours, theirs)]
    return tuple(found)


def compare_interfaces(here: Outline, there: Outline) -> Iterator[Difference]:
    """What differs before the first operation: header, arguments, lifted constants."""
    yield from _headers(here, there)
    yield from _leaves("argument", here.arguments, there.arguments)
    yield from _leaves("lifted constant", here.constants, there.constants)


def _headers(here: Outline, there: Outline) -> Iterator[Difference]:
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


def _leaves(what: str, here: Sequence[Type], there: Sequence[Type]) -> Iterator[Difference]:
    if len(here) != len(there):
        text = f"{what}s: {len(here)} here, {len(there)} there"
        yield Difference(f"{what}s", str(len(here)), str(len(there)), text)
    differing = [index for index, (a, b) in enumerate(zip(here, there, strict=False)) if a != b]
    for index in differing[:_ARGUMENTS]:
        a, b = here[index], there[index]
        yield Difference(f"{what} {index}", str(a), str(b), f"{what} {index} {_type_words(a, b)}")
    if len(differing) > _ARGUMENTS:
        rest = len(differing) - _ARGUMENTS
        text = f"{rest} more {what}{'s' if rest > 1 else ''} differ{'' if rest > 1 else 's'}"
        yield Difference(f"{what}s", "", "", text)


def _type_words(a: Type, b: Type) -> str:
    whole = f" ({a} here, {b} there)"
    if a.element != b.element:
        return f"is of {a.element} here and of {b.element} there{whole}"
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        ranks = ["none" if dims is None else str(len(dims)) for dims in (a.dims, b.dims)]
        return f"has rank {ranks[0]} here and rank {ranks[1]} there{whole}"
    return f"is {a} here and {b} there"


def _bodies(here: Outline, there: Outline, loose: bool) -> list[Difference]:
    elements = ([leaf.element for leaf in side.arguments + side.constants] for side in (here, there))
    numbering = Numbering(loose, rounded=next(elements) != next(elements))
    mine, others = numbering.body(here.body), numbering.body(there.body)
    return _first(numbering, mine, others, "") or _results(numbering, mine, others)


def _first(numbering: Numbering, mine: Numbered, others: Numbered, inside: str) -> list[Difference]:
    """The first operation that differs, from the view of both graphs."""
    ours, theirs = frontier(mine, others), frontier(others, mine)
    here = Side(mine)
    there = Side(others, here.names())
    if not ours:
        return [only_there(there, theirs[0], f"{inside}operation {theirs[0]}")] if theirs else []
    first = ours[0]
    where = f"{inside}operation {first}"
    match = partner(mine, first, others, theirs)
    if match is None:
        found = [only_here(here, first, where)]
        return found + [only_there(there, each, f"{inside}operation {each}") for each in theirs[:1]]
    inner = _regions(numbering, mine, first, others, match, where)
    return inner or [operations_differ(here, first, there, match, where)]


def _regions(
    numbering: Numbering, mine: Numbered, first: int, others: Numbered, match: int, where: str
) -> list[Difference]:
    """The first difference inside two operations that are alike but for their regions."""
    a, b = mine.body.operations[first], others.body.operations[match]
    same_outside = (a.op, len(a.uses), len(a.regions)) == (b.op, len(b.uses), len(b.regions)) and (
        [numbering.use(use, mine.values) for use in a.uses]
        == [numbering.use(use, others.values) for use in b.uses]
    )
    if not same_outside or a.attributes != b.attributes:
        return []
    for index, (ours, theirs) in enumerate(zip(a.regions, b.regions, strict=True)):
        inside = f"in region {index} of {where} ({a.op}), "
        found = _region(numbering, ours, theirs, inside)
        if found:
            return found
    return []


def _region(numbering: Numbering, ours: Body, theirs: Body, inside: str) -> list[Difference]:
    mine, others = numbering.body(ours), numbering.body(theirs)
    return _first(numbering, mine, others, inside) or _results(numbering, mine, others, inside)


def _results(numbering: Numbering, mine: Numbered, others: Numbered, inside: str = "") -> list[Difference]:
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
            what, left, right = left, f"[{use.view}]", f"[{other.view}]"
            text = f"{inside}result {index}, {what}, is read as {left} here and as {right} there: other axes"
        return [Difference("result", left, right, text)]
    return []


def _lines(here: Outline, there: Outline) -> list[Difference]:
    """Lines of no known form that only one of the two has."""
    ours = [line.strip() for line in here.others if line not in there.others]
    theirs = [line.strip() for line in there.others if line not in here.others]
    if not ours and not theirs:
        return []
    left, right = (lines[0] if lines else "" for lines in (ours, theirs))
    return [_line(left, right)]


def _unnamed(yours: str, theirs: str) -> Difference:
    """The first line that differs, where no sentence above fits."""
    pairs = zip([*yours.splitlines(), ""], [*theirs.splitlines(), ""], strict=False)
    left, right = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return _line(left, right)


def _line(left: str, right: str) -> Difference:
    left, right = shortened(left), shortened(right)
    return Difference("line", left, right, f"a line differs: {left!r} here, {right!r} there")

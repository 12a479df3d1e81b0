"""Which dtypes saw which values of which attributes: ``coverage.json``, and the page docs/coverage.md of it.

``python -m tests.ops.generated.ledger add FILE...`` adds the programs of a run that were right;
``python -m tests.ops.generated.coverage write`` writes the page, ``check`` says whether it is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ops.generated import catalog
from tests.ops.generated.catalog import FAMILIES
from tests.ops.generated.classes import classes, expected, of_attribute, stated
from tests.ops.generated.drive import Asked
from tests.ops.values import generator

FILE = Path(__file__).with_name("coverage.json")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "coverage.md"
#: Programs that are made to find some that hit what is missing, half of them at the edges; the most of them
#: where a class of an attribute is missing.
_TRIES, _MOST = 24, 160
#: Operation -> class of an attribute's values -> dtypes.
Hits = dict[str, dict[str, list[str]]]

_TEXT = """\
# What the generated programs cover

Made by `python -m tests.ops.generated.coverage write` from the runs by hand that
[support.md](support.md) counts, and from one with seed 6024, left out there as one program was wrong
before a mend. For every operation: which values of its attributes its programs had
(read from the text of each program, `tests/ops/generated/classes.py`), in how many of its dtypes. A pair
is a class of values of one attribute and a dtype in which the specification lets it be: those that
`classes.py` names (`stated`) and those that a program of any dtype had. Infinities and NaN of complex numbers
count only where the specification says what becomes of them (`_OPEN` has the operations where it does not).
Only programs whose results agreed with the oracle count. Half of the programs that
`python -m tests.ops.generated --aim` draws for what is missing are drawn at the edges: all ranks, no elements
or one, special values, rare attributes.

Lists of numbers have the classes none, negative, zero, one, more; lists of axes none, in order, out of
order. "rank" is the largest rank of an argument, "empty" and "one element" are such arguments,
"body" are operations of a region, "values" are edge values among the arguments.

- operations with dtypes: {met} pairs were hit;
- classes of attributes with dtypes: {attributes};
- ranks, empty and one-element arguments and edge values with dtypes: {others}.

Classes of attributes that were not hit in a dtype:

{missing}

| operation | classes | of attributes | of arguments |
| --- | --- | --- | --- |
{rows}
"""


def hits() -> Hits:
    """What the file says."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def add(found: Hits, more: Mapping[str, Mapping[str, list[str]]]) -> Hits:
    """``found`` with what another run hit."""
    for op, rows in more.items():
        for kind, dtypes in rows.items():
            row = found.setdefault(op, {})
            row[kind] = sorted({*row.get(kind, ()), *dtypes})
    return found


def save(found: Hits) -> None:
    """Write the file."""
    lines = [
        f"{json.dumps(op)}: {{\n"
        + ",\n".join(f" {json.dumps(kind)}: {json.dumps(rows[kind])}" for kind in sorted(rows))
        + "\n}"
        for op, rows in sorted(found.items())
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def pairs(op: str, rows: Mapping[str, list[str]]) -> dict[tuple[str, str], bool]:
    """Class and dtype of an operation: whether they were hit together. Classes that the specification states
    count, and others that any dtype had.
    """
    every = {kind: rows.get(kind, []) for kind in (*stated(op), *rows)}
    return {
        (kind, dtype): dtype in dtypes
        for kind, dtypes in every.items()
        for dtype in FAMILIES[op].dtypes
        if dtype in dtypes or expected(op, kind, dtype)
    }


def aimed(found: Hits, count: int, seed: int, chosen: Sequence[str] = ()) -> list[Asked]:
    """About ``count`` programs, of all or of ``chosen`` operations, drawn among many, that hit pairs which
    ``found`` has not.
    """
    asked: list[Asked] = []
    rng = generator("aimed", seed)
    ops = [op for op in FAMILIES if op in (chosen or FAMILIES)]
    order = [ops[int(place)] for place in rng.permutation(len(ops))]
    for op, dtype in [(name, dtype) for name in order for dtype in FAMILIES[name].dtypes]:
        if len(asked) >= count:
            break
        wanted = {kind for (kind, of), hit in pairs(op, found.get(op, {})).items() if of == dtype and not hit}
        if not wanted and dtype not in {one for dtypes in found.get(op, {}).values() for one in dtypes}:
            asked.append((op, dtype, seed, 0))
        made = _tried(op, dtype, seed, wanted)
        while made and (best := max(made, key=lambda one: len(one[1])))[1]:
            asked.append((op, dtype, seed, best[0]))
            made = [(number, kinds - best[1]) for number, kinds in made]
    return sorted(asked, key=lambda one: one[0])


def _tried(op: str, dtype: str, seed: int, wanted: set[str]) -> list[tuple[int, set[str]]]:
    """Numbers of programs, and what each hits of what is wanted."""
    made: list[tuple[int, set[str]]] = []
    missing = set(wanted)
    for turn in range(_MOST):
        if not missing or (turn >= _TRIES and not any(map(of_attribute, missing))):
            break
        number = turn // 2 + (catalog.EDGES if turn % 2 else 0)
        if turn >= _TRIES:
            number = catalog.EDGES + turn
        hit = wanted.intersection(classes(catalog.program(op, dtype, seed, number)))
        if hit:
            made.append((number, hit))
            missing -= hit
    return made


def page(found: Hits) -> str:
    """The page."""
    table = {op: pairs(op, found.get(op, {})) for op in sorted(FAMILIES)}
    attributes = {
        op: {pair: hit for pair, hit in one.items() if of_attribute(pair[0])} for op, one in table.items()
    }
    missing = [
        f"- `{op}`: " + "; ".join(_missing(one)) for op, one in attributes.items() if not all(one.values())
    ]
    rows = [
        f"| `{op}` | {_names(found.get(op, {}))} | {_count(attributes[op])} | {_count(one, attributes[op])} |"
        for op, one in table.items()
    ]
    met = {(op, dtype) for op, kinds in found.items() for dtypes in kinds.values() for dtype in dtypes}
    return _TEXT.format(
        met=f"{sum(pair in met for pair in catalog.pairs()):,} of {len(catalog.pairs()):,}",
        attributes=_share([hit for one in attributes.values() for hit in one.values()]),
        others=_share(
            [hit for one in table.values() for (kind, _), hit in one.items() if not of_attribute(kind)]
        ),
        missing="\n".join(missing) or "None.",
        rows="\n".join(rows),
    )


def _share(hits_of: list[bool]) -> str:
    return f"{sum(hits_of):,} of {len(hits_of):,} ({100 * sum(hits_of) / max(len(hits_of), 1):.1f} %)"


def _count(one: Mapping[tuple[str, str], bool], without: Mapping[tuple[str, str], bool] | None = None) -> str:
    kept = [hit for pair, hit in one.items() if pair not in (without or {})]
    return f"{sum(kept)} of {len(kept)}" if kept else "-"


def _missing(one: Mapping[tuple[str, str], bool]) -> list[str]:
    absent: dict[str, list[str]] = {}
    for (kind, dtype), hit in one.items():
        if not hit:
            absent.setdefault(kind, []).append(dtype)
    return [f"{kind} ({', '.join(dtypes)})" for kind, dtypes in absent.items()]


def _names(rows: Mapping[str, list[str]]) -> str:
    """Classes, of one attribute together."""
    grouped: dict[str, list[str]] = {}
    for kind in sorted(rows):
        name, _, value = kind.partition(" ")
        grouped.setdefault(name, []).append(value)
    return "; ".join(f"{name} {', '.join(values)}".strip() for name, values in grouped.items())


def main(arguments: list[str]) -> int:
    """Run the command line; 1: the page is stale."""
    if arguments == ["write"]:
        PAGE.write_text(page(hits()))
        return 0
    if arguments == ["check"]:
        return int(PAGE.read_text() != page(hits()))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which values of which attributes ran in which dtypes: the page docs/results/generated-programs.md.

``python -m tests.ops.generated.coverage SUMMARY...`` writes the page from summaries that
``python -m tests.ops.generated --json SUMMARY`` wrote.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ops.generated.classes import classes
from tests.ops.generated.drive import Wished
from tests.ops.generated.judge import OUTCOMES
from tests.ops.generated.operations import catalog
from tests.ops.generated.operations.catalog import FAMILIES
from tests.ops.generated.structure.stated import of_attribute, table
from tests.ops.harness.values import generator

#: Outcomes by their names on the page.
_SHOWN = {"rejected": "unsupported"}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "generated-programs.md"
#: Draws for a class before it is given up; nearly all are hit by the first.
_TRIES = 48
#: Operation -> class of an attribute's values -> dtypes.
Hits = dict[str, dict[str, list[str]]]

_TEXT = """\
# Generated programs

Command: `python -m tests.ops.generated --programs N --seed S --json SUMMARY`, then
`python -m tests.ops.generated.coverage SUMMARY...`, which writes this page. Date: {date}. {runs}

For every operation the table lists which values of its attributes its programs had (read from the text of
each program, `tests/ops/generated/classes.py`), and in how many of its dtypes. A pair is a class of values of
one attribute and a dtype: all of `tests/ops/generated/structure/stated.py` except those that the
specification, or what
an oracle can decide, rules out, for the reasons below. Only programs that agreed with the oracle count.
`python -m tests.ops.generated --aim SUMMARY...` draws programs for missing pairs, and CI checks that there is
one for each class of an attribute.

Lists of integers have the classes none, negative, zero, one, more; lists of axes none, in order, out of
order. "rank" is the largest rank of an argument, "empty" and "one element" are such arguments,
"body" are operations of a region, "values" are edge values among the arguments.

- operations with dtypes: {met} pairs were hit;
- classes of attributes with dtypes: {attributes};
- ranks, empty and one-element arguments and edge values with dtypes: {others}.

Classes of attributes that were not hit in a dtype:

{missing}

Ranks, shapes and values that were not hit in a dtype:

{absent}

Pairs that are ruled out, and why:

| pairs | why | classes |
| --- | --- | --- |
{none}

| operation | classes | of attributes | of arguments |
| --- | --- | --- | --- |
{rows}
"""


def add(hits: Hits, more: Mapping[str, Mapping[str, list[str]]]) -> Hits:
    """``found`` with what another run hit."""
    for op, rows in more.items():
        for kind, dtypes in rows.items():
            row = hits.setdefault(op, {})
            row[kind] = sorted({*row.get(kind, ()), *dtypes})
    return hits


def pairs(op: str, rows: Mapping[str, list[str]]) -> dict[tuple[str, str], bool]:
    """Class and dtype of an operation, where nothing forbids them: whether they were hit together."""
    return {
        (kind, dtype): dtype in rows.get(kind, ())
        for (kind, dtype), why in table(op, FAMILIES[op].dtypes).items()
        if not why
    }


def built(op: str, dtype: str, seed: int, kind: str) -> tuple[Wished, set[str]] | None:
    """The first program that is drawn for the class and has it, with its classes; None where none has."""
    for turn in range(_TRIES):
        number = turn // 2 + (catalog.EDGES if turn % 2 else 0)
        labels = set(classes(catalog.program(op, dtype, seed, number, kind)))
        if kind in labels:
            return (op, dtype, seed, number, kind), labels
    return None


def aimed(hits: Hits, count: int, seed: int, chosen: Sequence[str] = ()) -> list[Wished]:
    """About ``count`` programs, of all or of ``chosen`` operations, each of which hits a pair that ``found``
    has not; those for attributes first, and those of an operation are neighbors.
    """
    asked: list[Wished] = []
    rng = generator("aimed", seed)
    ops = [op for op in FAMILIES if op in (chosen or FAMILIES)]
    order = [ops[int(place)] for place in rng.permutation(len(ops))]
    missing = {(op, dtype): list[str]() for op in order for dtype in FAMILIES[op].dtypes}
    for op in order:
        for (kind, dtype), hit in pairs(op, hits.get(op, {})).items():
            if not hit:
                missing[op, dtype].append(kind)
    for attributes in (True, False):
        for (op, dtype), kinds in missing.items():
            wanted = [kind for kind in kinds if of_attribute(kind) or not attributes]
            while wanted and len(asked) < count:
                request = built(op, dtype, seed, wanted.pop(int(rng.integers(len(wanted)))))
                if request is not None:
                    asked.append(request[0])
                    wanted = [kind for kind in wanted if kind not in request[1]]
                    kinds[:] = [kind for kind in kinds if kind not in request[1]]
    return asked


def runs_of(summaries: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: programs and their outcomes over all runs."""
    outcomes = sum((Counter(summary["outcomes"]) for summary in summaries), Counter[str]())
    counts = ", ".join(f"{outcomes[name]:,} {_SHOWN.get(name, name)}" for name in OUTCOMES)
    return f"{outcomes.total():,} programs in {len(summaries)} runs: {counts}."


def page(hits: Hits, runs: str, date: str) -> str:
    """The page for what all runs hit, the sentence about the runs, and their date."""
    hit_of = {op: pairs(op, hits.get(op, {})) for op in sorted(FAMILIES)}
    attributes = {
        op: {pair: hit for pair, hit in row.items() if of_attribute(pair[0])} for op, row in hit_of.items()
    }
    missing = [
        f"- `{op}`: " + "; ".join(_missing(row)) for op, row in attributes.items() if not all(row.values())
    ]
    others = {
        op: {pair: hit for pair, hit in row.items() if not of_attribute(pair[0])}
        for op, row in hit_of.items()
    }
    absent = [f"- `{op}`: " + "; ".join(_missing(row)) for op, row in others.items() if not all(row.values())]
    rows = [
        f"| `{op}` | {_names(hits.get(op, {}))} | {_count(attributes[op])} | {_count(row, attributes[op])} |"
        for op, row in hit_of.items()
    ]
    met = {(op, dtype) for op, kinds in hits.items() for dtypes in kinds.values() for dtype in dtypes}
    return _TEXT.format(
        date=date,
        runs=runs,
        met=f"{sum(pair in met for pair in catalog.pairs()):,} of {len(catalog.pairs()):,}",
        attributes=_share([hit for row in attributes.values() for hit in row.values()]),
        others=_share(
            [hit for row in hit_of.values() for (kind, _), hit in row.items() if not of_attribute(kind)]
        ),
        missing="\n".join(missing) or "None.",
        absent="\n".join(absent) or "None.",
        none="\n".join(_reasons()),
        rows="\n".join(rows),
    )


def _reasons() -> list[str]:
    """Rows of the pairs that no program has."""
    counts: dict[str, list[tuple[str, str]]] = {}
    for op, family in FAMILIES.items():
        for (kind, _), why in table(op, family.dtypes).items():
            if why:
                counts.setdefault(why, []).append((op, kind))
    rows: list[str] = []
    for why, members in sorted(counts.items()):
        ops, kinds = sorted({op for op, _ in members}), sorted({kind for _, kind in members})
        where = ", ".join(f"`{op}`" for op in ops) if len(ops) < 25 else f"{len(ops)} operations"
        rows.append(f"| {len(members):,} | {why} | {', '.join(kinds)} of {where} |")
    return rows


def _share(hits_of: list[bool]) -> str:
    return f"{sum(hits_of):,} of {len(hits_of):,} ({100 * sum(hits_of) / max(len(hits_of), 1):.1f} %)"


def _count(
    hits: Mapping[tuple[str, str], bool], without: Mapping[tuple[str, str], bool] | None = None
) -> str:
    kept = [hit for pair, hit in hits.items() if pair not in (without or {})]
    return f"{sum(kept)} of {len(kept)}" if kept else "-"


def _missing(hits: Mapping[tuple[str, str], bool]) -> list[str]:
    absent: dict[str, list[str]] = {}
    for (kind, dtype), hit in hits.items():
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
    """Run the command line."""
    if not arguments:
        print(__doc__)
        return 2
    summaries = [json.loads(Path(name).read_text()) for name in arguments]
    hits: Hits = {}
    for summary in summaries:
        add(hits, summary.get("classes", {}))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    PAGE.write_text(page(hits, runs_of(summaries), today))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

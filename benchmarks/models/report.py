"""A run as a table: medians with their ranges, and ratios round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.rounds import Sample, ratio

Row = dict[str, Any]
#: The contenders whose times the others are compared with.
OURS = ("kcache", "kcache-bound", "kcache-export")


def title(model: str, dtype: str) -> str:
    return model if dtype == "f32" else f"{model} in {dtype}"


def key(model: str, threads: int, dtype: str = "f32") -> str:
    return f"{title(model, dtype)}, {threads} {'thread' if threads == 1 else 'threads'}"


def samples(row: Row) -> dict[str, Sample]:
    """Of the contenders that were measured in every round."""
    return {
        name: Sample(name, tuple(each["seconds"]))
        for name, each in row.get("contenders", {}).items()
        if each["seconds"] and "reason" not in each
    }


def lines(rows: dict[str, Row], names: Sequence[str]) -> Iterable[str]:
    """The table in Markdown, the means of the ratios, and all reasons."""
    ours = [name for name in names if name in OURS]
    heads = [*(f"{name} ms" for name in names), *(f"best rival / {name}" for name in ours)]
    yield f"| model | {' | '.join(heads)} |"
    yield "| --- " * (len(heads) + 1) + "|"
    for name, row in rows.items():
        cells = [_cell(samples(row).get(each)) for each in names] + [_best(row, each) for each in ours]
        yield f"| {name} | {' | '.join(cells)} |"
    for rival in names:
        for name in ours if rival not in OURS else ():
            yield from _mean(rows, rival, name)
    for name, row in rows.items():
        if "reason" in row:
            yield f"{name}: left out: {row['reason']}"
        for contender, each in row.get("contenders", {}).items():
            if "reason" in each:
                yield f"{name}: {contender}: {each['reason']}"


def _mean(rows: dict[str, Row], rival: str, ours: str) -> Iterable[str]:
    ratios = [
        ratio(by_name[rival], by_name[ours])[0]
        for row in rows.values()
        if {rival, ours} <= (by_name := samples(row)).keys()
    ]
    if ratios:
        mean = math.prod(ratios) ** (1 / len(ratios))
        yield f"geometric mean of {rival} / {ours} over {len(ratios)} rows: {mean:.2f}"


def _cell(sample: Sample | None) -> str:
    if sample is None:
        return "-"
    low, high = (value * 1e3 for value in sample.spread)
    return f"{sample.median * 1e3:.2f} ({low:.2f}-{high:.2f})"


def _best(row: Row, ours: str) -> str:
    """The time of the fastest rival over that of ``ours``, with its range over the rounds."""
    by_name = samples(row)
    rivals = [sample for name, sample in by_name.items() if name not in OURS]
    if ours not in by_name or not rivals:
        return "-"
    best = min(rivals, key=lambda sample: sample.median)
    middle, low, high = ratio(best, by_name[ours])
    return f"{middle:.2f} ({low:.2f}-{high:.2f}), {best.name}"


def median_milliseconds(row: Row) -> dict[str, float]:
    return {name: statistics.median(sample.seconds) * 1e3 for name, sample in samples(row).items()}

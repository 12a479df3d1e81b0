"""Write the table of docs/results/math-accuracy.md from the measured distances: ``python -m
tests.math.report``."""

from __future__ import annotations

import json
from pathlib import Path

from kcache_compiler.passes.math import functions
from tests.math.sweep import RESULTS, code_of

DOCUMENT = Path(__file__).parents[2] / "docs/results/math-accuracy.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
ALL = {"f16": 1 << 16, "bf16": 1 << 16, "f32": 1 << 32}


def cell(entry: dict[str, object] | None, dtype: str) -> str:
    """``1`` for a distance over all values, ``1 (8e6)`` for one over that many."""
    if entry is None:
        return "-"
    values = int(str(entry["values"]))
    return (
        str(entry["ulp"])
        if values == ALL.get(dtype)
        else f"{entry['ulp']} ({values:.0e})".replace("e+0", "e")
    )


def table(results: dict[str, dict[str, object]]) -> str:
    lines = [
        "| function | claim f32, f64 | f16 | bf16 | f32 | f64 | measured |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for f in functions():
        entries = {d: results.get(f"{f.name} {d}") for d in ("f16", "bf16", "f32", "f64")}
        claim = "exact" if f.ulp == 0 else f"{f.ulp}{' *' if f.near_zero else ''}"
        dates = [str(e["date"]) for e in entries.values() if e]
        cells = [cell(e, d) for d, e in entries.items()]
        lines.append(f"| {f.name} | {claim} | {' | '.join(cells)} | {max(dates, default='by tests')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    results = {k: e for k, e in json.loads(RESULTS.read_text()).items() if e["code"] == code_of(k)}
    text = DOCUMENT.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    DOCUMENT.write_text(before + BEGIN + table(results) + END + after)


if __name__ == "__main__":
    main()

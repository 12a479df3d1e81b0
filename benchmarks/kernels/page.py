"""The tables of docs/kernel-speed.md from a run's JSON: ``python -m benchmarks.kernels.page FILE``."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.kernels.bars import bars
from benchmarks.kernels.summary import OURS, READY, best_rival, by_group, ratios, share

_RIVALS = ("Inductor", "Inductor max-autotune", "JAX", "torch eager", "ONNX Runtime", "NumPy")


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    for machine in found["machines"]:
        print("\n".join(page(found, machine["threads"])))


def page(found: dict[str, Any], threads: int) -> Iterator[str]:
    """Lines of Markdown for one number of threads."""
    cases = [case for case in found["cases"] if case["threads"] == threads]
    yield f"\n### {threads} thread{'s' if threads > 1 else ''}\n"
    yield from _table(("bar", "goal", "here", ""), map(_bar, bars(found, threads)))
    yield from _table(("group", "kernels", *_RIVALS, "best rival"), _groups(found, threads))
    heads = ("kernel", "us a call", "us of code alone", "of the limit", "best rival", "times faster (spread)")
    yield from _table(heads, (_kernel(case) for case in cases if _timed(case)))
    rest = [(case["name"], _why(case)) for case in cases if not _timed(case)]
    if rest:
        yield from _table(("not timed", "why"), rest)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _line(heads)
    yield _line(("---",) * len(heads))
    yield from map(_line, rows)
    yield ""


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bar(bar: Any) -> tuple[str, ...]:
    value = "not measured" if bar.value is None else f"{bar.value:.2f}"
    verdict = {None: "", True: "met", False: "**missed**"}[bar.met]
    where = f"{value} ({bar.where})" if bar.where else value
    return bar.text, f"{'at least' if bar.least else 'at most'} {bar.goal:g}", where, verdict


def _groups(found: dict[str, Any], threads: int) -> Iterator[tuple[str, ...]]:
    for group, row in by_group(found["cases"], threads).items():
        means = (row["rivals"].get(name) for name in _RIVALS)
        counts = f"{row['timed']} of {row['kernels']}"
        yield group, counts, *(_number(value) for value in means), _number(row["best"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _timed(case: dict[str, Any]) -> bool:
    return bool(case["contenders"].get(OURS, {}).get("seconds") and best_rival(case))


def _why(case: dict[str, Any]) -> str:
    return case["contenders"].get(OURS, {}).get("absent", "its process died").replace("|", "/")


def _kernel(case: dict[str, Any]) -> tuple[str, ...]:
    rival = best_rival(case)
    assert rival is not None
    each = ratios(case, rival)
    assert each is not None
    part = share(case)
    called, alone = (_micros(case["contenders"].get(name, {})) for name in (OURS, READY))
    limit = f"{part:.0%} ({case['bound']})" if part else ""
    return case["name"], called, alone, limit, rival, f"{each[0]:.2f} ({each[1]:.2f} to {each[2]:.2f})"


def _micros(row: dict[str, Any]) -> str:
    return f"{statistics.median(row['seconds']) * 1e6:,.1f}" if row.get("seconds") else ""


if __name__ == "__main__":
    main()

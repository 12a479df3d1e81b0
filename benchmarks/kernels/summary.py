"""What the rows say: ratios with spread, geometric means by group, shares of the machine's limit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

OURS, READY, BY_HAND = "kcache", "kcache, buffers ready", "by hand"


def ratios(case: dict[str, Any], rival: str, ours: str = OURS) -> tuple[float, float, float] | None:
    """How many times faster than a rival: median, least and most of the rounds; ``None`` without both."""
    rows = case["contenders"]
    pair = [rows.get(name, {}).get("seconds") for name in (rival, ours)]
    if not all(pair):
        return None
    each = sorted(theirs / mine for theirs, mine in zip(*pair, strict=True))
    return statistics.median(each), each[0], each[-1]


def rivals_of(case: dict[str, Any]) -> list[str]:
    """Rivals that were timed."""
    skipped = (OURS, READY, BY_HAND)
    return [name for name, row in case["contenders"].items() if name not in skipped and row.get("seconds")]


def best_rival(case: dict[str, Any]) -> str | None:
    """The fastest, by its median."""
    rows = case["contenders"]
    return min(rivals_of(case), key=lambda name: statistics.median(rows[name]["seconds"]), default=None)


def share(case: dict[str, Any], name: str = READY) -> float | None:
    """Of the machine's limit: 1 copies, or multiplies and adds, as fast as this machine can. A copy that had
    its turns among the contenders is the limit of those turns.
    """
    seconds = case["contenders"].get(name, {}).get("seconds")
    if not seconds:
        return None
    if case["bound"] == "memory" and case.get("beat"):
        return statistics.median(copy / mine for copy, mine in zip(case["beat"], seconds, strict=True))
    return case["least_s"] / statistics.median(seconds)


def beside_others(cases: list[dict[str, Any]], threads: int) -> int:
    """Turns that began although other contenders' threads still ran, after a long wait."""
    rows = (row for case in cases if case["threads"] == threads for row in case["contenders"].values())
    return sum(row.get("beside_others", 0) for row in rows)


def geometric_mean(values: Iterable[float]) -> float | None:
    """``None`` of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logarithms)) if logarithms else None


def by_group(cases: list[dict[str, Any]], threads: int) -> dict[str, dict[str, Any]]:
    """Geometric means of how many times faster than each rival and than the best, and the slowest kernel."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        if case["threads"] == threads and "group" in case:
            groups.setdefault(case["group"], []).append(case)
    return {group: _mean_row(members) for group, members in groups.items()}


def _mean_row(members: list[dict[str, Any]]) -> dict[str, Any]:
    names = sorted({name for case in members for name in rivals_of(case)})
    by_name = {name: [each[0] for case in members if (each := ratios(case, name))] for name in names}
    best = {
        case["name"]: each[0]
        for case in members
        if (rival := best_rival(case)) and (each := ratios(case, rival))
    }
    slowest = min(best, key=lambda name: best[name], default=None)
    return {
        "kernels": len(members),
        "timed": len(best),
        "rivals": {name: geometric_mean(values) for name, values in by_name.items() if values},
        "best": geometric_mean(best.values()),
        "slowest": slowest and [slowest, best[slowest]],
    }

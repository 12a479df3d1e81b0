"""The report of ``make bench`` as one picture: hits by tier, a miss by stage, the cost of a call."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

OURS, RIVAL = "#1f6f8b", "#b8b8b8"


def draw(report: dict[str, Any], path: Path) -> None:
    """Writes a PNG. Needs matplotlib, which `make bench` installs."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, (hits, miss, calls) = pyplot.subplots(3, 1, figsize=(10, 13), height_ratios=(6, 9, 7))
    _hits(hits, report["service"]["hits"])
    _miss(miss, report["service"]["miss"])
    _calls(calls, report["call_overhead"]["microseconds"])
    environment = report["environment"]
    figure.suptitle(
        f"kcache on {environment['cpu']}, {environment['cores']} cores, {environment['date'][:10]}"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def bars(axes: Any, names: list[str], values: list[float], unit: str, *, log: bool) -> None:
    """Horizontal bars with their values, those of rivals in grey."""
    colors = [RIVAL if _is_rival(name) else OURS for name in names]
    axes.barh(names, values, color=colors)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    if log:
        axes.set_xscale("log")
    for position, value in enumerate(values):
        axes.text(value, position, f" {value:,.3g}", va="center", fontsize=8)
    axes.margins(x=0.15)


def _is_rival(name: str) -> bool:
    return "kcache" not in name and " hit" not in name and "stage" not in name


def _hits(axes: Any, rows: dict[str, Any]) -> None:
    bars(axes, list(rows), [row["us"] for row in rows.values()], "microseconds a hit, median (log)", log=True)
    axes.set_title("A hit, by tier; grey: a bare gRPC echo of the same bytes")


def _miss(axes: Any, row: dict[str, Any]) -> None:
    largest = sorted(row["stages_ms"].items(), key=lambda item: -item[1])[:14]
    rest = row["ms"] - sum(value for _, value in largest)
    names = [f"stage: {name}" for name, _ in largest] + ["stage: all others"]
    bars(axes, names, [value for _, value in largest] + [max(rest, 0.0)], "milliseconds, median", log=False)
    axes.set_title(f"A miss of a small kernel, {row['ms']:.0f} ms in all, by stage")


def _calls(axes: Any, rows: dict[str, Any]) -> None:
    bars(axes, list(rows), [row["median"] for row in rows.values()], "microseconds a call, median", log=False)
    axes.set_title("Calling a kernel that adds two f32[4,8]; grey: rivals")

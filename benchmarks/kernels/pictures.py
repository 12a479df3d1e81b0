"""The rows of a run as pictures: bars of how many times faster, and the machine's roofline."""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

from benchmarks.kernels.summary import READY, best_rival, by_group, ratios

COLORS = {
    "torch eager": "#d9a441",
    "Inductor": "#c0504d",
    "Inductor max-autotune": "#7f3b38",
    "JAX": "#6a9f58",
    "NumPy": "#8c8c8c",
    "ONNX Runtime": "#7d6ca8",
}
OURS_COLOR = "#1f6f8b"


def draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """PNG files, three for each number of threads. Needs matplotlib, of the extra ``bench``."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for machine in report["machines"]:
        threads = machine["threads"]
        cases = [case for case in report["cases"] if case["threads"] == threads and "group" in case]
        pictures = {
            "groups": (_groups, (9, 6), (by_group(cases, threads),)),
            "kernels": (_kernels, (9, 2 + 0.19 * len(cases)), (cases,)),
            "roofline": (_roofline, (9, 6), (cases, machine)),
        }
        for name, (paint, size, arguments) in pictures.items():
            figure, axes = pyplot.subplots(figsize=size)
            paint(axes, *arguments)
            figure.suptitle(_title(report["environment"], threads), fontsize=9)
            figure.tight_layout()
            path = folder / f"kernels-{name}-{threads}.png"
            figure.savefig(path, dpi=100)
            pyplot.close(figure)
            written.append(path)
    return written


def _title(environment: dict[str, Any], threads: int) -> str:
    word = "thread" if threads == 1 else "threads"
    return f"{environment['cpu']}, {threads} {word}, {environment['date'][:10]}"


def _groups(axes: Any, groups: dict[str, dict[str, Any]]) -> None:
    """A bar a rival, side by side in each group."""
    names = [name for name in COLORS if any(name in row["rivals"] for row in groups.values())]
    width = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        values = [row["rivals"].get(name) for row in groups.values()]
        at = [place + index * width for place, value in enumerate(values) if value]
        axes.bar(at, [value for value in values if value], width, label=name, color=COLORS[name])
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylabel("kcache: times faster, geometric mean (log)")
    axes.set_xticks([place + 0.4 for place in range(len(groups))], list(groups), rotation=30, ha="right")
    axes.legend(fontsize=8)


def _kernels(axes: Any, cases: list[dict[str, Any]]) -> None:
    """Against the best rival, whose color the bar has; the line is the spread over the rounds."""
    rows = [(case, rival) for case in cases if (rival := best_rival(case)) and ratios(case, rival)]
    for place, (case, rival) in enumerate(rows):
        each = ratios(case, rival)
        assert each is not None
        middle, low, high = each
        axes.barh(place, middle, color=COLORS[rival])
        axes.plot([low, high], [place, place], color="black", linewidth=1)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [case["name"] for case, _ in rows], fontsize=7)
    axes.set_ylim(len(rows), -1)
    axes.set_xlabel("kcache against the best rival: times faster (log); color: that rival")
    patches: Any = importlib.import_module("matplotlib.patches")
    axes.legend(
        handles=[patches.Patch(color=value, label=name) for name, value in COLORS.items()], fontsize=7
    )


def _roofline(axes: Any, cases: list[dict[str, Any]], machine: dict[str, Any]) -> None:
    """Operations a second over operations a byte: our code alone, and the best rival as it is called."""
    peak = machine["fma_peak_gflops"]
    intensities = [10 ** (power / 10) for power in range(-20, 31)]
    for name, bandwidth in machine["copy_gbps"].items():
        axes.plot(intensities, [min(peak, bandwidth * each) for each in intensities], linewidth=1)
        axes.annotate(name, (intensities[0], bandwidth * intensities[0]), fontsize=7)
    for label, color, marker in (("kcache, code alone", OURS_COLOR, "o"), ("best rival", "#b8b8b8", "x")):
        points = [point for case in cases if (point := _point(case, label == "best rival"))]
        if points:
            axes.scatter(*zip(*points, strict=True), s=18, color=color, marker=marker, label=label, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left=intensities[0])
    axes.set_ylim(bottom=0.1)
    axes.set_xlabel("floating-point operations (as XLA counts them) a byte that must move")
    axes.set_ylabel("GFLOP/s")
    axes.legend(fontsize=8)


def _point(case: dict[str, Any], rival: bool) -> tuple[float, float] | None:
    name = best_rival(case) if rival else READY
    seconds = case["contenders"].get(name, {}).get("seconds") if name else None
    if not seconds or not case["flops"]:
        return None
    return case["flops"] / case["traffic"], case["flops"] / statistics.median(seconds) / 1e9

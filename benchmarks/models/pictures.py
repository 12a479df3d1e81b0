"""A chart for each number of threads: the median of every contender, a panel for each model."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from benchmarks.models.report import median_milliseconds, title
from benchmarks.picture import bars

_COLUMNS = 3


def draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """PNG files. Needs matplotlib, of the extra ``bench``."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    by_threads: dict[int, dict[str, dict[str, float]]] = {}
    for row in report["rows"].values():
        if values := median_milliseconds(row):
            panels = by_threads.setdefault(row["threads"], {})
            panels[title(row["model"], row.get("dtype", "f32"))] = values
    return [_figure(pyplot, report, count, models, folder) for count, models in by_threads.items()]


def _figure(
    pyplot: Any, report: dict[str, Any], threads: int, models: dict[str, dict[str, float]], folder: Path
) -> Path:
    rows = -(-len(models) // _COLUMNS)
    figure, axes = pyplot.subplots(rows, _COLUMNS, figsize=(15, 2.6 * rows + 1), squeeze=False)
    panels = list(axes.flat)
    for panel, (name, values) in zip(panels, models.items(), strict=False):
        bars(panel, list(values), list(values.values()), "milliseconds a call, median", log=False)
        panel.set_title(name)
    for panel in panels[len(models) :]:
        panel.axis("off")
    environment = report["environment"]
    figure.suptitle(f"{environment['cpu']}, threads: {threads}, {environment['date'][:10]}")
    figure.tight_layout()
    path = folder / f"models-{threads}.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path

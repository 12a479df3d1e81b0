"""All kernels of the benchmark, by group."""

from __future__ import annotations

from benchmarks.kernels.case import Case
from benchmarks.kernels.table import contractions, graphs, pointwise, rows, shuffles


def all_cases() -> list[Case]:
    """In the order of the report."""
    return [
        *pointwise.cases(),
        *rows.cases(),
        *shuffles.cases(),
        *contractions.cases(),
        *graphs.cases(),
    ]

"""What it costs to start: ``import kcache_grpc`` and ``kcache --help`` beside ``python -c pass``, in turn.

``python -m benchmarks.startup [--rounds 20]``
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

#: What the others are compared with.
BASELINE = "python -c pass"
COMMANDS: Mapping[str, Sequence[str]] = {
    BASELINE: ("-c", "pass"),
    "import kcache_grpc": ("-c", "import kcache_grpc"),
    "kcache --help": ("-m", "kcache_grpc", "--help"),
    "kcache --version": ("-m", "kcache_grpc", "--version"),
    "kcache compile --help": ("-m", "kcache_grpc", "compile", "--help"),
}


@dataclass(frozen=True)
class Process:
    """Seconds that one process took: elapsed, and of processors."""

    wall: float
    processor: float


def measure(rounds: int) -> dict[str, list[Process]]:
    """Each command once a round, after a round that is not counted."""
    processes: dict[str, list[Process]] = {name: [] for name in COMMANDS}
    for index in range(rounds + 1):
        for name, arguments in COMMANDS.items():
            process = _run(arguments)
            if index:
                processes[name].append(process)
    return processes


def _run(arguments: Sequence[str]) -> Process:
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    return Process(wall, usage.ru_utime + usage.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    processes = measure(parser.parse_args().rounds)
    table = Table("ms, above the baseline", "wall, best", "median", "processor, best", "median")
    for name, rows in processes.items():
        cells = []
        for seconds in ([row.wall for row in rows], [row.processor for row in rows]):
            cells += [min(seconds), statistics.median(seconds)]
        if name == BASELINE:
            baseline = cells
            table.add_row(f"{name} itself", *(f"{cell * 1e3:.0f}" for cell in cells))
        else:
            above = [cell - base for cell, base in zip(cells, baseline, strict=True)]
            table.add_row(name, *(f"{cell * 1e3:+.0f}" for cell in above))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

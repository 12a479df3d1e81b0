"""What it costs to start: ``import kcache_grpc`` and ``kcache --help`` beside ``python -c pass``, in turn.

``python -m benchmarks.services.startup [--rounds 20]``
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


def _columns(processes: Sequence[Process]) -> list[float]:
    """Milliseconds: best and median of wall times, then of processor times."""
    walls = [process.wall * 1e3 for process in processes]
    processors = [process.processor * 1e3 for process in processes]
    return [min(walls), statistics.median(walls), min(processors), statistics.median(processors)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    processes = measure(parser.parse_args().rounds)
    baseline = _columns(processes[BASELINE])
    table = Table("ms, above the baseline", "wall, best", "median", "processor, best", "median")
    table.add_row(f"{BASELINE} itself", *(f"{value:.0f}" for value in baseline))
    for name in [name for name in processes if name != BASELINE]:
        columns = zip(_columns(processes[name]), baseline, strict=True)
        table.add_row(name, *(f"{value - base:+.0f}" for value, base in columns))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""``make bench``: all benchmarks of the service in one run: tables, JSON and a picture.

``python -m benchmarks [--out DIR] [--quick]``
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import call_overhead, picture
from benchmarks.environment import clear_and_restart, description
from benchmarks.services import service


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", metavar="DIR")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds: shows that it works, not what it takes"
    )
    arguments = parser.parse_args()
    clear_and_restart("benchmarks")
    console = Console(width=120)
    with console.status("measuring hits and misses"):
        served = service.measure(rounds=2, calls=10, misses=3) if arguments.quick else service.measure()
    with console.status("measuring calls"):
        called = call_overhead.measure(2, 1000) if arguments.quick else call_overhead.measure()
    report = {"environment": description(), "service": served, "call_overhead": called}
    _print(console, report)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    picture.draw(report, arguments.out / "bench.png")
    console.print(f"wrote {arguments.out}/bench.json and bench.png")


def _print(console: Console, report: dict[str, Any]) -> None:
    hits = Table(
        "hit", "us, median", "low to high", "against the echo (low to high)", title="Hits, interleaved"
    )
    for name, row in report["service"]["hits"].items():
        times = "{:.2f}x ({:.2f} to {:.2f})".format(*row["ratio"]) if "ratio" in row else ""
        hits.add_row(name, f"{row['us']:,.1f}", f"{row['us_low']:,.1f} to {row['us_high']:,.1f}", times)
    console.print(hits)
    miss = report["service"]["miss"]
    stages = Table(
        "stage",
        "ms, median",
        title=f"A miss: {miss['ms']:.0f} ms ({miss['ms_low']:.0f} to {miss['ms_high']:.0f})",
    )
    for name, value in miss["stages_ms"].items():
        stages.add_row(name, f"{value:.2f}")
    console.print(stages)
    calls = Table("call", "us, median", title="Calling a kernel: two f32[4,8] in, one out")
    for name, row in report["call_overhead"]["microseconds"].items():
        calls.add_row(name, f"{row['median']:.2f}")
    console.print(calls)
    for name, row in report["call_overhead"]["ratios"].items():
        console.print(f"{name}: {row['median']:.2f}x ({row['low']:.2f} to {row['high']:.2f})")


if __name__ == "__main__":
    main()

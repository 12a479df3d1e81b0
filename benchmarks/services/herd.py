"""64 clients ask three servers on one Postgres for 20 new kernels; one client asks one server for 20 others.

``python -m benchmarks.services.herd [--clients N] [--kernels N] [--rounds N] [--asking ORDER]... [--json
FILE]``.
Clients are channels in two processes, with gRPC's round robin. On both sides a client asks for each kernel
when it has the one before, as a program does that calls ``compile``; in rounds of their own, for all kernels
at once, several a stream, as a program does that calls ``compile_many``; and, in further rounds, for all of
them side by side with a stream for each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from tests import postgres
from tests.server.harness import herd

ORDERS = ("in-turn", "at-once", "side-by-side")


def measure(clients: int, kernels: int, rounds: int, asking: str) -> dict[str, Any]:
    """Seconds of both sides, round by round, and what the gate leaves."""
    with tempfile.TemporaryDirectory(prefix="kcache-herd-") as folder, postgres.running() as server:
        results = herd.run(
            Path(folder), server, clients=clients, kernels=kernels, rounds=rounds, asking=asking
        )
    assert all((each.publishes, each.keys, each.compiles) == (kernels,) * 3 for each in results)
    return {
        "clients": clients,
        "kernels": kernels,
        "alone_s": [each.alone.seconds for each in results],
        "herd_s": [each.together.seconds for each in results],
        "alone_cpu_s": _cpu([each.alone.cpu for each in results]),
        "herd_cpu_s": _cpu([each.together.cpu for each in results]),
        "gate_s": [1.3 * each.alone.seconds + 1 for each in results],
        "ratio": statistics.median(each.ratio for each in results),
        "above_1.3x_s": statistics.median(
            each.together.seconds - 1.3 * each.alone.seconds for each in results
        ),
    }


def _cpu(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Medians of processor time by kind of process."""
    return {kind: round(statistics.median(each[kind] for each in rounds), 2) for kind in rounds[0]}


def main() -> None:
    """Measures and prints, and writes JSON where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asking", choices=ORDERS, action="append", help="default: all three")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    chosen: list[str] = arguments.asking or list(ORDERS)
    clear_and_restart("benchmarks.services.herd")
    sizes = (arguments.clients, arguments.kernels, arguments.rounds)
    report = {
        "environment": description(),
        **{asking: measure(*sizes, asking) for asking in chosen},
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

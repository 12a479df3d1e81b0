"""64 clients ask three servers on one Postgres for 20 new kernels; one client asks one server for 20 others.

``python -m benchmarks.herd [--clients N] [--kernels N] [--rounds N] [--json FILE]``. Clients are channels in
two processes, with gRPC's round robin. On both sides a client asks for each kernel when it has the one
before, as a program does that calls ``compile``; and, in rounds of their own, for all kernels at once.
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
from tests.server import herd


def measure(clients: int, kernels: int, rounds: int, *, at_once: bool) -> dict[str, Any]:
    """Seconds of both sides, round by round, and what the gate leaves."""
    with tempfile.TemporaryDirectory(prefix="kcache-herd-") as folder, postgres.running() as server:
        found = herd.run(
            Path(folder), server, clients=clients, kernels=kernels, rounds=rounds, at_once=at_once
        )
    assert all((each.publishes, each.keys, each.compiles) == (kernels,) * 3 for each in found)
    return {
        "clients": clients,
        "kernels": kernels,
        "alone_s": [each.alone.seconds for each in found],
        "herd_s": [each.together.seconds for each in found],
        "alone_cpu_s": _cpu([each.alone.cpu for each in found]),
        "herd_cpu_s": _cpu([each.together.cpu for each in found]),
        "gate_s": [1.3 * each.alone.seconds + 1 for each in found],
        "ratio": statistics.median(each.ratio for each in found),
        "above_1.3x_s": statistics.median(each.together.seconds - 1.3 * each.alone.seconds for each in found),
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
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    clear_and_restart("benchmarks.herd")
    sizes = (arguments.clients, arguments.kernels, arguments.rounds)
    report = {
        "environment": description(),
        "in turn": measure(*sizes, at_once=False),
        "at once": measure(*sizes, at_once=True),
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""Cold start, warm start and steady state of ``torch.compile``: backend kcache beside Inductor.

    python -m benchmarks.torch_compile [--models gpt2,bert] [--rounds 5] [--calls 7] [--cold] [--json FILE]
    python -m benchmarks.torch_compile --client [--models gpt2,bert] [--rounds 5]

Each measurement is a process of its own with one thread. Warm starts: caches of both are filled by a process
before; Inductor has its FX graph cache and AOTAutograd cache, kcache its cache directory and a server. The
contenders take turns within a round. The first process writes the bytecode of kcache, as pip does for an
installed package. ``eager`` is Dynamo alone (``backend="eager"``). ``--cold`` adds first starts with empty
caches, for kcache with an empty server. ``--client`` only measures the processor time of the client in cold
starts of kcache, which does not depend on what else the machine does: all of it, and what decomposition and
import take (``client_time.py``).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from tests.serving import ServerProcess

BACKENDS = ("kcache", "inductor", "eager")
MODELS = ("gpt2", "bert", "resnet50", "efficientnet", "llama")
_TIMEOUT = 1200


def run(model: str, backend: str, calls: int, environment: Mapping[str, str], *flags: str) -> dict[str, Any]:
    """What one process measures."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.torch_compile.child", model, backend, str(calls), *flags],
        env={**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if output.returncode:
        raise SystemExit(f"{model} with {backend}: exit status {output.returncode}\n{output.stderr[-4000:]}")
    return json.loads(output.stdout.splitlines()[-1])


def settings(folder: Path, address: str) -> dict[str, str]:
    """Environment of a process with its caches in ``folder``."""
    return {
        "KCACHE_ADDR": address,
        "KCACHE_CACHE_DIR": str(folder / "kcache"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def warm(model: str, rounds: int, calls: int, folder: Path, address: str) -> dict[str, Any]:
    """Starts with full caches, and the calls after them."""
    environment = settings(folder, address)
    for backend in ("kcache", "inductor"):
        run(model, backend, 1, environment)
    results: dict[str, list[dict[str, Any]]] = {backend: [] for backend in BACKENDS}
    for number in range(rounds):
        order = BACKENDS[number % 3 :] + BACKENDS[: number % 3]
        for backend in order:
            results[backend].append(run(model, backend, calls, environment))
    return {
        "first": {name: [each["first"] for each in values] for name, values in results.items()},
        "cpu": {name: [each["cpu"] for each in values] for name, values in results.items()},
        "call": {
            name: [statistics.median(each["calls"]) for each in values] for name, values in results.items()
        },
        "error": max(each["error"] for each in results["kcache"]),
        "decisions": results["kcache"][0]["decisions"],
    }


def cold(model: str, folder: Path) -> dict[str, Any]:
    """First starts with nothing cached."""
    seconds: dict[str, float] = {}
    for backend in ("kcache", "inductor"):
        place = folder / f"cold-{model}-{backend}"
        place.mkdir()
        with ServerProcess(place, "--prepare", "host") as server:
            outcome = run(model, backend, 1, settings(place, server.address))
        seconds[backend] = outcome["first"]
        if backend == "kcache":
            seconds["client cpu"], seconds["import"] = outcome["cpu"], outcome["import"]
            print(f"  {outcome['decisions']}", flush=True)
    return seconds


def client(model: str, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Processor seconds of clients that trace the graph; the first one compiles, and writes bytecode."""
    results: dict[str, list[float]] = {"cpu": [], "import": []}
    place = folder / model
    place.mkdir()
    with ServerProcess(place) as server:
        environment = settings(place, server.address)
        run(model, "kcache", 1, environment, "traced")
        for _ in range(rounds):
            outcome = run(model, "kcache", 1, environment, "traced")
            for name, values in results.items():
                values.append(outcome[name])
    return results


def measure_client(models: Sequence[str], rounds: int) -> dict[str, Any]:
    """``client`` of each model, printed as a table."""
    print("| model | decomposition and import, s | client, s |\n" + "| --- " * 3 + "|", flush=True)
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="kcache-bench-") as name:
        for model in models:
            measured[model] = client(model, rounds, Path(name))
            cells = [
                f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
                for values in (measured[model]["import"], measured[model]["cpu"])
            ]
            print("| " + " | ".join([model, *cells]) + " |", flush=True)
    return measured


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest and largest of the other's time divided by ours, round by round."""
    values = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    return statistics.median(values), values[0], values[-1]


def line(name: str, measured: dict[str, Any]) -> str:
    """A row of the table."""
    first, call = measured["first"], measured["call"]
    cells = [name, *(f"{statistics.median(first[backend]):.2f}" for backend in BACKENDS)]
    for rival in ("inductor", "eager"):
        middle, low, high = ratios(first[rival], first["kcache"])
        cells.append(f"{middle:.2f} ({low:.2f}-{high:.2f})")
    cells += [f"{statistics.median(call[backend]) * 1e3:.1f}" for backend in BACKENDS]
    middle, low, high = ratios(call["kcache"], call["inductor"])
    cells.append(f"{middle:.2f} ({low:.2f}-{high:.2f})")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=7)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--client", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    clear_and_restart("benchmarks.torch_compile")
    report: dict[str, Any] = {"machine": description(), "models": {}}
    if arguments.client:
        report["client"] = measure_client(arguments.models.split(","), arguments.rounds)
    else:
        measure_starts(arguments, report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


def measure_starts(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    """Starts and calls of all contenders, printed as a table."""
    print(
        "| model | kcache s | Inductor s | Dynamo alone s | kcache / Inductor | kcache / Dynamo alone | ",
        end="",
    )
    print("kcache ms | Inductor ms | eager ms | Inductor / kcache |\n" + "| --- " * 10 + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="kcache-bench-") as name:
        folder = Path(name)
        (folder / "server").mkdir()
        with ServerProcess(folder / "server") as server:
            for model in arguments.models.split(","):
                measured = warm(model, arguments.rounds, arguments.calls, folder, server.address)
                report["models"][model] = measured
                print(line(model, measured), flush=True)
        speeds = [
            ratios(each["call"]["kcache"], each["call"]["inductor"])[0] for each in report["models"].values()
        ]
        print(f"geometric mean of Inductor / kcache: {math.prod(speeds) ** (1 / len(speeds)):.2f}")
        if arguments.cold:
            report["cold"] = {model: cold(model, folder) for model in arguments.models.split(",")}
            for model, seconds in report["cold"].items():
                share = seconds["kcache"] / seconds["inductor"]
                print(
                    f"cold {model}: kcache {seconds['kcache']:.2f} s, Inductor {seconds['inductor']:.2f} s, "
                    f"{share:.2f}x; processor time of the client {seconds['client cpu']:.2f} s, of it "
                    f"decomposition and import {seconds['import']:.2f} s"
                )


if __name__ == "__main__":
    main()

"""Programs of JAX at real size, f32, on a CPU: kcache beside ``jax.jit``.

    python -m benchmarks.jax_programs [--programs adamw,resnet50] [--contenders kcache,jax] [--threads 1,2]
                                      [--rounds 7] [--budget 1] [--clock wall] [--json FILE]

As ``benchmarks.models``: a process for each contender, pinned to as many CPUs as there are threads, measured
in turns. Results are compared with those of ``jax.jit`` in f64: an error of more than twice that of
``jax.jit`` in f32 is reported, and not timed. ``--clock cpu`` counts the processor time of a call, of all
threads together, for machines that are busy.

--json FILE has the rows that are complete; a second run with the same FILE measures those that it lacks.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from benchmarks.jax_programs.catalog import ALL, PROGRAMS
from benchmarks.jax_programs.contenders import CONTENDERS
from benchmarks.models.arguments import counts, names
from benchmarks.models.child import CLOCKS
from benchmarks.models.processes import measured
from benchmarks.models.report import key, lines
from tests.serving import ServerProcess


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--programs", type=names(ALL), default=list(PROGRAMS), help=f"of {', '.join(PROGRAMS)}"
    )
    parser.add_argument(
        "--contenders", type=names(CONTENDERS), default=list(CONTENDERS), help=f"of {', '.join(CONTENDERS)}"
    )
    parser.add_argument("--threads", type=counts, default=[1, 2], help="numbers of threads, 1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of a contender in a round")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds until a process is given up")
    parser.add_argument("--json", type=Path, help="write the rows there, and skip those that it has")
    return parser.parse_args()


def _measured(options: argparse.Namespace, program: str, threads: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kcache-jax-programs-") as name:
        (Path(name) / "server").mkdir()
        with ServerProcess(Path(name) / "server") as server:
            return measured(
                program,
                "f32",
                threads,
                options.contenders,
                options.rounds,
                options.budget,
                options.timeout,
                Path(name),
                server.address,
                child="benchmarks.jax_programs.child",
                clock=options.clock,
            )


def main() -> None:
    options = arguments()
    clear_and_restart("benchmarks.jax_programs")
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    report: dict[str, Any] = {"environment": {**description(), "packages": packages}, "rows": {}}
    if options.json and options.json.exists():
        report["rows"] = json.loads(options.json.read_text())["rows"]
    for threads in options.threads:
        for program in options.programs:
            if key(program, threads) in report["rows"]:
                continue
            row = _measured(options, program, threads)
            report["rows"][key(program, threads)] = {"threads": threads, "clock": options.clock, **row}
            print(*lines({key(program, threads): row}, options.contenders), sep="\n", flush=True)
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(report, indent=1) + "\n")
    print("", *lines(report["rows"], options.contenders), sep="\n")


if __name__ == "__main__":
    main()

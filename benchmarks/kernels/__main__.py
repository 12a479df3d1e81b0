"""``make bench-kernels``: kernels beside their rivals, one thread and all: tables, JSON and pictures.

``python -m benchmarks.kernels [--only GLOB] [--quick] [--threads 1,all] [--rivals eager,jax,...] [--rounds N]
[--json FILE]``. A glob is matched with a kernel's name and its group; ``--list`` names them.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from benchmarks.kernels import report
from benchmarks.kernels.case import Case
from benchmarks.kernels.processes import measured

ALL_RIVALS = "eager,inductor,autotune,jax,numpy,onnx,hand"
QUICK_RIVALS = "eager,inductor,jax,numpy,onnx,hand"


def main() -> None:
    arguments = _arguments()
    clear_and_restart("benchmarks.kernels")
    from benchmarks.kernels.table import all_cases  # imports frameworks, after the environment is clear

    cases = [case for case in all_cases() if _wanted(case, arguments)]
    if arguments.list:
        print("\n".join(f"{case.group:22} {case.name}" for case in cases))
        return
    found: dict[str, Any] = {"environment": _environment(arguments), "machines": [], "cases": []}
    for threads in _thread_counts(arguments.threads):
        for line in measured([case.name for case in cases], threads, arguments):
            if "machine" in line:
                found["machines"].append(line["machine"])
                report.print_machine(line["machine"])
            else:
                found["cases"].append(line["case"])
                report.print_case(line["case"])
            if arguments.json:
                arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    report.print_summary(found)
    if arguments.pictures:
        from benchmarks.kernels import pictures

        pictures.draw(found, arguments.pictures)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="GLOB", action="append", help="kernels or groups; may come again")
    parser.add_argument("--quick", action="store_true", help="a kernel or two of each group, few rounds")
    parser.add_argument("--list", action="store_true", help="name the kernels")
    parser.add_argument("--threads", help="1,all; of a quick run 1")
    parser.add_argument("--rivals", help=f"of {ALL_RIVALS}; all of them")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--budget", type=float, default=0.02, help="seconds of a contender in a round")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a busy machine, with one thread"
    )
    parser.add_argument("--numerics", choices=("strict", "default", "fast"), default="default")
    parser.add_argument(
        "--target", default=_cpu(), help="what ours is compiled for; this CPU by its name (%(default)s)"
    )
    parser.add_argument(
        "--inductor-cache",
        type=Path,
        metavar="DIR",
        help="keep what it compiled: its compile times are not cold",
    )
    parser.add_argument(
        "--autotune-seconds",
        type=float,
        default=240,
        help="Inductor's max-autotune compiles until so many seconds are used up, then no more (%(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    arguments.rivals = arguments.rivals or (QUICK_RIVALS if arguments.quick else ALL_RIVALS)
    arguments.threads = arguments.threads or ("1" if arguments.quick else "1,all")
    arguments.rounds = arguments.rounds or (5 if arguments.quick else 11)
    return arguments


def _cpu() -> str:
    """This machine as users name it who compile for it alone; its level where it has no such name."""
    from llvmlite import binding

    from kcache_grpc.model.target import CPU_NAMES

    name = binding.get_host_cpu_name()
    return name if name in CPU_NAMES else "host"


def _wanted(case: Case, arguments: argparse.Namespace) -> bool:
    globs: list[str] = arguments.only or ["*"]
    if arguments.quick and not case.quick:
        return False
    name, group = case.name, case.group
    return any(fnmatch.fnmatch(name, glob) or fnmatch.fnmatch(group, glob) for glob in globs)


def _thread_counts(text: str) -> list[int]:
    every = len(os.sched_getaffinity(0))
    counts = [every if word == "all" else int(word) for word in text.split(",")]
    return list(dict.fromkeys(min(count, every) for count in counts))


def _environment(arguments: argparse.Namespace) -> dict[str, object]:
    from importlib import metadata

    names = ("torch", "jax", "onnxruntime", "numpy")
    versions = {name: metadata.version(name) for name in names if _installed(name)}
    return {
        **description(),
        "rivals": versions,
        "rounds": arguments.rounds,
        "clock": arguments.clock,
        "numerics": arguments.numerics,
        "target": arguments.target,
        "inductor_cache": bool(arguments.inductor_cache),
        "load": os.getloadavg()[0],
    }


def _installed(name: str) -> bool:
    from importlib import metadata

    return any(metadata.distributions(name=name))


if __name__ == "__main__":
    main()

"""``make bench-kernels``: kernels beside their rivals, one thread and all: tables, JSON and pictures.

``python -m benchmarks.kernels [--only GLOB] [--quick] [--threads 1,all] [--rivals eager,jax,...] [--rounds N]
[--json FILE [--resume] [--minutes M]]``. A glob is matched with a kernel's name and its group; ``--list``
names them. Every row is written as it is done: a run that was cut off, or whose minutes were over, goes on
with ``--resume``. ``--compile`` fills ``--inductor-cache DIR`` first, so that such minutes are of measuring.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
from pathlib import Path

from benchmarks.environment import clear_and_restart, description
from benchmarks.kernels import report
from benchmarks.kernels.case import Case
from benchmarks.kernels.kept import Allowance, Kept
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
    names = [case.name for case in cases]
    if arguments.compile:
        _compile(names, arguments)
        return
    kept = Kept(arguments.json, _environment(arguments), resume=arguments.resume)
    left = _run(names, kept, arguments)
    report.print_summary(kept.found)
    if arguments.pictures:
        from benchmarks.kernels import pictures

        pictures.draw(kept.found, arguments.pictures)
    if left:
        print(f"\nthe minutes are over; rows that are left: {left}. The same command with --resume goes on")


def _run(names: list[str], kept: Kept, arguments: argparse.Namespace) -> int:
    """Rows for every number of threads; how many are left where the minutes are over."""
    time, counts = Allowance(arguments.minutes), _thread_counts(arguments.threads)
    for threads in counts:
        left = kept.left(names, threads)
        if not left:
            continue
        with contextlib.closing(measured(left, threads, arguments)) as lines:
            for line in time.during(lines):
                if "machine" in line:
                    kept.add_machine(line["machine"])
                    report.print_machine(line["machine"])
                else:
                    kept.add_case(line["case"])
                    done = len(names) - len(kept.left(names, threads))
                    report.print_case(line["case"], f"[{done} of {len(names)}, {time.spent:.0f} s]")
    return sum(len(kept.left(names, threads)) for threads in counts)


def _compile(names: list[str], arguments: argparse.Namespace) -> None:
    """Fills Inductor's cache; what is there already takes no time."""
    time = Allowance(arguments.minutes)
    for threads in _thread_counts(arguments.threads):
        with contextlib.closing(measured(names, threads, arguments)) as lines:
            for line in time.during(lines):
                if "case" in line:
                    report.print_compiled(line["case"], f"[{threads} thread(s), {time.spent:.0f} s]")


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
    parser.add_argument(
        "--compile",
        action="store_true",
        help="only compile for --inductor-cache, once for each number of threads; time nothing",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="replaced after every row")
    parser.add_argument("--resume", action="store_true", help="go on with the rows that FILE has")
    parser.add_argument("--minutes", type=float, metavar="M", help="start no kernel after so many")
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.compile and arguments.inductor_cache is None:
        parser.error("--compile needs --inductor-cache DIR")
    if arguments.resume and arguments.json is None:
        parser.error("--resume needs --json FILE")
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
        "contenders": arguments.rivals,
        "rounds": arguments.rounds,
        "clock": arguments.clock,
        "numerics": arguments.numerics,
        "target": arguments.target,
        "budget": arguments.budget,
        "inductor_cache": bool(arguments.inductor_cache),
        "load": os.getloadavg()[0],
    }


def _installed(name: str) -> bool:
    from importlib import metadata

    return any(metadata.distributions(name=name))


if __name__ == "__main__":
    main()

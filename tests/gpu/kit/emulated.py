"""``python -m tests.gpu.kit.emulated PACK``: replays the cases of a pack on the emulator, and judges them.

Every case runs for each target of the pack, in every order of threads; what targets have in common runs once.
Cases that are timed on a GPU are left out, and those whose work, elements times lines of LLVM IR, is above
``--work``: none of today's. A pack that does not exist is made first, with LLVM IR. With ``--optimized``, the
IR that LLVM's optimizer leaves is executed. Results are kept in the pack, and a replay that was interrupted
continues. Status 1: a result is not right, a case was left, or none of a form and dtype was executed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.packing import pack as packing
from benchmarks.gpu.kit.runtime.reading import INDEX, Pack
from benchmarks.gpu.kit.runtime.results import read
from kcache_compiler.llvm.gpu_targets import gpu_target_named
from tests.repository.sources import ROOT

EMULATOR = ROOT / "tests/gpu/harness/emulated_device.py"
#: The largest case has 3.4e9 and takes 6 seconds.
WORK = 1 << 32
_LIMIT = 600.0
#: The folders of results in a pack: of LLVM IR as it is packed, and as LLVM's optimizer leaves it.
RESULTS, OPTIMIZED = "emulated", "optimized"

Result = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.kit.emulated", description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--targets", default=",".join(packing.TARGETS), help="of a pack that is made")
    parser.add_argument("--sample", type=int, default=0, help="about so many cases, of a pack that is made")
    parser.add_argument(
        "--optimized", action="store_true", help="execute the IR that LLVM's optimizer leaves"
    )
    parser.add_argument("--work", type=int, default=WORK)
    parser.add_argument("--minutes", type=float, default=55.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if not (options.pack / INDEX).exists():
        sample = ["--sample", str(options.sample), "--jobs", str(options.jobs)]
        packing.main([str(options.pack), "--targets", options.targets, "--ir", *sample])
    pack = Pack(options.pack)
    folder = options.pack / (OPTIMIZED if options.optimized else RESULTS)
    results = replayed(options.pack, options.work, options.minutes, options.jobs, folder)
    said = [_judged(pack, target, cases, options.work) for target, cases in results.items()]
    return int(not all(said))


def _judged(pack: Pack, target: str, results: Sequence[Result], work: int) -> bool:
    """Whether all is right; prints what is not."""
    cases, missing = cases_of(pack, target), not_executed(pack, target, results)
    small = [case for case in cases if case["kind"] == "test" and case["work"] <= work]
    print(f"{target}: {len(results)} of {len(cases)} cases were executed: {counts_of(results)}")
    print(f"{len(small) - len(results)} cases within the bound of work were left")
    print(f"no case of {', '.join(missing)}" if missing else "cases of every form and dtype are among them")
    return not missing and sum(result["status"] == "right" for result in results) == len(small)


def replayed(pack: Path, work: int, minutes: float, jobs: int, results: Path) -> dict[str, list[Result]]:
    """The results by target of all cases of at most so much work, from processes that share executables.

    Each target has an equal part of the time, in which its most valuable cases come first, and then what the
    others left.
    """
    targets, end = Pack(pack).index["targets"], time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="kcache-emulated-") as folder:
        for share in (minutes / len(targets), minutes):
            for target in targets:
                left = (end - time.monotonic()) / 60
                _run(pack, target, work, max(0.0, min(share, left)), jobs, folder, results)
    return {target: results_of(pack, target, results) for target in targets}


def results_of(pack: Path, target: str, results: Path) -> list[Result]:
    """The last result of each case that was executed with this pack."""
    by_case = dict[str, Result]()
    digest = Pack(pack).digest
    for file in sorted(results.glob(f"{target}-*.jsonl")):
        for session, line in read(file):
            if "result" in line and session["pack"] == digest:
                by_case[line["result"]["case"]] = line["result"]
    return [*by_case.values()]


def _run(pack: Path, target: str, work: int, minutes: float, jobs: int, folder: str, results: Path) -> None:
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "compiler", ROOT / "migrations")))
    capability = "{}.{}".format(*gpu_target_named(target).capability)
    environment = {**os.environ, "PYTHONPATH": paths, "KCACHE_EMULATOR_FOLDER": folder}
    environment["KCACHE_EMULATED_CAPABILITY"] = capability
    environment["KCACHE_EMULATED_IR"] = results.name
    results.mkdir(exist_ok=True)
    files = [results / f"{target}-{part}-of-{jobs}.jsonl" for part in range(jobs)]
    running = [
        subprocess.Popen(_command(pack, work, minutes, file, f"{part}/{jobs}"), env=environment, cwd=ROOT)
        for part, file in enumerate(files)
    ]
    for process in running:
        process.wait()


def _command(pack: Path, work: int, minutes: float, results: Path, part: str) -> list[str]:
    options = {"driver": EMULATOR, "work": work, "minutes": minutes, "json": results, "part": part}
    command = [sys.executable, "-m", "benchmarks.gpu.kit", "run", str(pack), "--limit", str(_LIMIT)]
    command += ["--kind", "test"]
    return [*command, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]


def cases_of(pack: Pack, target: str) -> list[dict[str, Any]]:
    """The cases that have a kernel for a target."""
    return [case for case in pack.cases.values() if target in case["targets"]]


def counts_of(results: Sequence[Mapping[str, Any]]) -> str:
    """How many results have each status."""
    counts = Counter(result["status"] for result in results)
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def not_executed(pack: Pack, target: str, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Forms and dtypes that some case of the pack has for a target, and none that was executed."""
    executed = {result["case"] for result in results}
    pairs, seen = (
        {(form, case["dtype"]) for case in cases for form in case["forms"]}
        for cases in (cases_of(pack, target), [pack.cases[name] for name in executed])
    )
    return [f"{form} of {dtype}" for form, dtype in sorted(pairs - seen)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

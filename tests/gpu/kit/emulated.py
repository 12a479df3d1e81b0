"""``python -m tests.gpu.kit.emulated PACK``: replays the cases of a pack on the emulator, and judges them.

Cases that are timed on a GPU are left out, and those whose work, elements times lines of LLVM IR, is above
``--work``: none of today's. A pack that does not exist is made first, with LLVM IR for ``sm_90``. Status 1: a
result is not right, a case was left for want of time, or no case of a form and dtype was executed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.packing import pack as packing
from benchmarks.gpu.kit.runtime.reading import INDEX, Pack
from benchmarks.gpu.kit.runtime.results import read
from tests.repository.sources import ROOT

EMULATOR = ROOT / "tests/gpu/harness/emulated_device.py"
TARGET = "sm_90"
#: The largest case has 3.4e9 and takes 12 seconds.
WORK = 1 << 32
_LIMIT = 600.0


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.kit.emulated", description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--sample", type=int, default=0, help="about so many cases, of a pack that is made")
    parser.add_argument("--work", type=int, default=WORK)
    parser.add_argument("--minutes", type=float, default=55.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if not (options.pack / INDEX).exists():
        sample = ["--sample", str(options.sample), "--jobs", str(options.jobs)]
        packing.main([str(options.pack), "--targets", TARGET, "--ir", *sample])
    pack = Pack(options.pack)
    results = replayed(options.pack, options.work, options.minutes, options.jobs)
    cases, missing = cases_of(pack), not_executed(pack, results)
    small = [case for case in cases if case["kind"] == "test" and case["work"] <= options.work]
    print(f"{len(results)} of {len(cases)} cases were executed: {counts_of(results)}")
    print(f"{len(small) - len(results)} cases within the bound of work were left")
    print(f"no case of {', '.join(missing)}" if missing else "cases of every form and dtype are among them")
    right = sum(result["status"] == "right" for result in results)
    return int(bool(missing) or right < len(small))


def replayed(pack: Path, work: int, minutes: float, jobs: int) -> list[dict[str, Any]]:
    """The results of all cases of at most so much work, from processes that share executables."""
    with tempfile.TemporaryDirectory(prefix="kcache-emulated-") as folder:
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "compiler", ROOT / "migrations")))
        environment = {**os.environ, "PYTHONPATH": paths, "KCACHE_EMULATOR_FOLDER": folder}
        files = [Path(folder) / f"{part}.jsonl" for part in range(jobs)]
        running = [
            subprocess.Popen(_command(pack, work, minutes, file, f"{part}/{jobs}"), env=environment, cwd=ROOT)
            for part, file in enumerate(files)
        ]
        for process in running:
            process.wait()
        return [line["result"] for file in files for _, line in read(file) if "result" in line]


def _command(pack: Path, work: int, minutes: float, results: Path, part: str) -> list[str]:
    options = {"driver": EMULATOR, "work": work, "minutes": minutes, "json": results, "part": part}
    command = [sys.executable, "-m", "benchmarks.gpu.kit", "run", str(pack), "--limit", str(_LIMIT)]
    command += ["--kind", "test"]
    return [*command, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]


def cases_of(pack: Pack) -> list[dict[str, Any]]:
    """The cases that have a kernel for the emulator's target."""
    return [case for case in pack.cases.values() if TARGET in case["targets"]]


def counts_of(results: Sequence[Mapping[str, Any]]) -> str:
    """How many results have each status."""
    counts = Counter(result["status"] for result in results)
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def not_executed(pack: Pack, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Forms and dtypes that some case of the pack has, and none that was executed."""
    executed = {result["case"] for result in results}
    pairs, seen = (
        {(form, case["dtype"]) for case in cases for form in case["forms"]}
        for cases in (cases_of(pack), [pack.cases[name] for name in executed])
    )
    return [f"{form} of {dtype}" for form, dtype in sorted(pairs - seen)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

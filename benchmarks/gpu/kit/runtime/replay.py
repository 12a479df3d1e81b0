"""``run DIR --minutes N``: executes the cases of a pack in a child process, and writes what became of each.

Status 0: everything that ran is right. 1: something is not. 2: the pack, or the file of results, cannot be
used. 3: there is no GPU. 130: interrupted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.kit.runtime.child import Child, NoAnswer
from benchmarks.gpu.kit.runtime.devices import NoGpu
from benchmarks.gpu.kit.runtime.reading import Pack, chosen_target
from benchmarks.gpu.kit.runtime.results import Results
from benchmarks.gpu.kit.runtime.sanitize import sanitized
from kcache_grpc.errors import KcacheError

#: Seconds of a case by kind: a speed case may compile rivals.
LIMITS = {"test": 20.0, "speed": 120.0}
#: Seconds at the end in which no case begins.
_RESERVE = 0.5
UNUSABLE, NO_GPU, INTERRUPTED = 2, 3, 130


def parser(program: str, folder: Path | None) -> argparse.ArgumentParser:
    """The arguments of ``run``; ``folder`` is the pack if it is known."""
    made = argparse.ArgumentParser(prog=program, description=__doc__)
    if folder is None:
        made.add_argument("pack", type=Path)
    else:
        made.set_defaults(pack=folder)
    made.add_argument("--minutes", type=_number, default=10.0, help="all of it ends within this time")
    made.add_argument(
        "--json", type=Path, help="file of results, a JSON value a line; continued if it exists"
    )
    made.add_argument("--driver", default="", help="a Python file whose open_device() executes kernels")
    made.add_argument("--only", default="", help="cases whose name contains this")
    made.add_argument(
        "--work", type=int, help="only cases of at most so many elements times lines of LLVM IR"
    )
    made.add_argument(
        "--part", type=_part, default=(0, 1), help="I/N: of N parts of the cases that of index I"
    )
    made.add_argument("--kind", choices=[*LIMITS], help="only cases that are compared, or that are timed")
    made.add_argument("--limit", type=_number, help="seconds of a case")
    made.add_argument("--again", action="store_true", help="execute again what was not right")
    made.add_argument("--sanitize", action="store_true", help="a kernel of each form under compute-sanitizer")
    return made


def _number(text: str) -> float:
    """Raises ``ValueError``."""
    number = float(text)
    if not number >= 0:
        raise ValueError(text)
    return number


def _part(text: str) -> tuple[int, int]:
    """Raises ``ValueError``."""
    index, count = map(int, text.split("/"))
    if not 0 <= index < count:
        raise ValueError(text)
    return index, count


def main(arguments: Sequence[str], program: str, folder: Path | None = None) -> int:
    """Run the command line."""
    options = parser(program, folder).parse_args(arguments)
    try:
        return Replay(options).run()
    except NoGpu as error:
        print(f"no GPU: nothing was executed ({error})", file=sys.stderr)
        return NO_GPU
    except KcacheError as error:
        print(error.message, file=sys.stderr)
        return UNUSABLE
    except OSError as error:
        print(f"the run ended, as it cannot write: {error}", file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED


class Replay:
    """One session over the cases of a pack."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._end = time.monotonic() + 60 * options.minutes
        self._pack = Pack(options.pack)
        self._pack.check()
        if not any(options.only in name for name in self._pack.cases):
            raise KcacheError(f"no case of the pack has {options.only!r} in its name")
        self._results = Results(options.json or options.pack / "results.jsonl")

    def run(self) -> int:
        """Executes what is left, most valuable first. Raises ``NoGpu``, ``KcacheError``, ``OSError``."""
        child = Child(self._options.pack, self._options.driver)
        try:
            return self._run(child)
        finally:
            child.stop()

    def _run(self, child: Child) -> int:
        options, device = self._options, child.device()
        capability = tuple(map(int, device["capability"].split(".")))
        target = chosen_target(self._pack.index["targets"], (capability[0], capability[1]))
        if target is None:
            raise KcacheError(f"the pack has kernels for {self._pack.index['targets']}, none for this GPU")
        session = {**device, "target": target, **self._origin()}
        done = self._results.begin(session, again=options.again)
        print(f"{device['device']}, CUDA {device['cuda']}, kernels for {target}", flush=True)
        if options.sanitize:
            child.stop()
            return sanitized(self._pack, target, options.driver, options.only, self._results, self._end)
        left = [case for case in self._wanted(target) if case["name"] not in done]
        counts = Counter(result["status"] for result in self._executed(child, target, left))
        said = ", ".join(f"{number} {status}" for status, number in counts.items())
        print(said or ("nothing was executed" if left else "nothing was left"))
        return int(bool(set(counts) - {"right"}))

    def _origin(self) -> dict[str, str]:
        return {
            "pack": self._pack.digest,
            "commit": self._pack.index["commit"],
            "executor": self._options.driver,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }

    def _executed(
        self, child: Child, target: str, left: Sequence[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        for number, case in enumerate(left, 1):
            seconds = self._end - time.monotonic() - _RESERVE
            if seconds <= 0:
                self._results.add({"end": "time", "left": len(left) - number + 1})
                print(f"the time is over; {len(left) - number + 1} cases are left")
                return
            result = self._one(child, target, case, seconds)
            if result is not None:
                self._results.add({"result": result})
                _print(number, len(left), result)
                yield result
        self._results.add({"end": "done", "left": 0})

    def _wanted(self, target: str) -> list[dict[str, Any]]:
        """The cases that were asked for, most valuable first."""
        only, kinds = self._options.only, [self._options.kind] if self._options.kind else [*LIMITS]
        most, (first, step) = self._options.work, self._options.part
        ordered = sorted(self._pack.cases.values(), key=lambda case: case["priority"])
        wanted = [
            case
            for case in ordered
            if only in case["name"] and case["kind"] in kinds and target in case["targets"]
        ]
        return [case for case in wanted if most is None or case["work"] <= most][first::step]

    def _one(self, child: Child, target: str, case: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The result of a case; None where the session ended before the case's own limit."""
        limit = self._options.limit or LIMITS[case["kind"]]
        try:
            result = child.ask(case["name"], target, min(limit, seconds))
        except NoAnswer as lost:
            if lost.timed_out and seconds < limit and not lost.known:
                return None
            status = "timed out" if lost.timed_out else "crashed"
            known = lost.known or {"case": case["name"], "differences": [], "share": 0.0}
            measured = known.get("status") == "right" and "us" in known
            result = {**known, "status": "right" if measured else status, "error": str(lost)}
        if result["status"] != "right":
            child.stop()  # whatever such a kernel did to the context, the next one has another
        return result | {"kind": case["kind"], "forms": case["forms"], "dtype": case["dtype"]}


def _print(number: int, count: int, result: dict[str, Any]) -> None:
    """Wrong results and times at once; of right ones every fiftieth."""
    text = f"[{number}/{count}] {result['case']}: {result['status']}"
    if "us" in result:
        times = ", ".join(f"{name} {value:.1f}" for name, value in result["us"].items())
        text += f"; us: {times}; {result['share_of_copy']:.2f} of copy, {result['tflops']:.1f} TFLOP/s"
    if result["status"] != "right":
        text += f" {result.get('error', '')}"
        text += json.dumps(result["differences"][:1]) if result["differences"] else ""
    if result["status"] != "right" or "us" in result or number % 50 == 0:
        print(text, flush=True)

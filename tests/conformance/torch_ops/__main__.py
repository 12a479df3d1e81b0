"""``python -m tests.conformance.torch_ops``: what becomes of PyTorch's own samples of its operations.

Each operation that PyTorch tests, in f32, i64, i1 and bf16 where it has them, with one of its samples that
the seed draws: exported by ``torch.export``, compiled, and compared with eager mode. ``--part I/N`` takes the
I-th of N parts, ``--op`` and ``--dtype`` choose, ``--seconds`` begins no batch after so many. ``--record
FILE`` keeps a line of JSON for each and leaves out what is kept there, so that a run goes on where one ended.

``--draw planted`` puts NaN, infinities and zeros into those samples. ``--draw mixed`` calls operations with
operands of two dtypes, and ``--draw edges`` with the values at the edges of one: ten dtypes, several calls a
program, whose names the reasons begin with. ``--draw core`` calls each operation of ATen's core set in them.

Status 1 when a result is wrong, a process ended, or a stage failed without naming the operation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.conformance.torch_ops.harness.child import KINDS
from tests.conformance.torch_ops.harness.judge import ONCE
from tests.ops.generated.drive import Case, cases

CHILD = "tests.conformance.torch_ops.harness.child"
BAD = ("wrong", "crash", "error")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.torch_ops")
    parser.add_argument("--draw", choices=KINDS, default="samples")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--dtype", nargs="*", default=())
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--record", type=Path)
    parser.add_argument(
        "--core", action="store_true", help="names the operations of ATen's core set that are right"
    )
    options = parser.parse_args()
    part, of = map(int, options.part.split("/"))
    asked = [
        (op, dtype)
        for op, dtype in KINDS[options.draw]()
        if (not options.op or op in options.op) and (not options.dtype or dtype in options.dtype)
    ][part - 1 :: of]
    results = _found(options, asked)
    if options.core:
        core = sorted({name for case in results for name in case.classes})
        sys.stdout.write(f"ATen's core set, {len(core)} operations: {' '.join(core)}\n")
    once = [f"{case.op} {case.dtype}" for case in results if case.outcome == "right" and case.reason == ONCE]
    if once:
        sys.stdout.write(f"{ONCE}, {len(once)}: {', '.join(once)}\n")
    counts = Counter(case.outcome for case in results)
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    sys.stdout.write(f"{len(results)} samples: {words}\n")
    if len(results) < len(asked):
        sys.stdout.write(f"{len(asked) - len(results)} are left\n")
    return int(any(case.outcome in BAD for case in results))


def _found(options: argparse.Namespace, asked: Sequence[tuple[str, str]]) -> list[Case]:
    """What became of each that is asked for, or was before time was over; printed as soon as it is known."""
    results = list(_recorded(options.record, asked))
    known = {(case.op, case.dtype) for case in results}
    missing = [pair for pair in asked if pair not in known]
    end = time.monotonic() + options.seconds
    drawn = cases(missing, len(missing), options.seed, module=f"{CHILD} {options.draw}")
    for case in itertools.takewhile(lambda _: time.monotonic() < end, drawn):
        results.append(case)
        if options.record:
            with options.record.open("a") as file:
                file.write(json.dumps(asdict(case)) + "\n")
        _print(case, options.draw in ("mixed", "edges"))
    return results


def _recorded(file: Path | None, asked: Sequence[tuple[str, str]]) -> Iterator[Case]:
    """Those of a record that are asked for."""
    if file is None or not file.exists():
        return
    chosen = set(asked)
    for line in file.read_text().splitlines():
        case = Case(**json.loads(line))
        if (case.op, case.dtype) in chosen:
            yield case


def _print(case: Case, whole: bool) -> None:
    if case.outcome == "right":
        return
    reason = case.reason if whole else case.reason.replace("\n", " ")[:300]
    sys.stdout.write(f"{case.outcome}: {case.op} {case.dtype}: {reason}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

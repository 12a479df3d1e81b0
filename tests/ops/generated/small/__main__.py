"""``python -m tests.ops.generated.small --programs N --seed S``: what became of about N programs.

``--op`` and ``--dtype`` choose, ``--level`` is the optimization level. With ``--seconds`` no batch begins
after so many, and with ``--target`` programs are compiled and not run. Status 1 when a result is wrong, a
process crashed, or a stage failed without naming the operation.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time

from tests.ops.generated.drive import Case, cases
from tests.ops.generated.judge import OUTCOMES
from tests.ops.generated.operations.catalog import drawn
from tests.ops.generated.small.derive import pairs
from tests.ops.generated.structure.told import tell_outcomes, tell_reasons

_BAD = ("wrong", "crash", "error")
CHILD = "tests.ops.generated.small.child"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.ops.generated.small")
    parser.add_argument("--programs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--dtype", nargs="*", default=())
    parser.add_argument("--level", type=int, default=1, help="optimization level")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--target", default="")
    parser.add_argument("--show", nargs="*", default=_BAD, help="outcomes to print in full")
    options = parser.parse_args()
    among = [
        (op, dtype)
        for op, dtype in pairs()
        if op in (options.op or [op]) and dtype in (options.dtype or [dtype])
    ]
    chosen = drawn(among, options.programs, options.seed)
    end = time.monotonic() + options.seconds
    results: list[Case] = []
    stream = cases(chosen, options.programs, options.seed, options.level, target=options.target, module=CHILD)
    for case in itertools.takewhile(lambda _: time.monotonic() < end, stream):
        results.append(case)
        if case.outcome in options.show:
            print(f"{case.outcome}: {case.op} {case.dtype} number {case.number}\n{case.reason}", flush=True)
    tell_outcomes(results, OUTCOMES)
    tell_reasons(results, ("rejected", "no-oracle", "error"))
    return int(any(case.outcome in _BAD for case in results))


if __name__ == "__main__":
    sys.exit(main())

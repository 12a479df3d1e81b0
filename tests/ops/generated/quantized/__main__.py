"""``python -m tests.ops.generated.quantized --programs N --seed S``: what became of about N programs.

Status 1 when a result is wrong, a process crashed, or a stage failed without naming the operation.
"""

from __future__ import annotations

import argparse
import sys

from tests.ops.generated.drive import Case, cases
from tests.ops.generated.operations.catalog import drawn
from tests.ops.generated.quantized.catalog import pairs
from tests.ops.generated.structure.told import tell_outcomes, tell_reasons

OUTCOMES = ("right", "rejected", "wrong", "crash", "error")
BAD = ("wrong", "crash", "error")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.ops.generated.quantized")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--dtype", nargs="*", default=())
    parser.add_argument("--level", type=int, default=1, help="optimization level")
    options = parser.parse_args()
    chosen = drawn(pairs(options.op, options.dtype), options.programs, options.seed)
    results: list[Case] = []
    module = "tests.ops.generated.quantized.child"
    for case in cases(chosen, options.programs, options.seed, options.level, module=module):
        results.append(case)
        if case.outcome in BAD:
            print(f"{case.outcome}: {case.op} {case.dtype} number {case.number}\n{case.reason}", flush=True)
    tell_outcomes(results, OUTCOMES)
    tell_reasons(results, ("rejected",))
    return int(any(case.outcome in BAD for case in results))


if __name__ == "__main__":
    sys.exit(main())

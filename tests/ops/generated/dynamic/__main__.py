"""``python -m tests.ops.generated.dynamic --programs N --seed S``: what became of about N programs.

Status 1 when a result is wrong, a process crashed, sizes that break the program were not noticed, or a stage
failed without naming the operation.
"""

from __future__ import annotations

import argparse
import sys

from tests.ops.generated.drive import Case, cases
from tests.ops.generated.dynamic.catalog import pairs
from tests.ops.generated.operations.catalog import drawn
from tests.ops.generated.structure.told import tell_outcomes, tell_reasons

#: ``partly``: the kernel rejects sizes at which the program means something, such as axes of size 0 that are
#: spread. ``none``: no attempt gave a program with open sizes that the dialect accepts.
OUTCOMES = ("right", "partly", "rejected", "wrong", "crash", "error", "unguarded", "no-oracle", "none")
BAD = ("wrong", "crash", "error", "unguarded")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.ops.generated.dynamic")
    parser.add_argument("--programs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--dtype", nargs="*", default=())
    parser.add_argument("--level", type=int, default=1, help="optimization level")
    parser.add_argument("--numerics", default="strict", choices=("strict", "default", "fast"))
    parser.add_argument("--workers", type=int, default=1, help="threads for launches that are worth it")
    parser.add_argument(
        "--told", action="store_true", help="sizes of which others are computed are arguments"
    )
    parser.add_argument("--show", nargs="*", default=BAD, help="outcomes to print in full")
    options = parser.parse_args()
    chosen = drawn(pairs(options.op, options.dtype), options.programs, options.seed)
    results: list[Case] = []
    manner = f"--numerics {options.numerics} --workers {options.workers}{' --told' if options.told else ''}"
    module = f"tests.ops.generated.dynamic.child {manner}"
    for case in cases(chosen, options.programs, options.seed, options.level, module=module):
        results.append(case)
        if case.outcome in options.show:
            print(f"{case.outcome}: {case.op} {case.dtype} number {case.number}\n{case.reason}", flush=True)
    whole = tell_outcomes(results, OUTCOMES)
    count = len(results) - whole["none"] - whole["no-oracle"]
    print(f"{100 * whole['right'] / max(count, 1):.1f} % of those that there are compile once and agree")
    tell_reasons(results, ("rejected",))
    return int(any(case.outcome in BAD for case in results))


if __name__ == "__main__":
    sys.exit(main())

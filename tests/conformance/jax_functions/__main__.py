"""``python -m tests.conformance.jax_functions``: what becomes of each function of the list, and the share
that is right.

``--part I/N`` takes the I-th of N parts, ``--mode`` how arguments are made
(``tests/conformance/jax_functions/run.py``).
With ``--record FILE`` outcomes are kept, a line of JSON each, and what is in the file is not run again;
``--seconds`` begins no function after so many.

Status 1 when a result is wrong or a process ended.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from tests.conformance.jax_functions.drive import driven
from tests.conformance.jax_functions.record import BAD, Record
from tests.conformance.jax_functions.run import FUNCTIONS, MODES


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.jax_functions")
    parser.add_argument("--part", default="1/1", help="the I-th of N parts of the list")
    parser.add_argument("--mode", choices=MODES, default="f32")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    part, of = map(int, options.part.split("/"))
    names: list[str] = options.names or list(FUNCTIONS)[part - 1 :: of]
    record = Record(options.record)
    left = [name for name in names if (options.mode, name) not in record.outcomes]
    end = time.monotonic() + options.seconds
    for outcomes in driven(left, options.mode):
        record.add(options.mode, outcomes)
        for outcome in outcomes:
            if outcome.how in BAD:
                sys.stdout.write(
                    f"| {outcome.name} | {outcome.what} | {outcome.how} | {outcome.why[:300]} |\n"
                )
                sys.stdout.flush()
        if time.monotonic() > end:
            break
    summary = record.summary(options.mode, names)
    sys.stdout.write(summary.text() + "\n")
    return int(any(item.how != "rejected" for item in summary.bad))


if __name__ == "__main__":
    sys.exit(main())

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
    given = parser.parse_args()
    part, of = map(int, given.part.split("/"))
    names: list[str] = given.names or list(FUNCTIONS)[part - 1 :: of]
    record = Record(given.record)
    left = [name for name in names if (given.mode, name) not in record.outcomes]
    end = time.monotonic() + given.seconds
    for found in driven(left, given.mode):
        record.add(given.mode, found)
        for one in found:
            if one.how in BAD:
                sys.stdout.write(f"| {one.name} | {one.what} | {one.how} | {one.why[:300]} |\n")
                sys.stdout.flush()
        if time.monotonic() > end:
            break
    summary = record.summary(given.mode, names)
    sys.stdout.write(summary.text() + "\n")
    return int(any(one.how != "refused" for one in summary.bad))


if __name__ == "__main__":
    sys.exit(main())

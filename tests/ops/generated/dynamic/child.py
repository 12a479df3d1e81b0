"""Child process that judges programs of open sizes; lines as ``tests.ops.generated.child`` has them.

Its options say under which numerics, and on how many threads.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.ops.generated.drive import Asked
from tests.ops.generated.dynamic.catalog import FAMILIES
from tests.ops.generated.dynamic.judge import Manner, judge
from tests.ops.generated.dynamic.programs import open_program
from tests.ops.generated.judge import Verdict
from tests.ops.harness.reference import ReferenceInterpreter


def main() -> None:
    """Judge until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--numerics", default="strict")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--told", action="store_true")
    options = parser.parse_args()
    reference = ReferenceInterpreter()
    try:
        for line in sys.stdin:
            level, _, asked = json.loads(line)
            verdicts = [
                _verdict(request, Manner(level, options.numerics, options.workers), reference, options.told)
                for request in asked
            ]
            print(json.dumps([[verdict.outcome, verdict.reason] for verdict in verdicts]), flush=True)
    finally:
        reference.close()


def _verdict(asked: Asked, manner: Manner, reference: ReferenceInterpreter, told: bool) -> Verdict:
    op, dtype, seed, number = asked
    program = open_program(FAMILIES[op].make, op, dtype, seed, number, told)
    return Verdict("none") if program is None else judge(program, reference, manner)


if __name__ == "__main__":
    main()

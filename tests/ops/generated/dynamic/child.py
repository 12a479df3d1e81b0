"""Child process that judges programs of open sizes; lines as ``tests.ops.generated.child`` has them."""

from __future__ import annotations

import json
import sys

from tests.ops.generated.drive import Asked
from tests.ops.generated.dynamic.catalog import FAMILIES
from tests.ops.generated.dynamic.judge import judge
from tests.ops.generated.dynamic.programs import open_program
from tests.ops.generated.judge import Verdict
from tests.ops.reference import ReferenceInterpreter


def main() -> None:
    """Judge until stdin ends."""
    reference = ReferenceInterpreter()
    try:
        for line in sys.stdin:
            level, _, asked = json.loads(line)
            found = [_verdict(one, level, reference) for one in asked]
            print(json.dumps([[one.outcome, one.reason] for one in found]), flush=True)
    finally:
        reference.close()


def _verdict(asked: Asked, level: int, reference: ReferenceInterpreter) -> Verdict:
    op, dtype, seed, number = asked
    program = open_program(FAMILIES[op].make, op, dtype, seed, number)
    return Verdict("none") if program is None else judge(program, reference, level)


if __name__ == "__main__":
    main()

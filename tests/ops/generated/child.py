"""Child process that judges programs: native code that crashes ends it and nothing else.

Reads batches from stdin, a line of JSON each: level, target or nothing, then operation, dtype, seed and
number of each program. Writes a line with the outcome, the reason and the
classes of attributes of each.
"""

from __future__ import annotations

import json
import sys

from tests.ops.generated.classes import classes
from tests.ops.generated.judge import compiled, judge
from tests.ops.generated.operations.catalog import program
from tests.ops.harness.reference import ReferenceInterpreter


def main() -> None:
    """Judge until stdin ends."""
    reference = ReferenceInterpreter()
    try:
        for line in sys.stdin:
            level, target, asked = json.loads(line)
            programs = [program(*request) for request in asked]
            judged = compiled(programs, target, level) if target else judge(programs, reference, level)
            said = [
                [verdict.outcome, verdict.reason, *classes(judged_program)]
                for verdict, judged_program in zip(judged, programs, strict=True)
            ]
            print(json.dumps(said), flush=True)
    finally:
        reference.close()


if __name__ == "__main__":
    main()

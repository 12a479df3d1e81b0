"""Child process that judges programs on small elements; frames are those of ``tests.ops.generated.child``."""

from __future__ import annotations

import json
import sys

from tests.ops.generated.judge import compiled, judge
from tests.ops.generated.small.derive import program
from tests.ops.harness.reference import ReferenceInterpreter


def main() -> None:
    """Judge until stdin ends."""
    reference = ReferenceInterpreter()
    try:
        for line in sys.stdin:
            level, target, asked = json.loads(line)
            programs = [program(*request) for request in asked]
            judged = compiled(programs, target, level) if target else judge(programs, reference, level)
            print(json.dumps([[verdict.outcome, verdict.reason] for verdict in judged]), flush=True)
    finally:
        reference.close()


if __name__ == "__main__":
    main()

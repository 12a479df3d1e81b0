"""Child process that judges programs under the numerics ``default``, which may round otherwise.

What no rounding changes is compared as under ``strict``: booleans and integers bit for bit, f32 and f64
within 4 units in the last place, zeros of either sign. Programs with f16 or bf16, which may stay f32, are
left out.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys

from tests.ops.generated.classes import classes
from tests.ops.generated.judge import Verdict, judge
from tests.ops.generated.operations.catalog import program
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.reference import ReferenceInterpreter

_NARROW = re.compile(r"\bb?f16\b|xb?f16\b")
#: Where the interpreter's zeros may be of another sign.
_TINY = 1e-45


def main() -> None:
    """Judge until stdin ends."""
    reference = ReferenceInterpreter()
    try:
        for line in sys.stdin:
            level, _, asked = json.loads(line)
            programs = [_loose(program(*request)) for request in asked]
            wide = [judged for judged in programs if not _NARROW.search(judged.text)]
            verdicts = iter(judge(wide, reference, level, "default") if wide else [])
            said = [
                next(verdicts) if judged in wide else Verdict("no-oracle", "rounds otherwise")
                for judged in programs
            ]
            rows = [
                [verdict.outcome, verdict.reason, *classes(judged)]
                for verdict, judged in zip(said, programs, strict=True)
            ]
            print(json.dumps(rows), flush=True)
    finally:
        reference.close()


def _loose(exact: OpProgram) -> OpProgram:
    if exact.ulps < 0:
        return dataclasses.replace(exact, ulps=0.0)
    return dataclasses.replace(exact, ulps=max(exact.ulps, 4.0), absolute=max(exact.absolute, _TINY))


if __name__ == "__main__":
    main()

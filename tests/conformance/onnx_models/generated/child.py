"""Child process that judges models: native code that crashes ends it and nothing else.

Reads batches from stdin, a line of JSON each: level, target, then operator, opsets, seed and number of each
model. Writes a line with outcome and reason of each.
"""

from __future__ import annotations

import json
import sys

from kcache_compiler.errors import CompilerError
from tests.conformance.onnx_models.generated.catalog import Undrawn, model
from tests.conformance.onnx_models.generated.judge import judge


def main() -> None:
    """Judge until stdin ends."""
    for line in sys.stdin:
        _, _, asked = json.loads(line)
        sys.stdout.write(json.dumps([_judged(*request) for request in asked]) + "\n")
        sys.stdout.flush()


def _judged(op: str, span: str, seed: int, number: int) -> list[str]:
    try:
        drawn = model(op, span, seed, number)
    except Undrawn as error:
        return ["no-oracle", str(error)]
    try:
        verdict = judge(drawn)
    except (CompilerError, RuntimeError, ValueError, AssertionError, KeyError) as error:
        return ["error", f"{type(error).__name__}: {error}"]
    return [verdict.outcome, verdict.reason]


if __name__ == "__main__":
    main()

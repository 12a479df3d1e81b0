"""Child process that judges samples: native code that crashes ends it and nothing else.

Reads batches from stdin, a line of JSON each: level, target, then operation, dtype, seed and number of each
sample. Writes a line with outcome, reason and operations of ATen's core set of each. Its argument, one of
``KINDS``, says what is drawn.
"""

from __future__ import annotations

import json
import os
import sys

from tests.conformance.torch_ops.harness import core, edges, mixed, samples
from tests.conformance.torch_ops.harness.calls import judge_calls
from tests.conformance.torch_ops.harness.judge import judge

#: What is drawn -> the pairs of operation and dtype.
KINDS = {
    "samples": samples.pairs,
    "planted": samples.planted_pairs,
    "mixed": mixed.pairs,
    "edges": edges.pairs,
    "core": core.pairs,
}


def main(kind: str) -> None:
    """Judge until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LAPACK writes to it what it thinks of NaN
    for line in sys.stdin:
        _, _, asked = json.loads(line)
        out.write(json.dumps([_judged(kind, *request) for request in asked]) + "\n")
        out.flush()


def _judged(kind: str, name: str, dtype: str, seed: int, number: int) -> list[str]:
    try:
        if kind in ("mixed", "edges"):
            drawn = (mixed if kind == "mixed" else edges).calls(name, dtype, seed)
            verdict, known = judge_calls(*drawn, edges=kind == "edges"), []
        elif kind == "core":
            verdict, known = judge(core.core_sample(name, dtype))
        else:
            original = samples.sample(name, dtype, seed, number)
            verdict, known = judge(samples.planted(original, seed) if kind == "planted" else original)
    except samples.Unfit as none:
        return ["no-oracle", str(none)]
    except Exception as error:
        return ["error", f"{type(error).__name__}: {str(error)[:300]}"]
    return [verdict.outcome, verdict.reason, *known]


if __name__ == "__main__":
    main(sys.argv[1])

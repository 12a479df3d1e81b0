"""``python -m tests.conformance.onnx_models.generated --models N --seed S``: what became of about N random
models.

Each is one node, of an operator in one of the opsets from 7 to the newest, with drawn types, shapes,
attributes and numbers; its results are compared with ONNX's reference and with ONNX Runtime, which must be
installed (``pip install -e '.[bench]'``), as either has operators that it gets wrong. ``--op`` chooses
operators, ``--part I/N`` the I-th of N parts of them, ``--seconds`` begins no batch after so many,
``--differ`` also prints where the two others differ from each other.

Status 1 when a result is wrong, a process ended, or a model that others take is called invalid.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import Counter

from tests.conformance.onnx_models.generated.catalog import spans
from tests.conformance.onnx_models.generated.judge import RUNTIME
from tests.ops.generated.drive import Case, cases

CHILD = "tests.conformance.onnx_models.generated.child"
BAD = ("wrong", "crash", "error")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.onnx_models.generated")
    parser.add_argument("--models", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--differ", action="store_true")
    options = parser.parse_args()
    if not RUNTIME:
        parser.error("needs onnxruntime: pip install -e '.[bench]'")
    part, of = map(int, options.part.split("/"))
    chosen = spans(options.op)[part - 1 :: of]
    end = time.monotonic() + options.seconds
    results: list[Case] = []
    stream = cases(chosen, -(-options.models // of), options.seed, module=CHILD)
    for case in itertools.takewhile(lambda _: time.monotonic() < end, stream):
        results.append(case)
        if case.outcome != "right" or (options.differ and case.reason):
            what = f"{case.outcome}: {case.op} {case.dtype} number {case.number}: {case.reason[:400]}"
            sys.stdout.write(what + "\n")
            sys.stdout.flush()
    counts = Counter(case.outcome for case in results)
    differ = sum(case.outcome == "right" and bool(case.reason) for case in results)
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    sys.stdout.write(
        f"{len(results)} models: {words}; of the right ones {differ} where the two others differ\n"
    )
    return int(any(case.outcome in BAD for case in results))


if __name__ == "__main__":
    sys.exit(main())

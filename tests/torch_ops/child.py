"""Child process that judges samples: native code that crashes ends it and nothing else.

Reads batches from stdin, a line of JSON each: level, target, then operation, dtype, seed and number of each
sample. Writes a line with outcome, reason and operations of ATen's core set of each.
"""

from __future__ import annotations

import json
import sys

from tests.torch_ops.judge import judge
from tests.torch_ops.samples import Unfit, sample


def main() -> None:
    """Judge until stdin ends."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        _, _, asked = json.loads(line)
        out.write(json.dumps([_judged(*one) for one in asked]) + "\n")
        out.flush()


def _judged(name: str, dtype: str, seed: int, number: int) -> list[str]:
    try:
        found, core = judge(sample(name, dtype, seed, number))
    except Unfit as none:
        return ["no-oracle", str(none)]
    except Exception as error:
        return ["error", f"{type(error).__name__}: {str(error)[:300]}"]
    return [found.outcome, found.reason, *core]


if __name__ == "__main__":
    main()

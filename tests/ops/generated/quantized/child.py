"""Child process that judges programs over quantized values; lines as ``..child`` has them."""

from __future__ import annotations

import json
import sys

from tests.ops.generated.quantized.catalog import program
from tests.ops.generated.quantized.judge import judge


def main() -> None:
    """Judge until stdin ends."""
    for line in sys.stdin:
        level, _, asked = json.loads(line)
        judged = judge([program(*request) for request in asked], level)
        print(json.dumps([[verdict.outcome, verdict.reason] for verdict in judged]), flush=True)


if __name__ == "__main__":
    main()

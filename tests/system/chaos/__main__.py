"""``python -m tests.system.chaos --seed 7 --hours 3``: by hand. Exit status 1 when anything was wrong."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.system.chaos.cluster import STORES, Setup
from tests.system.chaos.faults.nemesis import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=5000, help="answered questions in each run")
    parser.add_argument("--store", choices=STORES, default=STORES[0], help="what the servers share")
    parser.add_argument("--objects", action="store_true", help="bytes in an object store that breaks too")
    parser.add_argument("--hours", type=float, default=0, help="repeat with the next seed for so long")
    parser.add_argument("--limit", type=float, default=3600, help="seconds in which one run must end")
    chosen = parser.parse_args()
    setup = Setup(chosen.store, chosen.objects)
    until = time.monotonic() + chosen.hours * 3600
    failed = 0
    for seed in itertools.count(chosen.seed):
        # A run that hangs says where, and ends.
        faulthandler.dump_traceback_later(chosen.limit, exit=True)
        with tempfile.TemporaryDirectory(prefix="kc-chaos-") as folder:
            report = asyncio.run(run(Path(folder), seed, chosen.operations, setup))
        print(report, flush=True)
        failed += not report.good(chosen.operations)
        if time.monotonic() >= until:
            return 1 if failed else 0
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())

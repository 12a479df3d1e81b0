"""One process that builds, checks and times kernels: started by ``__main__``, a JSON object a line on stdout.

The number of threads is that of the CPUs which the process may use, for every contender alike.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds until a kernel is given up with its process: native code hangs.
_TIMEOUT = 420.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rivals", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--budget", type=float, required=True, help="seconds a contender and round")
    parser.add_argument("--clock", required=True)
    parser.add_argument("--numerics", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--inductor-cache", default="")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--autotune-seconds", type=float, required=True)
    parser.add_argument("--server", type=int, required=True, help="its process")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    told = os.fdopen(os.dup(1), "w", buffering=1)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what libraries print is no part of the report
    faulthandler.enable()
    with tempfile.TemporaryDirectory(prefix="kcache-kernels-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = options.inductor_cache or folder + "/inductor"
        run(options, Path(folder), lambda line: print(json.dumps(line), file=told))


def run(options: argparse.Namespace, folder: Path, tell: Callable[[Any], None]) -> None:
    """Imports come here, after the affinity is set: libraries count CPUs when they load."""
    from benchmarks.kernels.limits import Limits
    from benchmarks.kernels.measure import CLOCKS, Bench
    from benchmarks.kernels.table import all_cases

    limits = Limits(folder, CLOCKS[options.clock])
    bench = Bench(options, folder, limits)
    if not options.compile:
        tell({"machine": bench.machine()})
    row = bench.compiled if options.compile else bench.measured
    wanted = {name: index for index, name in enumerate(options.names)}
    for case in sorted((case for case in all_cases() if case.name in wanted), key=lambda c: wanted[c.name]):
        faulthandler.dump_traceback_later(_TIMEOUT, exit=True)
        tell({"case": row(case)})
    faulthandler.cancel_dump_traceback_later()
    sys.stderr.flush()


if __name__ == "__main__":
    main()

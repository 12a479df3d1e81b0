"""``python -m benchmarks.gpu.warm [--rounds N] [--only GLOB]``: ms from a request to PTX, and to a cubin.

By the clock, as a client sees it: a server of its own with one worker, which has compiled another kernel for
the GPU before; each round asks in a namespace of its own, so that nothing is known. A request ends with the
kernel in the client's hands; ``ptxas`` then takes the same PTX here, and the rest of it is the way to
PTX. Needs no GPU, and a quiet machine.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import tempfile
import time
from pathlib import Path

import kcache_grpc as kcache
from benchmarks.gpu.cases import Case, cases
from kcache_compiler.llvm.ptxas import assemble_ptx, find_ptxas
from tests.serving import ServerProcess
from tests.system.e2e.programs import scale_and_shift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="GLOB", default="*")
    parser.add_argument("--target", default="sm_90")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if fnmatch.fnmatch(case.name, arguments.only)]
    print(f"target {arguments.target}, median of {arguments.rounds} rounds")
    print(f"{'case':22} {'PTX ms':>7} {'cubin more':>11}")
    with (
        tempfile.TemporaryDirectory(prefix="kcache-bench-") as name,
        ServerProcess(Path(name)) as server,
        kcache.Client(server.address, cache_dir=name) as client,
    ):
        client.compile(scale_and_shift(0), target=arguments.target)
        for case in chosen:
            timings = [
                _seconds(server.address, Path(name), case, arguments.target, number)
                for number in range(arguments.rounds)
            ]
            ptx, cubin = (1e3 * statistics.median(timing[place] for timing in timings) for place in range(2))
            print(f"{case.name:22} {ptx:7.0f} {cubin:11.0f}", flush=True)


def _seconds(address: str, folder: Path, case: Case, target: str, number: int) -> tuple[float, float]:
    """From the request to PTX, and from there to a cubin; 0 without ``ptxas``."""
    space = f"round-{case.name.replace('/', '-').replace('_', '-')}-{number}"
    cache = tempfile.mkdtemp(dir=folder)
    with kcache.Client(address, namespace=space, cache_dir=cache, strict=True) as client:
        client.count()  # connected
        began = time.perf_counter()
        kernel = client.compile(case.program, target=target)
        ended = time.perf_counter()
    assert kernel.origin == "compiled", kernel.origin
    if find_ptxas() is None:
        return ended - began, 0.0
    text = kernel.artifact("ptx").decode()
    here = time.perf_counter()
    assemble_ptx(text, target)
    cubin = time.perf_counter() - here
    return ended - began - cubin, cubin


if __name__ == "__main__":
    main()

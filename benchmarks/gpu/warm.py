"""``python -m benchmarks.gpu.warm [--rounds N] [--only GLOB]``: ms from a request to PTX, and to a cubin.

By the clock, as a client sees it: a server of its own with one worker, which has compiled another kernel for
the GPU before; each round asks in a namespace of its own, so that nothing is known. PTX is there when the
stage that assembles it begins; the rest is ``ptxas``, storing and the way back. Needs no GPU, and a quiet
machine.
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
from tests.e2e.programs import scale_and_shift
from tests.serving import ServerProcess

#: The stage that begins when PTX is there.
_AFTER_PTX = "cubin"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="GLOB", default="*")
    parser.add_argument("--target", default="sm_90")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if fnmatch.fnmatch(case.name, arguments.only)]
    print(f"target {arguments.target}, least and median of {arguments.rounds} rounds")
    print(f"{'case':18} {'PTX ms':>7} {'median':>7} {'kernel ms':>10} {'median':>7}")
    with (
        tempfile.TemporaryDirectory(prefix="kcache-bench-") as name,
        ServerProcess(Path(name)) as server,
        kcache.Client(server.address, cache_dir=name) as client,
    ):
        client.compile(scale_and_shift(0), target=arguments.target)
        for case in chosen:
            found = [
                _seconds(server.address, Path(name), case, arguments.target, number)
                for number in range(arguments.rounds)
            ]
            ptx, whole = ([1e3 * one[place] for one in found] for place in range(2))
            print(
                f"{case.name:18} {min(ptx):7.0f} {statistics.median(ptx):7.0f} "
                f"{min(whole):10.0f} {statistics.median(whole):7.0f}",
                flush=True,
            )


def _seconds(address: str, folder: Path, case: Case, target: str, number: int) -> tuple[float, float]:
    """From the request to PTX, and to the kernel with its cubin."""
    came: list[float] = []

    def note(stage: str, _: float) -> None:
        if stage == _AFTER_PTX and not came:
            came.append(time.perf_counter())

    space = f"round-{case.name.replace('/', '-').replace('_', '-')}-{number}"
    cache = tempfile.mkdtemp(dir=folder)
    with kcache.Client(address, namespace=space, cache_dir=cache, strict=True) as client:
        client.count()  # connected
        began = time.perf_counter()
        kernel = client.compile(case.program, target=target, on_progress=note)
        ended = time.perf_counter()
    assert kernel.origin == "compiled", kernel.origin
    return (came[0] if came else ended) - began, ended - began


if __name__ == "__main__":
    main()

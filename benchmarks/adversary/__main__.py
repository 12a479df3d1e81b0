"""What one client's attacks do to another client of a real server, and to its memory.

``python -m benchmarks.adversary [--seconds S] [--json FILE]``. The attacks, each alone: 300 calls of
GetKernels with 4,096 queries for one kernel, whose replies are not read; five bytecode files of some 900
bytes that take a minute to read, with deadlines of 1 s. Beside each, another client asks for a kernel that is
stored, again and again, and has new ones compiled. Then the attackers leave.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc

from benchmarks.environment import clear_and_restart, description
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.server.harness.programs import SO, add, compile_request, inline, kernels_request, result_of
from tests.serving import ServerProcess

#: The goals: seconds of a hit, times of a compile, bytes that stay.
HIT_P99, COMPILE_RATIO, LEFT_BYTES = 0.020, 3.0, 100_000_000
#: Compiles whose median counts, and seconds until memory must be back.
COMPILES, SETTLE = 5, 30.0


@dataclass(frozen=True)
class Seen:
    """What the other client saw: seconds, and how many hits."""

    hits: int
    hit_p50: float
    hit_p99: float
    hit_worst: float
    compile: float
    first_compile: float


class Client:
    """The one who is not to notice anything."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self._rows = itertools.count(1000)

    def compile(self) -> float:
        """Seconds that a kernel takes which nobody had."""
        request = compile_request(inline(add(next(self._rows), next(self._rows))))
        began = time.perf_counter()
        result_of(self._stub.CompileKernel(request))
        return time.perf_counter() - began

    def hit(self) -> float:
        """Seconds of a lookup with the kernel's bytes."""
        request = kernels_request([add(4)], artifact_kinds=[SO], inline_budget_bytes=1 << 20)
        began = time.perf_counter()
        list(self._stub.GetKernels(request))
        return time.perf_counter() - began

    def see(self, seconds: float) -> Seen:
        """Hits for so long, and compiles beside them; the first compile is told apart."""
        until = time.perf_counter() + seconds
        with ThreadPoolExecutor(1) as threads:
            compiling = threads.submit(lambda: [self.compile() for _ in range(COMPILES)])
            hits = [self.hit()]
            while time.perf_counter() < until or not compiling.done():
                hits.append(self.hit())
            compiles = compiling.result()
        hits.sort()
        return Seen(
            len(hits),
            statistics.median(hits),
            hits[int(len(hits) * 0.99)],
            hits[-1],
            statistics.median(compiles),
            compiles[0],
        )


@contextmanager
def attacked(kind: str, address: str) -> Iterator[None]:
    """While attackers are at work."""
    command = [sys.executable, "-m", "benchmarks.adversary.attacker", kind, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == "attacking\n"
            yield
        finally:
            attacker.stdin.close()


def resident(pid: int) -> int:
    """Bytes of the process in memory."""
    fields = Path(f"/proc/{pid}/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) << 10


def settled(pid: int, level: int) -> int:
    """Bytes in memory, once at most ``LEFT_BYTES`` above ``level`` or after ``SETTLE`` seconds."""
    until = time.monotonic() + SETTLE
    while (now := resident(pid)) > level + LEFT_BYTES and time.monotonic() < until:
        time.sleep(0.5)
    return now


def measure(seconds: float) -> dict[str, Any]:
    """All figures: undisturbed, beside each attack, and the memory before, beside and after."""
    with (
        tempfile.TemporaryDirectory(prefix="kcache-adversary-") as folder,
        ServerProcess(Path(folder)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        client = Client(stub)
        result_of(stub.CompileKernel(compile_request(inline(add(4)))))
        client.see(1.0)
        level = resident(server.pid)
        alone = client.see(seconds)
        figures: dict[str, Any] = {"alone": asdict(alone)}
        for kind in ("unread", "bombs"):
            with attacked(kind, server.address):
                seen = client.see(seconds)
                beside = resident(server.pid)
            after = settled(server.pid, level)
            figures[kind] = {
                **asdict(seen),
                "compile_ratio": max(seen.compile, seen.first_compile) / alone.compile,
                "bytes_before": level,
                "bytes_beside": beside,
                "bytes_after": after,
                "met": seen.hit_p99 < HIT_P99
                and max(seen.compile, seen.first_compile) < COMPILE_RATIO * alone.compile
                and after - level <= LEFT_BYTES,
            }
        return figures


def main() -> None:
    """Prints the figures; ends with status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of hits beside each attack")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    figures = measure(options.seconds)
    report = json.dumps({"machine": description(), "figures": figures}, indent=2)
    print(report)
    if options.json is not None:
        options.json.write_text(report + "\n")
    sys.exit(0 if all(figures[kind]["met"] for kind in ("unread", "bombs")) else 1)


if __name__ == "__main__":
    clear_and_restart("benchmarks.adversary")
    main()

"""What a hit costs from each tier, against a bare gRPC echo of the same bytes, and what a miss consists of.

``python -m benchmarks.services.service [--json FILE]``. A real server on SQLite in a process of its own; its
kernel is
a small fused one. "raw" contenders send prepared bytes through grpc and parse nothing, on both sides alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc

import kcache_grpc as kcache
from benchmarks.echo import echo_server
from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave, ratio
from kcache_grpc._proto.kcache.v1 import common_pb2, kernel_cache_pb2, manifest_pb2
from kcache_grpc.model.program import ProgramFormat, program_digest
from kcache_grpc.model.target import parse_target
from kcache_grpc.model.wire import target_to_proto
from tests.serving import ServerProcess
from tests.system.e2e.programs import scale_and_shift

MEMORY, DISK, REMOTE = "memory hit", "disk hit, new client", "server hit, new client, empty cache"
RAW, RAW_ECHO = "server hit, manifest only (raw)", "bare echo of the same bytes, manifest only"
RAW_SO, RAW_SO_ECHO = "server hit with shared object (raw)", "bare echo of the same bytes, with shared object"
#: Contender -> rival.
RIVALS = {RAW: RAW_ECHO, RAW_SO: RAW_SO_ECHO}
METHOD = "/kcache.v1.KernelCache/GetKernels"


def measure(rounds: int = 12, calls: int = 50, misses: int = 12) -> dict[str, Any]:
    """Hits side by side, then misses stage by stage."""
    with tempfile.TemporaryDirectory(prefix="kcache-bench-") as folder, ServerProcess(Path(folder)) as server:
        with _contenders(server.address, Path(folder)) as contenders:
            samples = interleave(contenders, rounds=rounds, calls=calls)
        return {"hits": _hits(samples), "miss": _misses(server.address, Path(folder), misses)}


@contextmanager
def _contenders(address: str, folder: Path) -> Iterator[dict[str, Contender]]:
    program = scale_and_shift(0)
    with ExitStack() as stack:
        client = stack.enter_context(kcache.Client(address, cache_dir=folder / "cache", strict=True))
        client.compile(program)
        channel = stack.enter_context(grpc.insecure_channel(address))
        contenders: dict[str, Contender] = {
            MEMORY: lambda count: _repeat(lambda: client.compile(program), count),
            DISK: lambda count: _new_clients(address, lambda _: folder / "cache", program, "disk", count),
            REMOTE: lambda count: _new_clients(address, _new_folder(folder), program, "remote", count),
        }
        for name, echo, kinds in (
            (RAW, RAW_ECHO, []),
            (RAW_SO, RAW_SO_ECHO, [manifest_pb2.ARTIFACT_KIND_SHARED_OBJECT]),
        ):
            request = raw_request(program, kinds)
            call = channel.unary_stream(METHOD)
            size = sum(len(reply) for reply in call(request))
            rival = stack.enter_context(echo_server(size))
            contenders[name] = raw_call(call, request)
            contenders[echo] = raw_call(rival, request)
        yield contenders


def raw_request(program: str, kinds: list[manifest_pb2.ArtifactKind], target: str = "host") -> bytes:
    """A request for the kernel of one program, serialized."""
    digest = program_digest(ProgramFormat.STABLEHLO, program.encode())
    return kernel_cache_pb2.GetKernelsRequest(
        header=common_pb2.RequestHeader(client_version="benchmark"),
        queries=[kernel_cache_pb2.KernelQuery(program_digest=digest)],
        target=target_to_proto(parse_target(target)),
        artifact_kinds=kinds,
        inline_budget_bytes=1 << 20,
    ).SerializeToString()


def raw_call(call: Any, request: bytes) -> Contender:
    """Sends it, and parses nothing of what comes back."""

    def run(count: int) -> None:
        for _ in range(count):
            for _reply in call(request):
                pass

    return run


def _repeat(call: Any, count: int) -> None:
    for _ in range(count):
        call()


def _new_folder(folder: Path) -> Any:
    return lambda _: Path(tempfile.mkdtemp(dir=folder))


def _new_clients(address: str, cache: Any, program: str, origin: str, count: int) -> float:
    """Seconds in ``compile`` alone: starting a client is not what is measured."""
    seconds = 0.0
    for index in range(max(1, count // 10)):
        with kcache.Client(address, cache_dir=cache(index), strict=True) as client:
            client.count()  # connected
            started = time.perf_counter()
            kernel = client.compile(program)
            seconds += time.perf_counter() - started
        assert kernel.origin == origin, kernel.origin
    return seconds * count / max(1, count // 10)


def _hits(samples: dict[str, Sample]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, sample in samples.items():
        low, high = sample.spread
        rows[name] = {"us": sample.median * 1e6, "us_low": low * 1e6, "us_high": high * 1e6}
        if name in RIVALS:
            rows[name] |= {"rival": RIVALS[name], "ratio": ratio(sample, samples[RIVALS[name]])}
    return rows


def _misses(address: str, folder: Path, count: int) -> dict[str, Any]:
    """Median milliseconds of each stage, from the moments at which the server said that it began."""
    stages: dict[str, list[float]] = {}
    totals: list[float] = []
    with kcache.Client(address, cache_dir=folder / "cache", strict=True) as client:
        for number in range(1, count + 1):
            total, spent = _one_miss(client, scale_and_shift(number))
            totals.append(total)
            for name, seconds in spent:
                stages.setdefault(name, []).append(seconds)
    return {
        "ms": statistics.median(totals) * 1e3,
        "ms_low": min(totals) * 1e3,
        "ms_high": max(totals) * 1e3,
        "stages_ms": {name: statistics.median(values) * 1e3 for name, values in stages.items()},
    }


def _one_miss(client: kcache.Client, program: str) -> tuple[float, list[tuple[str, float]]]:
    begun: list[tuple[str, float]] = []
    started = time.perf_counter()
    kernel = client.compile(program, on_progress=lambda name, seconds: begun.append((name, seconds)))
    total = time.perf_counter() - started
    assert kernel.origin == "compiled", kernel.origin
    ends = [moment for _, moment in begun[1:]] + [total]
    return total, [(name, end - moment) for (name, moment), end in zip(begun, ends, strict=True)]


def main() -> None:
    """Measures and prints, and writes JSON where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    clear_and_restart("benchmarks.services.service")
    report = {"environment": description(), **measure()}
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""What ``RemoteCache`` costs: a hit against a bare echo, many keys in a call, the memory of large values.

``python -m benchmarks.services.blob_cache [--rounds N] [--calls N] [--json FILE]``. Hits of 64 KiB and calls
of a bare
server (``benchmarks.echo``) alternate, call by call, in one thread, over channels with the same options.
Three methods of the bare server answer with as many bytes: the echo of all benchmarks, a stream of one reply;
a unary method, as ``GetBlob`` is; and one that sends back the 64 KiB of its request. Each is compared with
the hits beside it: printed are the median and the extremes of the ratios of medians, round by round. Then
1,000 keys are inserted and read in one call each, and a file of 200 MB is inserted and read, with the largest
resident memory of the server and of this process before and after. Exits with 1 when the median ratio to the
unary method that returns its request, or to the stream of one reply, is above 1.15.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

from benchmarks.echo import BACK, ONCE, echo_process
from benchmarks.echo import METHOD as ANSWER
from benchmarks.environment import clear_and_restart, description
from kcache_grpc.caches import RemoteCache
from kcache_grpc.client.address import parse_endpoint
from kcache_grpc.client.transport.interface import channel_options
from tests.serving import ServerProcess

ECHO, UNARY, RETURNED = "stream of one reply", "unary reply", "unary, the request returned"
#: Most that a hit may take, as a multiple of each of these echoes.
GATE, GATED = 1.15, (ECHO, RETURNED)
VALUE_BYTES, MANY, LARGE_BYTES = 64 << 10, 1000, 200_000_000


def measure(rounds: int, calls: int) -> dict[str, Any]:
    """All measurements, on a server of its own with SQLite."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kcache-bench-")))
        server = stack.enter_context(ServerProcess(folder))
        cache: RemoteCache[str, bytes] = stack.enter_context(RemoteCache(server.address, timeout=300))
        _, echo = stack.enter_context(echo_process(VALUE_BYTES))
        options = channel_options(parse_endpoint(echo))
        channel = stack.enter_context(grpc.insecure_channel(echo, options=options))
        hits = _hits(cache, channel, rounds, calls)
        many = _many(cache)
        return {"hit": hits, "many": many, "large": _large(cache, server, folder)}


def _hits(cache: RemoteCache[str, bytes], channel: grpc.Channel, rounds: int, calls: int) -> dict[str, Any]:
    value = os.urandom(VALUE_BYTES)
    cache.insert("hit", value)
    back, once, answer = channel.unary_unary(BACK), channel.unary_unary(ONCE), channel.unary_stream(ANSWER)

    def get() -> None:
        assert cache.get("hit") == value

    def echo() -> None:
        assert [len(message) for message in answer(b"")] == [VALUE_BYTES]

    def unary() -> None:
        assert len(once(b"")) == VALUE_BYTES

    def returned() -> None:
        assert back(value) == value

    rivals = {ECHO: echo, UNARY: unary, RETURNED: returned}
    return {"bytes": VALUE_BYTES, **_compared(get, rivals, rounds, calls)}


def _compared(
    get: Callable[[], None], rivals: Mapping[str, Callable[[], None]], rounds: int, calls: int
) -> dict[str, Any]:
    medians: dict[str, list[tuple[float, float]]] = {name: [] for name in rivals}
    for rival in rivals.values():
        _alternated(get, rival, max(1, calls // 10))  # warm
    for _ in range(rounds):
        for name, rival in rivals.items():
            medians[name].append(_alternated(get, rival, calls))
    return {name: _report(pairs) for name, pairs in medians.items()}


def _alternated(get: Callable[[], None], rival: Callable[[], None], calls: int) -> tuple[float, float]:
    """The median seconds of each, called in turns: what else the machine does is the same for both."""
    seconds: tuple[list[float], list[float]] = [], []
    for number in range(2 * calls):
        call, taken = (get, rival)[number % 2], seconds[number % 2]
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _report(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ratios = [hit / rival for hit, rival in pairs]
    return {
        "us": statistics.median(rival for _, rival in pairs) * 1e6,
        "hit_us": statistics.median(hit for hit, _ in pairs) * 1e6,
        "hit_against_it": [statistics.median(ratios), min(ratios), max(ratios)],
    }


def _many(cache: RemoteCache[str, bytes]) -> dict[str, Any]:
    """Seconds of one call for ``MANY`` keys with values of 100 bytes."""
    items = [(f"key {number}", os.urandom(100)) for number in range(MANY)]
    inserted = _seconds(lambda: cache.insert_many(items))
    keys = [key for key, _ in items]
    reads = [_seconds(lambda: cache.get_many(keys)) for _ in range(9)]
    assert cache.get_many(keys) == [value for _, value in items]
    return {"keys": MANY, "insert_seconds": inserted, "get_seconds": statistics.median(reads)}


def _large(cache: RemoteCache[str, bytes], server: ServerProcess, folder: Path) -> dict[str, Any]:
    """Seconds for one large file each way, and growth of the largest resident memory in bytes."""
    source, target = folder / "source", folder / "target"
    with source.open("wb") as file:
        for _ in range(LARGE_BYTES // 1_000_000):
            file.write(os.urandom(1_000_000))
    pid = server.pid
    before = _server_peak(pid), _own_peak()
    inserted = _seconds(lambda: cache.insert_file("large", source))
    read = _seconds(lambda: cache.get_file("large", target))
    after = _server_peak(pid), _own_peak()
    assert _same(source, target)
    return {
        "bytes": LARGE_BYTES,
        "insert_seconds": inserted,
        "read_seconds": read,
        "server_peak_bytes": [before[0], after[0]],
        "client_peak_bytes": [before[1], after[1]],
    }


def _same(first: Path, second: Path) -> bool:
    with first.open("rb") as left, second.open("rb") as other:
        while (part := left.read(1 << 20)) == other.read(1 << 20):
            if not part:
                return True
    return False


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _server_peak(pid: int) -> int:
    """Largest resident memory of a process so far, in bytes (proc_pid_status(5), VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"process {pid} has no VmHWM")


def _own_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> int:
    """Measures and prints, and writes JSON where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    clear_and_restart("benchmarks.services.blob_cache")
    report = {"environment": description(), **measure(arguments.rounds, arguments.calls)}
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    return 0 if all(report["hit"][name]["hit_against_it"][0] <= GATE for name in GATED) else 1


if __name__ == "__main__":
    sys.exit(main())

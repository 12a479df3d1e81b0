"""What a hit costs when the store answers it, on SQLite and Postgres, and from memory, against a bare echo.

``python -m benchmarks.lookups [--rounds N] [--calls N] [--json FILE]``. Raw frames through grpc on both
sides, one kernel with its shared object, contenders in turn. Of each round: the median wall time of one
client's calls, and the CPU of the server's process a call, what it writes down later included (the database's
own is not). Printed: medians over the rounds; of ratios to the echo of the same round also the extremes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc

from benchmarks.echo import echo_process
from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave, ratio
from benchmarks.service import METHOD, raw_call, raw_request
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc, manifest_pb2
from kcache_grpc.storage import migrate
from tests import postgres
from tests.e2e.programs import scale_and_shift
from tests.server.programs import compile_request, inline

ECHO, MEMORY, SQLITE, POSTGRES = "echo", "memory", "SQLite", "Postgres"


def measure(rounds: int = 12, calls: int = 300) -> dict[str, Any]:
    """Contender -> wall time and CPU a call, and both against the echo, round by round."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kcache-bench-")))
        database = stack.enter_context(postgres.running())
        url = database.create()
        contenders: dict[str, Contender] = {}
        pids: dict[str, int] = {}
        request = raw_request(scale_and_shift(0), [manifest_pb2.ARTIFACT_KIND_SHARED_OBJECT], "x86-64-v3")
        for name, db, module in (
            (MEMORY, f"sqlite:///{folder}/one.sqlite", "kcache_grpc"),
            (SQLITE, f"sqlite:///{folder}/two.sqlite", "benchmarks.cold"),
            (POSTGRES, url, "benchmarks.cold"),
        ):
            migrate(db)
            pids[name], address = stack.enter_context(_server(folder / name, db, module))
            channel = stack.enter_context(grpc.insecure_channel(address))
            for _reply in kernel_cache_pb2_grpc.KernelCacheStub(channel).CompileKernel(_order()):
                pass
            contenders[name] = raw_call(channel.unary_stream(METHOD), request)
        size = sum(len(reply) for reply in channel.unary_stream(METHOD)(request))
        pids[ECHO], echo = stack.enter_context(echo_process(size))
        contenders[ECHO] = raw_call(echo, request)
        spent: dict[str, list[float]] = {name: [] for name in contenders}
        timed = {name: _timed(run, pids[name], spent[name]) for name, run in contenders.items()}
        samples = interleave(timed, rounds=rounds, calls=calls)
    # The first is the warming.
    cpu = {name: Sample(name, tuple(each[1:])) for name, each in spent.items()}
    report: dict[str, Any] = {"bytes": size}
    for name, sample in samples.items():
        report[name] = {"us": sample.median * 1e6, "cpu_us": cpu[name].median * 1e6}
        if name != ECHO:
            report[name] |= {
                "against_echo": ratio(sample, samples[ECHO]),
                "cpu_against_echo": ratio(cpu[name], cpu[ECHO]),
            }
    return report


def _order() -> Any:
    return compile_request(inline(scale_and_shift(0).encode()))


def _timed(run: Contender, pid: int, spent: list[float]) -> Contender:
    """Tells the median of its calls, as if all had taken that. Appends CPU seconds of the process a call."""

    def timed(count: int) -> float:
        before = _cpu(pid)
        taken: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            run(1)
            taken.append(time.perf_counter() - started)
        spent.append((_cpu(pid) - before) / count)
        return statistics.median(taken) * count

    return timed


def _cpu(pid: int) -> float:
    """CPU seconds of a process, by its clock: Linux numbers it after the process."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def _server(folder: Path, db: str, module: str) -> Iterator[tuple[int, str]]:
    folder.mkdir()
    settings = {
        "KCACHE_DB": db,
        "KCACHE_STATE_DIR": str(folder),
        "KCACHE_LISTEN": "127.0.0.1:0",
        "KCACHE_SOCKET": str(folder / "run" / "s"),
        "KCACHE_WORKERS": "1",
    }
    command = [sys.executable, "-m", module, *(["serve"] if module == "kcache_grpc" else [])]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **settings}
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        yield process.pid, json.loads(line)["addresses"][0]
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Measures and prints, and writes JSON where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    clear_and_restart("benchmarks.lookups")
    report = {"environment": description(), "hits": measure(arguments.rounds, arguments.calls)}
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

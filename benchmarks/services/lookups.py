"""What a hit costs when the store answers it, on SQLite and Postgres, and from memory, against a bare echo.

``python -m benchmarks.services.lookups [--rounds N] [--calls N] [--json FILE]``. Raw frames through grpc on
both
sides, one kernel with its shared object, contenders in turn: one client, then eight at once in one process.
Of each round: the median wall time of a call, and the CPU of the server's process a call, what it writes
down later included (the database's own is not). Printed: medians over the rounds; of ratios to the echo of
the same round also the extremes; and which gates are met.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.echo import METHOD as ANSWER
from benchmarks.echo import ONCE, echo_process
from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave, ratio
from benchmarks.services.service import METHOD, raw_call, raw_request
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc, manifest_pb2
from kcache_grpc.storage import migrate
from tests import postgres
from tests.server.harness.programs import compile_request, inline
from tests.system.e2e.programs import scale_and_shift

ECHO, ONE_BATCH = "echo", "echo, reply and status in one batch"
MEMORY, SQLITE, POSTGRES = "memory", "SQLite", "Postgres"
EIGHT = 8
#: Channels to one server share no connection.
_APART = (("grpc.use_local_subchannel_pool", 1),)
#: Contender -> most that it may cost against the echo: wall of one client, of eight, CPU.
GATES = {MEMORY: (1.15, 1.15, 1.15), SQLITE: (2.0, 2.0, 2.0), POSTGRES: (3.1, 2.6, 3.1)}


@dataclass(frozen=True)
class Rival:
    """A server that was asked once: who it is, and where and what to ask."""

    pid: int
    address: str
    method: str = METHOD


def measure(rounds: int = 12, calls: int = 300) -> dict[str, Any]:
    """Wall time and CPU a call of every contender, against the echo, for one client and for eight."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kcache-bench-")))
        database = stack.enter_context(postgres.running())
        url = database.create()
        rivals: dict[str, Rival] = {}
        request = raw_request(scale_and_shift(0), [manifest_pb2.ARTIFACT_KIND_SHARED_OBJECT], "x86-64-v3")
        size = 0
        for name, db, module in (
            (MEMORY, f"sqlite:///{folder}/one.sqlite", "kcache_grpc"),
            (SQLITE, f"sqlite:///{folder}/two.sqlite", "benchmarks.services.cold"),
            (POSTGRES, url, "benchmarks.services.cold"),
        ):
            migrate(db)
            rivals[name] = Rival(*stack.enter_context(_server(folder / name, db, module)))
            with grpc.insecure_channel(rivals[name].address) as channel:
                for _reply in kernel_cache_pb2_grpc.KernelCacheStub(channel).CompileKernel(_order()):
                    pass
                size = sum(len(reply) for reply in channel.unary_stream(METHOD)(request))
        pid, address = stack.enter_context(echo_process(size))
        rivals |= {ECHO: Rival(pid, address, ANSWER), ONE_BATCH: Rival(pid, address, ONCE)}
        single = {name: _one(stack, rival, request) for name, rival in rivals.items()}
        first = _compared(rivals, single, rounds, calls)
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        eight = {name: _eight(loop, rival, request) for name, rival in rivals.items()}
        second = _compared(rivals, eight, rounds, calls * 2)
    return {"bytes": size, "one client": first, "eight clients": second, "gates": _gates(first, second)}


def _one(stack: ExitStack, rival: Rival, request: bytes) -> Contender:
    """One client: the median of its calls."""
    run = raw_call(
        stack.enter_context(grpc.insecure_channel(rival.address)).unary_stream(rival.method), request
    )

    def timed(count: int) -> float:
        taken: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            run(1)
            taken.append(time.perf_counter() - started)
        return statistics.median(taken) * count

    return timed


def _eight(loop: asyncio.AbstractEventLoop, rival: Rival, request: bytes) -> Contender:
    """Eight clients with a connection each, all asking: the median of their calls."""

    async def run(count: int) -> float:
        taken: list[float] = []

        async def client() -> None:
            async with grpc.aio.insecure_channel(rival.address, options=_APART) as channel:
                call = channel.unary_stream(rival.method)
                for _ in range(count // EIGHT):
                    started = time.perf_counter()
                    async for _reply in call(request):
                        pass
                    taken.append(time.perf_counter() - started)

        await asyncio.gather(*(client() for _ in range(EIGHT)))
        return statistics.median(taken) * count

    return lambda count: loop.run_until_complete(run(max(count, EIGHT)))


def _compared(
    rivals: Mapping[str, Rival], contenders: Mapping[str, Contender], rounds: int, calls: int
) -> dict[str, Any]:
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    metered = {name: _metered(run, rivals[name].pid, spent[name]) for name, run in contenders.items()}
    samples = interleave(metered, rounds=rounds, calls=calls)
    # The first is the warming.
    cpu = {name: Sample(name, tuple(each[1:])) for name, each in spent.items()}
    report: dict[str, Any] = {}
    for name, sample in samples.items():
        report[name] = {"us": sample.median * 1e6, "cpu_us": cpu[name].median * 1e6}
        if name != ECHO:
            report[name] |= {
                "against_echo": ratio(sample, samples[ECHO]),
                "cpu_against_echo": ratio(cpu[name], cpu[ECHO]),
            }
    return report


def _metered(run: Contender, pid: int, spent: list[float]) -> Contender:
    """Appends CPU seconds of the process a call."""

    def metered(count: int) -> float | None:
        before = _cpu(pid)
        taken = run(count)
        spent.append((_cpu(pid) - before) / count)
        return taken

    return metered


def _gates(single: Mapping[str, Any], eight: Mapping[str, Any]) -> dict[str, Any]:
    """Of each gate what it allows, what was measured, and whether that is within."""
    gates: dict[str, Any] = {}
    for name, bars in GATES.items():
        measured = (
            single[name]["against_echo"],
            eight[name]["against_echo"],
            single[name]["cpu_against_echo"],
        )
        for what, bar, (median, _, _) in zip(
            ("wall, one", "wall, eight", "CPU"), bars, measured, strict=True
        ):
            gates[f"{name}: {what}"] = {"bar": bar, "measured": round(median, 2), "met": median <= bar}
    return gates


def _order() -> Any:
    return compile_request(inline(scale_and_shift(0).encode()))


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
    clear_and_restart("benchmarks.services.lookups")
    report = {"environment": description(), "hits": measure(arguments.rounds, arguments.calls)}
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""A herd of clients on three servers that share one Postgres, and one client on one server beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.storage import open_store
from tests.postgres import PostgresServer
from tests.repository.sources import ROOT
from tests.server.harness.cpu import Meter
from tests.server.harness.running import process

SERVERS, PROCESSES = 3, 2


@dataclass(frozen=True)
class Outcome:
    """``seconds`` from the first request to the last answer; ``replies`` as the clients wrote them.

    ``cpu``: seconds of processor time in between, by kind of process.
    """

    seconds: float
    replies: list[list[Any]]
    cpu: dict[str, float]


@dataclass(frozen=True)
class Herd:
    """What came of the herd, and of one client that asked one server for as many other new kernels."""

    alone: Outcome
    together: Outcome
    publishes: int
    keys: int
    compiles: int

    @property
    def ratio(self) -> float:
        return self.together.seconds / self.alone.seconds


def run(
    folder: Path,
    postgres: PostgresServer,
    *,
    clients: int,
    kernels: int,
    rounds: int = 1,
    asking: str = "at-once",
    workers: int = 0,
) -> list[Herd]:
    """Several rounds, each with new kernels, on servers that are warm.

    ``workers``: of each server, 0: one for each CPU.
    ``asking``: how every client does, on both sides: the ORDER of ``tests.server.harness.herd_client``.
    """
    herd_url, alone_url = postgres.create_migrated(), postgres.create_migrated()
    with ExitStack() as stack, ThreadPoolExecutor(SERVERS + 1) as threads:
        urls = [*[herd_url] * SERVERS, alone_url]
        starting = [
            process(_made(folder / name), KCACHE_DB=url, KCACHE_WORKERS=str(workers), KCACHE_LEASE_TTL="10")
            for name, url in _named(urls)
        ]
        running: list[tuple[subprocess.Popen[str], str]] = list(threads.map(stack.enter_context, starting))
        addresses: list[str] = [address for _, address in running]
        alone = addresses.pop()
        meter = Meter([child.pid for child, _ in running], postgres.pid)
        herds: list[Herd] = []
        for number in range(rounds + 1):
            first = 1000 * (number + 1)
            # The first round warms everything that a client meets for the first time.
            size = kernels if number else 2
            single = ask([alone], 1, first, size, meter, asking)
            many = ask(addresses, clients, first, size, meter, asking)
            if number:
                herds.append(_herd(herd_url, single, many))
        return herds


def _named(urls: Sequence[str]) -> list[tuple[str, str]]:
    """The herd's servers share a folder, and so a signing key."""
    return [("herd" if url == urls[0] else "alone", url) for url in urls]


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def ask(
    addresses: Sequence[str], clients: int, first: int, kernels: int, meter: Meter, asking: str
) -> Outcome:
    """All clients at once, in a few processes that are connected before the clock starts."""
    processes = min(PROCESSES, clients)
    target = "ipv4:" + ",".join(addresses)
    shares = [clients // processes + (index < clients % processes) for index in range(processes)]
    command = [sys.executable, "-m", "tests.server.harness.herd_client", target]
    children = [
        subprocess.Popen(
            [*command, str(share), str(first), str(kernels), asking],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    with ThreadPoolExecutor(processes) as threads:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        before = meter.read()
        outputs = list(threads.map(lambda child: child.communicate("go\n", timeout=600)[0], children))
    assert [child.returncode for child in children] == [0] * processes
    lines = [json.loads(line) for output in outputs for line in output.splitlines()]
    times: list[dict[str, float]] = [line for line in lines if isinstance(line, dict)]
    cpu = {kind: used - before[kind] for kind, used in meter.read().items()}
    cpu["clients"] = sum(each["cpu"] for each in times)
    seconds = max(each["ended"] for each in times) - min(each["began"] for each in times)
    return Outcome(seconds, [line for line in lines if isinstance(line, list)], cpu)


def _herd(url: str, alone: Outcome, together: Outcome) -> Herd:
    numbers = {number for number, *_ in together.replies}
    keys = {key for _, key, *_ in together.replies}
    with open_store(url) as store:
        events = store.list_audit(store.get_or_create_namespace("default"), limit=100_000)
    publishes = [record for record in events if record.event.kind == "publish" and record.event.key in keys]
    compiles = sum(reply[2] == pb.ORIGIN_COMPILED for reply in together.replies)
    assert len({json.dumps([*reply[:2], *reply[3:]]) for reply in together.replies}) == len(numbers)
    return Herd(alone, together, len(publishes), len(keys), compiles)

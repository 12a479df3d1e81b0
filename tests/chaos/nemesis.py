"""What goes wrong, one thing after another, as a seed says; and the run that has it happen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.chaos.cluster import Cluster, Server, cluster
from tests.chaos.history import final_keys, violations
from tests.chaos.workload import Observed, Workload
from tests.s3 import Fault
from tests.server.programs import header

#: Seconds in which every server must answer again once nothing is broken any more.
RECOVERY = 60.0
#: Seconds in which a server may not know of what another one published.
WINDOW = 2.0


#: The object store refuses, breaks off, sends half and says that it is all, sends another byte.
_OBJECT_FAULTS = (Fault.REFUSE, Fault.BUSY, Fault.CUT, Fault.SHORT, Fault.FLIP)


@dataclass
class Report:
    """What a run came to."""

    seed: int
    observed: Observed
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    keys: int = 0
    kernels: int = 0

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.observed.answered} answers, {self.observed.unanswered} refusals in "
            f"{self.seconds:.0f} s; {self.keys} keys, {self.kernels} kernels; faults: {faults}; "
            f"{len(self.problems)} problems" + "".join(f"\n  {problem}" for problem in self.problems)
        )


class Nemesis:
    """Breaks one thing at a time, for a while; a server that died is started again, as a supervisor would."""

    def __init__(self, broken: Cluster, seed: int) -> None:
        self._cluster = broken
        self._chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        #: Set when the last kind of fault has had its turn.
        self.tried_all = asyncio.Event()

    def faults_by_weight(self) -> dict[Callable[[], None], int]:
        """Each returns once the fault is in place; ``Cluster.heal`` takes it away."""
        return {
            self.kill_server: 5,
            self.freeze_server: 4,
            self.kill_worker: 3,
            self.freeze_worker: 2,
            self.kill_database: 3,
            self.restart_database: 2,
            self.cut_connections: 4,
            self.refuse_connections: 2,
            self.fill_database_disk: 2,
            self.fill_server_disk: 2,
            self.shift_clocks: 3,
            **({} if self._cluster.objects is None else {self.break_objects: 12}),
        }

    def _server(self) -> Server:
        return self._chance.choice(self._cluster.servers)

    def kill_server(self) -> None:
        self._server().kill()

    def freeze_server(self) -> None:
        self._server().signal(signal.SIGSTOP)

    def kill_worker(self) -> None:
        self._to_worker(signal.SIGKILL)

    def freeze_worker(self) -> None:
        self._to_worker(signal.SIGSTOP)

    def _to_worker(self, number: signal.Signals) -> None:
        for pid in self._server().workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_database(self) -> None:
        self._cluster.postgres.stop("immediate")

    def restart_database(self) -> None:
        self._cluster.postgres.stop("fast")
        self._cluster.postgres.start()

    def cut_connections(self) -> None:
        self._cluster.proxy.cut()

    def refuse_connections(self) -> None:
        self._cluster.proxy.refuse(True)
        self._cluster.proxy.cut()

    def fill_database_disk(self) -> None:
        self._cluster.database.disk_full(True)

    def fill_server_disk(self) -> None:
        self._server().switches.disk_full(True)

    def shift_clocks(self) -> None:
        for switches in (self._cluster.database, self._server().switches):
            switches.shift_clock(self._chance.choice((-3600, -20, 20, 3600)))

    def break_objects(self) -> None:
        assert self._cluster.objects is not None
        self._cluster.objects.fail(self._chance.choice(_OBJECT_FAULTS))

    async def run(self) -> None:
        """Until it is cancelled."""
        weights = self.faults_by_weight()
        #: Each once, in some order, before any comes again.
        once = self._chance.sample(list(weights), len(weights))
        while True:
            (fault,) = [once.pop()] if once else self._chance.choices(list(weights), list(weights.values()))
            await asyncio.to_thread(fault)
            self.faults[fault.__name__] += 1
            await asyncio.sleep(self._chance.uniform(0.2, 4.0))
            await asyncio.to_thread(self._cluster.heal)
            if not once:
                self.tried_all.set()
            await asyncio.sleep(self._chance.uniform(0.5, 3.0))


async def run(folder: Path, seed: int, operations: int, clients: int = 12, objects: bool = False) -> Report:
    """``operations`` answered questions while things break, then a look at what is left.

    With ``objects`` bytes are in an object store that breaks too: what it spoils is quarantined, and a kernel
    is absent until somebody asks for it to be compiled again. It is the same kernel then.
    """
    began = time.monotonic()
    with cluster(folder, objects) as broken:
        addresses = [server.address for server in broken.servers]
        workload = Workload(addresses, seed, programs=150, kernels=25, may_vanish=objects)
        nemesis = Nemesis(broken, seed)
        report = Report(seed, workload.seen, nemesis.faults)
        await asyncio.to_thread(_require_recovery, broken, report)
        breaking = asyncio.create_task(nemesis.run())
        working = asyncio.create_task(workload.run(clients, operations, nemesis.tried_all))
        await asyncio.wait({breaking, working}, return_when=asyncio.FIRST_COMPLETED)
        breaking.cancel()
        workload.stopping = True
        await working
        with contextlib.suppress(asyncio.CancelledError):
            await breaking
        await asyncio.to_thread(broken.heal)
        await asyncio.to_thread(_require_recovery, broken, report)
        # Everything once more, with nothing in the way: what was acknowledged is there, and whole.
        last = Workload(addresses, seed + 1, programs=150, kernels=25, may_vanish=objects)
        last.seen.history = workload.seen.history
        last.seen.objects, last.seen.texts = workload.seen.objects, workload.seen.texts
        await last.run(clients, 300, None)
        report.problems += [f"after healing: {problem}" for problem in last.seen.wrong]
        if last.seen.unanswered:
            report.problems.append(f"after healing {last.seen.unanswered} questions had no answer")
        _judge(broken, report)
    report.seconds = time.monotonic() - began
    return report


def _require_recovery(broken: Cluster, report: Report) -> None:
    """Every server answers within ``RECOVERY``; one that does not is a problem."""
    for server in broken.servers:
        with grpc.insecure_channel(server.address) as channel:
            stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            request = pb.CountSpecsRequest(header=header())
            try:
                stub.CountSpecs(request, timeout=RECOVERY, wait_for_ready=True)
            except grpc.RpcError as error:
                report.problems.append(f"{server.address} did not recover: {error}\n{server.log()[-2000:]}")


def _judge(broken: Cluster, report: Report) -> None:
    seen = report.observed
    report.problems += seen.wrong
    keys = {answer.register for answer in seen.history.answers if answer.register[0] == "key"}  # type: ignore[index]
    report.problems += violations(seen.history, keys, WINDOW)
    stored = [int(str(key)) for (key,) in broken.rows("SELECT key FROM specs ORDER BY key")]
    ((last,),) = broken.rows("SELECT last_key FROM key_counters")
    given = {a.register: int(str(a.value)) for a in seen.history.answers if a.register in keys and a.value}
    report.problems += final_keys(given, int(str(last)), stored)
    report.keys = len(stored)
    ((report.kernels,),) = broken.rows("SELECT count(*) FROM kernels")
    for (conflict,) in broken.rows("SELECT kind FROM conflicts"):
        report.problems.append(f"a conflict was recorded: {conflict}")

"""What goes wrong, one thing after another, as a seed says; and the run that has it happen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from tests.s3 import Fault
from tests.system.chaos.cluster import Cluster, Server, Setup, cluster
from tests.system.chaos.stores import Faults
from tests.system.chaos.verdict import Report, judge, require_recovery
from tests.system.chaos.workload import Workload

#: The object store refuses, breaks off, sends half and says that it is all, sends another byte, keeps half of
#: what it is given, says nothing for a while.
_OBJECT_FAULTS = (Fault.REFUSE, Fault.BUSY, Fault.CUT, Fault.SHORT, Fault.FLIP, Fault.KEEP, Fault.HOLD)


class Nemesis:
    """Breaks one thing at a time, for a while; a server that died is started again, as a supervisor would."""

    def __init__(self, broken: Cluster, seed: int) -> None:
        self._cluster = broken
        self._chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        #: Set when the last kind of fault has had its turn.
        self.tried_all = asyncio.Event()
        if not self.faults_by_weight():
            self.tried_all.set()

    def faults_by_weight(self) -> Faults:
        """Each returns once the fault is in place; ``Cluster.heal`` takes it away."""
        if not self._cluster.setup.faults:
            return {}
        return {
            self.kill_server: 5,
            self.freeze_server: 4,
            self.kill_worker: 3,
            self.freeze_worker: 2,
            self.fill_server_disk: 2,
            self.shift_clocks: 3,
            **self._cluster.store.faults(),
            **({} if self._cluster.objects is None else {self.break_objects: 12}),
        }

    def names(self) -> list[str]:
        """Of all kinds of faults."""
        return [fault.__name__ for fault in self.faults_by_weight()]

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

    def fill_server_disk(self) -> None:
        self._server().switches.disk_full(True)

    def shift_clocks(self) -> None:
        for each in (self._cluster.store, self._server().switches):
            each.shift_clock(self._chance.choice((-3600, -20, 20, 3600)))

    def break_objects(self) -> None:
        assert self._cluster.objects is not None
        self._cluster.objects.fail(self._chance.choice(_OBJECT_FAULTS))

    async def run(self) -> None:
        """Until it is cancelled."""
        weights = self.faults_by_weight()
        if not weights:
            await asyncio.Event().wait()
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


async def run(folder: Path, seed: int, operations: int, setup: Setup, clients: int = 12) -> Report:
    """``operations`` answered questions while things break, then a look at what is left.

    With ``objects`` bytes are in an object store that breaks too: what it spoils is quarantined, and a kernel
    is absent until somebody asks for it to be compiled again. It is the same kernel then.
    """
    began = time.monotonic()
    with cluster(folder, setup) as broken:
        addresses = [server.address for server in broken.servers]
        workload = Workload(addresses, seed, programs=150, kernels=25, may_vanish=setup.objects)
        nemesis = Nemesis(broken, seed)
        report = Report(seed, setup, workload.seen, nemesis.faults, set(nemesis.names()))
        await asyncio.to_thread(require_recovery, broken, report)
        breaking = asyncio.create_task(nemesis.run())
        working = asyncio.create_task(workload.run(clients, operations, nemesis.tried_all))
        await asyncio.wait({breaking, working}, return_when=asyncio.FIRST_COMPLETED)
        breaking.cancel()
        workload.stopping = True
        await working
        with contextlib.suppress(asyncio.CancelledError):
            await breaking
        await asyncio.to_thread(broken.heal)
        await asyncio.to_thread(require_recovery, broken, report)
        # Everything once more, with nothing in the way: what was acknowledged is there, and whole.
        workload.stopping = False
        report.problems += [f"after healing: {each}" for each in await workload.ask_all()]
        await asyncio.to_thread(judge, broken, report)
    report.seconds = time.monotonic() - began
    return report

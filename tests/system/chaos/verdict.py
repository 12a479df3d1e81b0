"""What a run came to: all answers together, and the store that is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field

import grpc

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.server.harness.programs import header
from tests.system.chaos.cluster import Cluster, Setup
from tests.system.chaos.history import final_keys, violations
from tests.system.chaos.questions import Observed

#: Seconds in which every server must answer again once nothing is broken any more.
RECOVERY = 60.0
#: Seconds in which a server may not know of what another one published.
WINDOW = 2.0
#: What the operator's commands say of the store itself: rows, digests, counters; every event and every seal.
_COMMANDS = (("doctor",), ("audit", "verify"))


@dataclass
class Report:
    """Printed at the end of a run."""

    seed: int
    setup: Setup
    observed: Observed
    faults: Counter[str]
    #: All kinds of faults that there are.
    kinds: set[str]
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    keys: int = 0
    kernels: int = 0

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        where = self.setup.store + (" and objects" if self.setup.objects else "")
        return (
            f"seed {self.seed}, {where}: {self.observed.answered} answers, "
            f"{self.observed.unanswered} rejections in {self.seconds:.0f} s; {self.keys} keys, "
            f"{self.kernels} kernels; faults: {faults or 'none'}; {len(self.problems)} problems"
            + "".join(f"\n  {problem}" for problem in self.problems)
        )

    def good(self, operations: int) -> bool:
        """Nothing was wrong, so much was answered, and every kind of fault had its turn."""
        return not self.problems and self.observed.answered >= operations and self.kinds == set(self.faults)


def require_recovery(broken: Cluster, report: Report) -> None:
    """Every server answers within ``RECOVERY``; one that does not is a problem."""
    for server in broken.servers:
        with grpc.insecure_channel(server.address) as channel:
            stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            request = pb.CountSpecsRequest(header=header())
            try:
                stub.CountSpecs(request, timeout=RECOVERY, wait_for_ready=True)
            except grpc.RpcError as error:
                report.problems.append(f"{server.address} did not recover: {error}\n{server.log()[-2000:]}")


def judge(broken: Cluster, report: Report) -> None:
    """Adds to the report what is wrong with what clients saw, and with what is stored."""
    seen = report.observed
    report.problems += seen.wrong
    keys = {answer.register for answer in seen.history.answers if answer.register[0] == "key"}  # type: ignore[index]
    report.problems += violations(seen.history, keys, WINDOW)
    rows = broken.store.rows
    stored = [int(str(key)) for (key,) in rows("SELECT key FROM specs ORDER BY key")]
    ((last,),) = rows("SELECT last_key FROM key_counters")
    assigned = {a.register: int(str(a.value)) for a in seen.history.answers if a.register in keys and a.value}
    report.problems += final_keys(assigned, int(str(last)), stored)
    report.keys = len(stored)
    ((kernels,),) = rows("SELECT count(*) FROM kernels")
    report.kernels = int(str(kernels))
    report.problems += [f"a conflict was recorded: {kind}" for (kind,) in rows("SELECT kind FROM conflicts")]
    for command in _COMMANDS:
        report.problems += _said(broken, *command)


def _said(broken: Cluster, *command: str) -> list[str]:
    """What a command of the operator's finds wrong."""
    ran = subprocess.run(
        [sys.executable, "-m", "kcache_grpc", *command, "--db", broken.store.direct, "--json"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **broken.settings},
    )
    try:
        said = json.loads(ran.stdout)
    except ValueError:
        return [f"kcache {' '.join(command)}: {ran.stdout[-500:]}{ran.stderr[-500:]}"]
    if command == ("doctor",):
        failed = [each for each in said["checks"] if each["state"] == "failed"]
        return [f"kcache doctor: {each}" for each in failed if each["name"].startswith("store")]
    return [] if ran.returncode == 0 else [f"kcache {' '.join(command)}: {ran.stdout[-1000:]}"]

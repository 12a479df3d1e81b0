"""A training loop whose server is killed again and again, beside the same loop undisturbed.

    python -m tests.integrations.torch.dynamo.service.kill_loop [KILLS]

prints the largest difference of losses, the time of both loops, and the slowest step.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.torch import failures
from tests.serving import ServerProcess

#: Steps for each kill. Each step compiles graphs of its own.
STEPS = 3
#: Seconds that a killed server stays away.
AWAY = 2.0


@dataclass
class Run:
    """What a loop did. ``kernels``: those compiled in each step."""

    losses: list[float] = field(default_factory=list[float])
    seconds: list[float] = field(default_factory=list[float])
    kernels: list[int] = field(default_factory=list[int])
    failures: dict[str, int] = field(default_factory=dict[str, int])


def loss_of(layer: nn.Linear, x: Tensor, scale: float) -> Tensor:
    x = torch.tanh(layer(x)) * scale + x
    return x.square().mean()


def train(address: str, namespace: str, steps: int, before: Any = None, **options: Any) -> Run:
    """A loop of ``steps`` steps. ``before(step)`` runs before each."""
    torch._dynamo.reset()
    kernels.FAILURES.forget()
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    run = Run()
    for step in range(steps):
        if before is not None:
            before(step)
        decisions.forget()
        begin = time.perf_counter()
        # Dynamo was reset, and a new scale is another program.
        settings = {"address": address, "namespace": namespace, **options}
        compiled = torch.compile(loss_of, backend="kcache", options=settings)
        optimizer.zero_grad()
        loss = compiled(layer, torch.ones(4, 8) * (step + 1) / steps, 0.5 + step / 64)
        loss.backward()
        optimizer.step()
        run.losses.append(loss.item())
        run.seconds.append(time.perf_counter() - begin)
        run.kernels.append(sum(len(decision.kernels) for decision in decisions.decisions()))
        torch._dynamo.reset()
    run.failures = failures()
    return run


class Killer:
    """Kills a server in the middle of a step, and starts it again ``AWAY`` seconds later."""

    def __init__(self, server: ServerProcess, kills: int) -> None:
        self._server = server
        self._left = kills
        self._thread: threading.Thread | None = None
        self.kills = 0

    def before(self, step: int) -> None:
        """Kill the server soon after every third step began, while the loop goes on."""
        if step % STEPS == 1 and self._left:
            self.join()
            self._left -= 1
            self._thread = threading.Thread(target=self._kill)
            self._thread.start()

    def join(self) -> None:
        """Wait until the server is there again."""
        if self._thread is not None:
            self._thread.join()

    def _kill(self) -> None:
        time.sleep(0.05 * (self._left % 5))
        self._server.kill()
        self.kills += 1
        time.sleep(AWAY)
        self._server.start()


def undisturbed_and_killed(folder: Path, kills: int) -> tuple[Run, Run, int]:
    """Both loops against one server, in namespaces of their own, and the number of kills."""
    with ServerProcess(folder) as server:
        steps = STEPS * kills + STEPS
        os.environ["KCACHE_CACHE_DIR"] = str(folder / "undisturbed")
        undisturbed = train(server.address, "undisturbed", steps)
        os.environ["KCACHE_CACHE_DIR"] = str(folder / "killed")
        killer = Killer(server, kills)

        def before(step: int) -> None:
            if step == STEPS * kills + 1:
                killer.join()
            killer.before(step)

        try:
            killed = train(server.address, "killed", steps, before)
        finally:
            killer.join()
        return undisturbed, killed, killer.kills


def main() -> None:
    """The figures of both loops."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    warnings.simplefilter("ignore", kcache.KcacheWarning)
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed, count = undisturbed_and_killed(Path(folder), kills)
    difference = max(abs(a - b) for a, b in zip(undisturbed.losses, killed.losses, strict=True))
    print(f"steps: {len(killed.losses)}, server killed {count} times, away for {AWAY} s each time")
    print(f"largest difference of losses: {difference:g}")
    for name, run in (("undisturbed", undisturbed), ("killed", killed)):
        eager = sum(not compiled for compiled in run.kernels)
        print(
            f"{name}: {sum(run.seconds):.1f} s, slowest step {max(run.seconds):.1f} s, "
            f"{sum(run.kernels)} kernels, {eager} steps without, failures {run.failures}"
        )
    print(f"time lost: {sum(killed.seconds) - sum(undisturbed.seconds):.1f} s")


if __name__ == "__main__":
    main()

"""The power fails while processes write to SQLite: what they acknowledged is there, and no key has a gap.

Of each file that is left which was there at its last sync: nothing that was written since. What a disk may do
beyond that, keep some of it or tear it, is SQLite's own affair.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kcache_grpc.storage import open_store
from tests.fresh import fresh_store
from tests.repository.sources import ROOT
from tests.storage.inside import assert_sound
from tests.storage.sql.test_keys import acknowledged, assert_kept, rest

#: Stores specs as fast as it can, and dies.
HURRIED = """
import os, signal, sys
from kcache_grpc.storage import open_store
from tests.storage.drafts import spec
from tests.storage.inside import hurry
store = open_store(sys.argv[1])
hurry(store)
ns = store.get_or_create_namespace("default")
keys = [store.put_spec(ns, spec(number)).key for number in range(50)]
print(keys[-1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Machine:
    """A store, and what of it a power loss would leave."""

    def __init__(self, folder: Path) -> None:
        shim = folder / "power.so"
        source = Path(__file__).with_name("power.c")
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            shim,
            source,
            "-ldl",
        ]
        subprocess.run(command, check=True)
        self.store, self.left = folder / "store.sqlite", folder / "left" / "store.sqlite"
        for path in (self.store, self.left):
            fresh_store(path)
        self._environment = {**os.environ, "LD_PRELOAD": str(shim), "POWER_KEEPS": str(self.left.parent)}

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["endless specs", "endless together"])
def test_what_was_acknowledged_outlives_a_power_loss(machine: Machine, mode: str) -> None:
    chance, url = random.Random(7), f"sqlite:///{machine.store}"
    writers = [machine.start("-m", "tests.storage.racer", mode, url, str(seed)) for seed in range(2)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    told: dict[int, int] = {}
    for writer in writers:
        told |= acknowledged(writer, chance.randrange(40, 80))
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
    for writer in writers:
        with writer:
            told |= rest(writer)
    assert_sound(machine.left)
    with open_store(f"sqlite:///{machine.left}") as store:
        assert_kept(store, told)


def test_what_did_not_wait_for_the_disk_does_not(machine: Machine) -> None:
    """Else the tests above would find nothing."""
    with machine.start("-c", HURRIED, f"sqlite:///{machine.store}") as writer:
        assert writer.stdout is not None
        assert writer.stdout.read() == "50\n"
    with open_store(f"sqlite:///{machine.left}") as store:
        assert store.count_specs(store.get_or_create_namespace("default")) < 50

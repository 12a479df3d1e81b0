"""Faults that are switched on are felt: what injects nothing would find nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.system.chaos.faults.shim import Switches, build

#: Tells the time, then writes to a file and to SQLite.
VICTIM = """
import os, sqlite3, sys, time
print(time.time())
for write in (
    lambda: open("file", "wb", buffering=0).write(b"x"),
    lambda: sqlite3.connect("store.sqlite").execute("CREATE TABLE t (x)"),
):
    try:
        write()
        print("written")
    except (OSError, sqlite3.Error) as error:
        print(error)
"""


def victim(switches: Switches, folder: Path) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", VICTIM],
        cwd=folder,
        env={**os.environ, **switches.environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout.splitlines()


def test_a_full_disk_and_a_clock_that_jumps_are_felt_and_pass(tmp_path: Path) -> None:
    switches = Switches(build(tmp_path), tmp_path / "switches")
    told, *writes = victim(switches, tmp_path)
    assert abs(float(told) - time.time()) < 60
    assert writes == ["written", "written"]
    switches.disk_full(True)
    switches.shift_clock(-3600)
    (tmp_path / "store.sqlite").unlink()
    told, *writes = victim(switches, tmp_path)
    assert abs(float(told) - time.time() + 3600) < 60
    assert ["No space left" in writes[0], "disk is full" in writes[1]] == [True, True]
    switches.heal()
    told, *writes = victim(switches, tmp_path)
    assert abs(float(told) - time.time()) < 60
    assert writes == ["written", "written"]

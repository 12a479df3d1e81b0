"""SIGKILL at every file operation of ``OnDiskCache``: no corrupt value is ever read, and no lock remains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.caches.harness import faults

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.issue(number=20, point=1)
def test_a_kill_at_any_operation_leaves_a_whole_entry_or_none(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.caches.harness.faults", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert set(counts) == {*faults.SCENARIOS, "write a file"}
    # It creates, writes, syncs and renames.
    assert counts["write a file"] >= 9
    # An insert makes two directories and reads, creates, writes, syncs, links and removes a file.
    assert counts["insert"] >= 14
    # The other ones also take the lock, and remove or rename a file under it.
    assert counts["insert over another version"] >= counts["insert"] + 6
    assert counts["get of another version"] >= 6
    assert counts["get of a damaged entry"] >= counts["insert"] + 6


@pytest.mark.issue(number=20, point=1)
def test_every_file_operation_has_a_fault() -> None:
    """An operation that the layer does not know would be one that is not tested."""
    operations = {name for name in vars(faults.Files) if not name.startswith("_")}
    faulted = {name for name in vars(faults.KillingFiles) if not name.startswith("_")}
    assert operations - faulted == {"check_directory", "write_temporary"}

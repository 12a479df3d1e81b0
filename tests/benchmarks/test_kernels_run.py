"""``python -m benchmarks.kernels``, once, on one small kernel: what it writes can be read and drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")

from benchmarks.kernels.page import page
from tests.repository.sources import ROOT

RUN = (
    "--only",
    "exp_add/1Ki",
    "--only",
    "sort/*",
    "--rivals",
    "numpy,hand",
    "--rounds",
    "2",
    "--budget",
    "0.001",
)


@pytest.mark.long
def test_a_run_measures_checks_and_reports(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.kernels", *RUN, "--threads", "1"]
    command += ["--json", str(tmp_path / "run.json")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "run.json").read_text())
    [machine], [chain, sort] = report["machines"], report["cases"]
    assert machine["threads"] == 1
    assert chain["contenders"]["kcache"]["seconds"]
    assert chain["contenders"]["kcache"]["error"] < 1e-5
    assert chain["contenders"]["kcache"]["compile_s"] > 0
    assert sort["contenders"]["NumPy"]["seconds"]
    assert "exp_add/1Ki" in ran.stdout
    assert any(line.startswith("| exp_add/1Ki |") for line in page(report, 1))

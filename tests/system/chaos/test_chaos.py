"""Five thousand answers while servers, workers, database, network, disks, clocks and objects fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repository.sources import ROOT

LONG = [
    *(
        (seed, 20_000, "postgres", objects)
        for seed, objects in ((2, False), (3, True), (4, False), (5, True))
    ),
    (6, 20_000, "sqlite", False),
    (7, 20_000, "sqlite", True),
]


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("seed", "operations", "store", "objects"),
    [
        (1, 40, "sqlite", True),
        pytest.param(1, 1000, "sqlite", True, marks=pytest.mark.long),
        pytest.param(1, 4000, "postgres", False, marks=pytest.mark.long),
        *(pytest.param(*each, marks=pytest.mark.long) for each in LONG),
    ],
)
def test_no_answer_is_without_an_order(seed, operations, store, objects):
    """In a process of its own, which tells where it hangs."""
    command = [
        sys.executable,
        "-m",
        "tests.system.chaos",
        "--seed",
        str(seed),
        "--operations",
        str(operations),
    ]
    command += ["--store", store]
    command += ["--limit", "800"] if operations < 20_000 else []
    ran = subprocess.run(
        [*command, *(["--objects"] if objects else [])],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900 if operations < 20_000 else None,
    )
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout

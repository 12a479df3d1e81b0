"""Five thousand answers while servers, workers, database, network, disks and clocks fail."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.nemesis import run


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "operations"),
    [(1, 5000), *(pytest.param(seed, 20_000, marks=pytest.mark.long) for seed in (2, 3, 4))],
)
def test_no_answer_is_without_an_order(seed, operations, tmp_path):
    report = asyncio.run(run(tmp_path, seed, operations))
    print(report)
    assert report.observed.answered >= operations
    assert len(report.faults) >= 4
    assert report.problems == []

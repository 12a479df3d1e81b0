"""Five thousand answers while servers, workers, database, network, disks, clocks and objects fail."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.nemesis import run

LONG = [(seed, 20_000, objects) for seed, objects in ((2, False), (3, True), (4, False), (5, True))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "operations", "objects"),
    [(1, 4000, False), (1, 1000, True), *(pytest.param(*each, marks=pytest.mark.long) for each in LONG)],
)
def test_no_answer_is_without_an_order(seed, operations, objects, tmp_path):
    report = asyncio.run(run(tmp_path, seed, operations, objects=objects))
    print(report)
    assert report.observed.answered >= operations
    assert len(report.faults) >= 11
    assert report.problems == []

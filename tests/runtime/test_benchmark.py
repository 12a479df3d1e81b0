"""The benchmarks of calls and launches still run; what they find is for `make bench`."""

from __future__ import annotations

import json

from benchmarks import call_overhead, launches


def test_the_report_has_every_ratio():
    report = call_overhead.measure(rounds=2, calls=20)
    assert json.loads(json.dumps(report)) == report
    assert all(entry["median"] > 0 for entry in report["microseconds"].values())
    for rival in call_overhead.RIVALS[call_overhead.OURS]:
        entry = report["ratios"][f"{call_overhead.OURS} / {rival}"]
        assert entry["low"] <= entry["median"] <= entry["high"]


def test_every_size_is_measured_on_every_pool():
    report = launches.measure(rounds=1, launches=launches.LAUNCHES, threads=2)
    medians = report["microseconds"]
    assert all(entry["median"] > 0 for entry in medians.values())
    for pool in (launches.POOL, launches.PYTHON, launches.ALONE):
        assert f"empty, {pool}" in medians
        assert all(f"add {size}, {pool}" in medians for size in launches.SIZES)

"""The benchmark of the call overhead still runs; what it finds is for `make bench`."""

from __future__ import annotations

import json

from benchmarks import call_overhead


def test_the_report_has_every_ratio():
    report = call_overhead.measure(rounds=2, calls=20)
    assert json.loads(json.dumps(report)) == report
    assert all(entry["median"] > 0 for entry in report["microseconds"].values())
    for rival in call_overhead.RIVALS[call_overhead.OURS]:
        entry = report["ratios"][f"{call_overhead.OURS} / {rival}"]
        assert entry["low"] <= entry["median"] <= entry["high"]

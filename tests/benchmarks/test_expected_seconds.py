"""Predicted compile times against real ones, on the programs of the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

import kcache_grpc as kcache
from benchmarks.services.expected_seconds import measure, programs, summary
from tests.serving import ServerProcess

pytestmark = [pytest.mark.issue(number=20, point=6), pytest.mark.long, pytest.mark.timeout(900)]


def test_compile_times_are_predicted_within_a_factor_of_two(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path, "--workers", "1") as server,
        kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=300) as client,
    ):
        predictions = measure(client)
    assert len(predictions) == len(list(programs()))
    assert predictions[0].predicted is None
    figures = summary(predictions)
    assert figures["programs"] >= 15
    assert figures["longest_compile"] > 4 * figures["shortest_compile"]
    assert 0.5 <= figures["median_ratio"] <= 2.0
    assert figures["typical_factor"] <= 2.0

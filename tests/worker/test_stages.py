"""Stages through shared memory: in order, each once, whole names only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kcache_grpc.worker.stages import StageLog, report


@pytest.fixture
def log() -> Iterator[StageLog]:
    stage_log = StageLog()
    yield stage_log
    stage_log.close()


def test_names_come_once_and_in_order(log: StageLog) -> None:
    assert log.read_new() == []
    for name in ("parse", "fuse"):
        report(log.descriptor, name)
    assert log.read_new() == ["parse", "fuse"]
    report(log.descriptor, "link")
    assert log.read_new() == ["link"]
    assert log.read_new() == []


def test_a_name_that_is_half_written_waits_for_the_rest(log: StageLog) -> None:
    os.write(log.descriptor, b"parse\nfu")
    assert log.read_new() == ["parse"]
    os.write(log.descriptor, b"se\n")
    assert log.read_new() == ["fuse"]


def test_the_next_job_begins_with_none(log: StageLog) -> None:
    report(log.descriptor, "parse")
    log.clear()
    assert log.read_new() == []
    report(log.descriptor, "fuse")
    assert log.read_new() == ["fuse"]


def test_a_closed_log_has_nothing(log: StageLog) -> None:
    report(log.descriptor, "parse")
    log.close()
    log.clear()
    assert log.read_new() == []

"""Stages through shared memory: in order, each once, whole names only."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kcache_grpc.worker.stages import StageLog, tell


@pytest.fixture
def log() -> Iterator[StageLog]:
    stage_log = StageLog()
    yield stage_log
    stage_log.close()


def test_names_come_once_and_in_order(log: StageLog) -> None:
    assert log.take() == []
    for name in ("parse", "fuse"):
        tell(log.descriptor, name)
    assert log.take() == ["parse", "fuse"]
    tell(log.descriptor, "link")
    assert log.take() == ["link"]
    assert log.take() == []


def test_a_name_that_is_half_written_waits_for_the_rest(log: StageLog) -> None:
    os.write(log.descriptor, b"parse\nfu")
    assert log.take() == ["parse"]
    os.write(log.descriptor, b"se\n")
    assert log.take() == ["fuse"]


def test_the_next_job_begins_with_none(log: StageLog) -> None:
    tell(log.descriptor, "parse")
    log.clear()
    assert log.take() == []
    tell(log.descriptor, "fuse")
    assert log.take() == ["fuse"]


def test_a_closed_log_has_nothing(log: StageLog) -> None:
    tell(log.descriptor, "parse")
    log.close()
    log.clear()
    assert log.take() == []

"""A program that several servers are asked for is parsed by one of them, unless that one dies or freezes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.service import claims
from kcache_grpc.service.claims import WorkClaim
from tests.server.harness import gated_jobs
from tests.server.harness.programs import add, compile_request, header, inline, result_of
from tests.server.harness.running import config_in, running
from tests.server.replicas.test_once import stub, until
from tests.server.replicas.test_replicas import compiled, published, replicas

COMPILED, JOINED, STORED = pb.ORIGIN_COMPILED, pb.ORIGIN_JOINED, pb.ORIGIN_STORED


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Parses are held, compiles are not."""
    gated_jobs.write_module(tmp_path / "gate")
    (tmp_path / "gate" / "hold").touch()
    (tmp_path / "gate" / "open").touch()
    return tmp_path / "gate"


def parses(gate: Path) -> int:
    return len(list(gate.glob("parsing-*")))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[WorkClaim]:
    """Who waited for another's parse; who waits does so for an hour unless it is told."""
    monkeypatch.setattr(claims, "_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(claims, "_CLAIM_TIMEOUT", 3600.0)
    waited: list[WorkClaim] = []
    wait = WorkClaim.wait

    async def noted(turn: WorkClaim) -> None:
        waited.append(turn)
        await wait(turn)

    monkeypatch.setattr(WorkClaim, "wait", noted)
    return waited


def test_two_servers_parse_a_program_once(tmp_path, url, gate, waits):
    config = config_in(tmp_path, db=url, worker=gated_jobs.write_module(gate), lease_ttl=600.0)
    with running(config) as first, running(config) as two:
        request = compile_request(inline(add(80)))
        calls = [first.stub.CompileKernel(request), two.stub.CompileKernel(request)]
        until(lambda: parses(gate) and waits)
        (gate / "parse").touch()
        results = [result_of(call) for call in calls]
        assert {result.origin for result in results} in ({COMPILED, JOINED}, {COMPILED, STORED})
        assert results[0].manifest == results[1].manifest
    assert parses(gate) == 1
    assert published(url) == 1


def test_who_waits_for_a_program_that_cannot_be_read_is_told_why(tmp_path, url, gate, waits):
    config = config_in(tmp_path, db=url, worker=gated_jobs.write_module(gate), lease_ttl=600.0)
    with running(config) as first, running(config) as two:
        request = pb.StoreGraphRequest(header=header(), graph=inline(b"module { nonsense"))
        calls = [server.stub.StoreGraph.future(request) for server in (first, two)]
        until(lambda: parses(gate) and waits)
        (gate / "parse").touch()
        for call in calls:
            assert "INVALID_PROGRAM" in str(call.exception().trailing_metadata())


def test_a_claimer_that_is_killed_is_passed_over(tmp_path, url, gate):
    held = {"TEST_HELD_JOBS": str(gate)}
    with replicas(tmp_path, url, url, **held) as [(claimer, first), (_, two)]:
        lost = compiled(first, 81)
        until(lambda: parses(gate) == 1)
        waiter = compiled(two, 81)
        claimer.send_signal(signal.SIGKILL)
        claimer.wait()
        until(lambda: parses(gate) == 2)
        (gate / "parse").touch()
        assert result_of(waiter).origin == COMPILED
        assert lost.code().name == "UNAVAILABLE"
    assert published(url) == 1


@pytest.mark.long
def test_a_claimer_that_is_frozen_is_passed_over_and_finds_the_winners_kernel(tmp_path, url, gate):
    held = {"TEST_HELD_JOBS": str(gate)}
    with replicas(tmp_path, url, url, **held) as [(claimer, first), (_, two)]:
        frozen = compiled(first, 82)
        until(lambda: parses(gate) == 1)
        claimer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, claimer.pid, os.WSTOPPED)
        waiter = compiled(two, 82)
        until(lambda: parses(gate) == 2)
        (gate / "parse").touch()
        winner = result_of(waiter)
        assert winner.origin == COMPILED
        claimer.send_signal(signal.SIGCONT)
        late = result_of(frozen)
        assert late.origin in (JOINED, STORED)
        assert late.manifest == winner.manifest
        assert stub(first).CountSpecs(pb.CountSpecsRequest(header=header())).count == 1
    assert published(url) == 1

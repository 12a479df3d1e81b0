"""A compiler that crashes, hangs or eats memory costs its own request, and is remembered for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.service.values import Limits
from tests.server.harness import gated_jobs
from tests.server.harness.programs import add, compile_request, header, inline, kernels_request, result_of
from tests.server.harness.running import Running, config_in, running
from tests.server.rpcs.test_errors import info_of

SEGFAULT, HANG, GLUTTON = (add(n) for n in (gated_jobs.SEGFAULT, gated_jobs.HANG, gated_jobs.GLUTTON))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crashes")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    settings = gated_jobs.write_module(folder / "jobs")
    (folder / "jobs" / "open").touch()
    with running(config_in(folder, worker=settings)) as server:
        yield server


def failure(server: Running, body: bytes, namespace: str, **rest: bool) -> tuple[str, dict[str, str]]:
    with pytest.raises(grpc.RpcError) as caught:
        list(server.stub.CompileKernel(compile_request(inline(body), namespace, **rest)))
    info = info_of(caught.value)
    return info.reason, dict(info.metadata)


def compiles(folder: Path, rows: int) -> int:
    return len(list((folder / "jobs").glob(f"started-{rows}-*")))


def status(server: Running, body: bytes, namespace: str) -> pb.KernelResult:
    (reply,) = server.stub.GetKernels(kernels_request([body], namespace))
    return reply.results[0]


def test_a_crash_names_stage_and_signal_and_the_server_goes_on(server: Running) -> None:
    reason, metadata = failure(server, SEGFAULT, "crash")
    assert reason == "COMPILE_FAILED"
    assert metadata["stage"] == "waiting"
    assert metadata["signal"] == "SIGSEGV"
    assert result_of(server.stub.CompileKernel(compile_request(inline(add(70)), "crash")))


def test_a_crash_is_remembered_seen_and_retried_on_request(server: Running, folder: Path) -> None:
    failure(server, SEGFAULT, "memory")
    before = compiles(folder, gated_jobs.SEGFAULT)
    reason, metadata = failure(server, SEGFAULT, "memory")
    assert reason == "COMPILE_FAILED"
    assert metadata["remembered_until"]
    assert compiles(folder, gated_jobs.SEGFAULT) == before
    result = status(server, SEGFAULT, "memory")
    assert result.status == pb.KERNEL_STATUS_FAILED
    assert (result.failure.reason, result.failure.stage) == ("COMPILE_FAILED", "waiting")
    assert result.failure.retry_time.seconds > 0
    failure(server, SEGFAULT, "memory", retry_failed=True)
    assert compiles(folder, gated_jobs.SEGFAULT) == before + 1
    stats = server.stub.GetStats(pb.GetStatsRequest(header=header("memory")))
    assert (stats.specs, stats.kernels, stats.remembered_failures) == (1, 0, 1)


def test_a_hang_ends_at_the_time_limit(tmp_path: Path) -> None:
    settings = gated_jobs.write_module(tmp_path / "jobs")
    (tmp_path / "jobs" / "open").touch()
    with running(config_in(tmp_path, worker=settings, limits=Limits(compile_seconds=5.0))) as server:
        reason, metadata = failure(server, HANG, "hang")
        assert (reason, metadata["stage"]) == ("COMPILE_TIMEOUT", "waiting")
        assert status(server, HANG, "hang").failure.reason == "COMPILE_TIMEOUT"


def test_memory_is_limited_and_not_remembered(server: Running, folder: Path) -> None:
    for attempt in (1, 2):
        reason, metadata = failure(server, GLUTTON, "glutton")
        assert (reason, metadata["limit"]) == ("RESOURCE_EXHAUSTED", "worker_memory_bytes")
        assert compiles(folder, gated_jobs.GLUTTON) == attempt
    assert status(server, GLUTTON, "glutton").status == pb.KERNEL_STATUS_NEED_COMPILE


def test_a_program_that_breaks_its_parser_is_remembered_too(server: Running) -> None:
    body = add(71) + b"// poison\n"
    failures = [failure(server, body, "poison") for _ in range(2)]
    for reason, metadata in failures:
        assert (reason, metadata["signal"]) == ("COMPILE_FAILED", "SIGABRT")
    assert failures[1][1]["remembered_until"]
    assert status(server, body, "poison").status == pb.KERNEL_STATUS_FAILED
    # Nothing is stored of it: a rejected request does not even create its namespace.
    stats = server.stub.GetStats(pb.GetStatsRequest(header=header("poison")))
    assert (stats.specs, stats.mappings, stats.remembered_failures) == (0, 0, 0)
    assert result_of(server.stub.CompileKernel(compile_request(inline(add(71)), "poison")))
    # From here on it is stored, for other servers too.
    assert not failure(server, body, "poison")[1].get("remembered_until")
    stats = server.stub.GetStats(pb.GetStatsRequest(header=header("poison")))
    assert stats.remembered_failures == 1


def test_a_remembered_failure_expires(tmp_path: Path) -> None:
    settings = gated_jobs.write_module(tmp_path / "jobs")
    (tmp_path / "jobs" / "open").touch()
    with running(config_in(tmp_path, worker=settings, failure_ttl=0.2)) as server:
        failure(server, SEGFAULT, "expiry")
        while status(server, SEGFAULT, "expiry").status == pb.KERNEL_STATUS_FAILED:
            pass
        failure(server, SEGFAULT, "expiry")
        assert compiles(tmp_path, gated_jobs.SEGFAULT) == 2

"""One compile per kernel: 64 requests at once, from one process or eight, over one server or two."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from kcache_grpc.service.compile.resolver import KernelResolver, _Known
from kcache_grpc.storage import open_store
from tests.server.harness import gated_jobs
from tests.server.harness.programs import add, compile_request, inline, kernels_request, result_of, stages_of
from tests.server.harness.running import Running, config_in, process, running

COMPILED, JOINED, STORED = pb.ORIGIN_COMPILED, pb.ORIGIN_JOINED, pb.ORIGIN_STORED
#: Seconds until the lease of a server expires that is about to die, and of one that a busy machine must not
#: make lose it.
SHORT, LONG = "0.5", "600"


def published(folder: Path, namespace: str = "default") -> int:
    with open_store(f"sqlite:///{folder}/kcache.sqlite") as store:
        events = store.list_audit(store.get_or_create_namespace(namespace), limit=100_000)
    return sum(record.event.kind == "publish" for record in events)


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 240
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
    return value


def stub(address: str) -> Any:
    return kernel_cache_pb2_grpc.KernelCacheStub(grpc.insecure_channel(address))


def started(folder: Path) -> int:
    return len(list(folder.glob("started-*")))


def freeze(process: subprocess.Popen[str], database: Path) -> None:
    """Stops a process outside of its transactions: SQLite's lock would be frozen with it."""
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        while True:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # all of its threads
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
            else:
                connection.execute("ROLLBACK")
                return


def test_64_requests_of_one_process_are_one_compile(server: Running) -> None:
    request = compile_request(inline(add(40)), "sixtyfour")
    calls = [server.stub.CompileKernel(request) for _ in range(64)]
    with ThreadPoolExecutor(64) as threads:
        results = list(threads.map(result_of, calls))
    origins = Counter(result.origin for result in results)
    assert origins[COMPILED] == 1
    assert sum(origins.values()) == 64
    assert len({result.manifest.payload for result in results}) == 1
    assert published(Path(server.config.state_dir).parent, "sixtyfour") == 1


def test_a_compile_that_failed_since_somebody_looked_is_not_made_again(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def long_ago(*_: object) -> _Known:
        return _Known(None, None)

    monkeypatch.setattr(KernelResolver, "_look", long_ago)
    kind = "tensor<8xcomplex<f32>>"
    body = (
        f"module {{ func.func @main(%a: {kind}) -> {kind} {{\n"
        f"  %r = stablehlo.custom_call @anything(%a) : ({kind}) -> {kind}\n"
        f"  return %r : {kind}\n}} }}\n"
    ).encode()
    for _ in range(3):
        with pytest.raises(grpc.RpcError, match=r"stablehlo\.custom_call"):
            result_of(server.stub.CompileKernel(compile_request(inline(body), "failing")))
    with open_store(server.config.db) as store:
        events = store.list_audit(store.get_or_create_namespace("failing"), limit=100)
    assert [record.event.kind for record in events].count("failure") == 1


@pytest.mark.parametrize("pairs", [1, pytest.param(4, marks=pytest.mark.long)])
def test_64_requests_of_processes_over_2_servers_are_one_compile(tmp_path: Path, pairs: int) -> None:
    client = Path(__file__).parents[1] / "harness" / "client_for_test.py"
    ttl = {"KCACHE_LEASE_TTL": LONG}
    with process(tmp_path, **ttl) as (_, first), process(tmp_path, **ttl) as (_, two):
        clients = [
            subprocess.Popen(
                [sys.executable, str(client), address, str(32 // pairs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for address in (first, two) * pairs
        ]
        for child in clients:  # all are connected before the first asks
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in clients:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        outputs = [child.communicate(timeout=240)[0].split() for child in clients]
    origins = Counter(int(line.split(":")[0]) for output in outputs for line in output)
    digests = {line.split(":")[1] for output in outputs for line in output}
    assert sum(origins.values()) == 64
    assert origins[COMPILED] == 1
    assert len(digests) == 1
    assert published(tmp_path) == 1


def test_waiters_of_another_server_see_the_stages_and_the_result(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gated_jobs.write_module(gate)
    held = {"TEST_HELD_JOBS": str(gate), "KCACHE_LEASE_TTL": LONG}
    with process(tmp_path, **held) as (_, first), process(tmp_path, **held) as (_, two):
        holder = stub(first).CompileKernel(compile_request(inline(add(41))))
        until(lambda: started(gate))
        waiter = stub(two).CompileKernel(compile_request(inline(add(41))))
        (gate / "slow").touch()
        for stage, file in (("waiting", "open"), ("render", "on")):
            until(lambda stage=stage: next(waiter).stage.stage == stage)
            (gate / file).touch()
        assert result_of(holder).origin == COMPILED
        assert result_of(waiter).origin == JOINED
    assert started(gate) == 1
    assert published(tmp_path) == 1


def test_a_killed_holder_is_taken_over(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gated_jobs.write_module(gate)
    held = {"TEST_HELD_JOBS": str(gate)}
    with (
        process(tmp_path, KCACHE_LEASE_TTL=SHORT, **held) as (holder, first),
        process(tmp_path, KCACHE_LEASE_TTL=LONG, **held) as (_, two),
    ):
        lost = stub(first).CompileKernel(compile_request(inline(add(42))))
        until(lambda: started(gate))
        waiter = stub(two).CompileKernel(compile_request(inline(add(42))))
        while next(waiter).stage.stage != "waiting":
            pass
        holder.send_signal(signal.SIGKILL)
        (gate / "open").touch()
        assert result_of(waiter).origin == COMPILED
        with pytest.raises(grpc.RpcError) as caught:
            list(lost)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert started(gate) == 2
    assert published(tmp_path) == 1


def test_a_frozen_holder_that_wakes_up_publishes_nothing(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gated_jobs.write_module(gate)
    held = {"TEST_HELD_JOBS": str(gate)}
    with (
        process(tmp_path, KCACHE_LEASE_TTL=SHORT, **held) as (holder, first),
        process(tmp_path, KCACHE_LEASE_TTL=LONG, **held) as (_, two),
    ):
        frozen = stub(first).CompileKernel(compile_request(inline(add(43))))
        until(lambda: started(gate))
        freeze(holder, tmp_path / "kcache.sqlite")
        (gate / "open").touch()
        winner = result_of(stub(two).CompileKernel(compile_request(inline(add(43)))))
        assert winner.origin == COMPILED
        holder.send_signal(signal.SIGCONT)
        late = result_of(frozen)
        assert late.origin == JOINED
        assert late.manifest == winner.manifest
    assert published(tmp_path) == 1


def test_a_compile_goes_on_when_its_caller_goes_away(tmp_path: Path) -> None:
    settings = gated_jobs.write_module(tmp_path / "gate")
    with running(config_in(tmp_path, worker=settings)) as server:
        call = server.stub.CompileKernel(compile_request(inline(add(44))))
        until(lambda: started(tmp_path / "gate"))
        call.cancel()
        (tmp_path / "gate" / "open").touch()

        def is_stored() -> bool:
            (reply,) = server.stub.GetKernels(kernels_request([add(44)]))
            return reply.results[0].status == pb.KERNEL_STATUS_FOUND

        until(is_stored)
        # The rows stand a moment before the flight that wrote them ends: who asks then joins its end.
        repeat = server.stub.CompileKernel(compile_request(inline(add(44))))
        assert result_of(repeat).origin in (STORED, JOINED)
    assert published(tmp_path) == 1


def test_who_joins_sees_all_stages_and_a_caller_that_leaves_does_not_matter_to_them(tmp_path: Path) -> None:
    settings = gated_jobs.write_module(tmp_path / "gate")
    with running(config_in(tmp_path, worker=settings)) as server:
        first = server.stub.CompileKernel(compile_request(inline(add(45))))
        until(lambda: started(tmp_path / "gate"))
        second = server.stub.CompileKernel(compile_request(inline(add(45))))
        stages: list[str] = []
        while "waiting" not in stages:
            stages += stages_of([next(second)])
        first.cancel()
        (tmp_path / "gate" / "open").touch()
        assert result_of(second).origin == JOINED


def test_heartbeats_come_while_nothing_else_does(tmp_path: Path) -> None:
    settings = gated_jobs.write_module(tmp_path / "gate")
    with running(config_in(tmp_path, worker=settings, heartbeat=0.05)) as server:
        call = server.stub.CompileKernel(compile_request(inline(add(46))))
        beats = 0
        while beats < 3:
            beats += next(call).WhichOneof("event") == "heartbeat"
        (tmp_path / "gate" / "open").touch()
        assert result_of(call).origin == COMPILED


def test_sigterm_lets_running_compiles_finish(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gated_jobs.write_module(gate)
    with process(tmp_path, TEST_HELD_JOBS=str(gate), KCACHE_GRACE="240") as (server, address):
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert next(health).status == health_pb2.HealthCheckResponse.SERVING
            call = kernel_cache_pb2_grpc.KernelCacheStub(channel).CompileKernel(
                compile_request(inline(add(47)))
            )
            until(lambda: started(gate))
            server.send_signal(signal.SIGTERM)
            assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
            (gate / "open").touch()
            assert result_of(call).origin == COMPILED
        assert server.wait(120) == 0
    assert published(tmp_path) == 1


def test_a_drain_that_runs_out_of_time_gives_its_leases_back(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gated_jobs.write_module(gate)
    held = {"TEST_HELD_JOBS": str(gate), "KCACHE_GRACE": "0.1", "KCACHE_LEASE_TTL": "600"}
    with process(tmp_path, **held) as (server, address):
        call = stub(address).CompileKernel(compile_request(inline(add(48))))
        until(lambda: started(gate))
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    (gate / "open").touch()
    with process(tmp_path, **held) as (_, address):
        call = stub(address).CompileKernel(compile_request(inline(add(48))), timeout=240)
        assert result_of(call).origin == COMPILED


def test_everything_answered_survives_sigkill(tmp_path: Path) -> None:
    with process(tmp_path) as (server, address):
        first = result_of(stub(address).CompileKernel(compile_request(inline(add(49)))))
        server.send_signal(signal.SIGKILL)
        server.wait(120)
    with process(tmp_path) as (_, address):
        repeat = result_of(stub(address).CompileKernel(compile_request(inline(add(49)))))
        assert repeat.origin == STORED
        assert repeat.manifest == first.manifest

"""Several servers on one Postgres: one compile between them, whoever dies, freezes or is cut off."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.errors import PermissionDenied
from kcache_grpc.service.compile import lease_renewal
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.storage import open_store
from kcache_grpc.storage.sql.postgres.engine import PostgresDatabase
from tests import postgres
from tests.ports import free_port
from tests.server.harness import gated_jobs, idle_jobs
from tests.server.harness.cut import Proxy
from tests.server.harness.programs import add, compile_request, inline, kernels_request, result_of
from tests.server.harness.running import config_in, process, running
from tests.server.replicas.test_once import LONG, SHORT, started, stub, until

COMPILED, JOINED, STORED = pb.ORIGIN_COMPILED, pb.ORIGIN_JOINED, pb.ORIGIN_STORED


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    gated_jobs.write_module(tmp_path / "gate")
    return tmp_path / "gate"


@contextmanager
def replicas(
    folder: Path, *urls: str, first_ttl: str = LONG, **settings: str
) -> Iterator[list[tuple[subprocess.Popen[str], str]]]:
    """A server process on each, started at once; their signing key is one.

    ``first_ttl``: seconds until leases of the first expire that renews them no more.
    """
    ttls = [first_ttl, *[LONG] * (len(urls) - 1)]
    with ExitStack() as stack, ThreadPoolExecutor(len(urls)) as threads:
        starting = [
            process(folder, KCACHE_DB=url, KCACHE_LEASE_TTL=ttl, **settings)
            for url, ttl in zip(urls, ttls, strict=True)
        ]
        yield list(threads.map(stack.enter_context, starting))


def compiled(address: str, number: int) -> Any:
    return stub(address).CompileKernel(compile_request(inline(add(number))), timeout=240)


def published(url: str) -> int:
    with open_store(url) as store:
        events = store.list_audit(store.get_or_create_namespace("default"), limit=100_000)
    return sum(record.event.kind == "publish" for record in events)


def follow_to(call: Any, stage: str) -> None:
    """Reads the stream until that stage."""
    while next(call).stage.stage != stage:
        pass


@pytest.mark.long
def test_servers_may_start_at_once_and_what_one_compiled_another_serves(tmp_path, postgres_server):
    url = postgres_server.create()  # they make the tables, too
    with replicas(tmp_path, *[url] * 3) as servers:
        (_, first_address), (_, two), (_, three) = servers
        first = result_of(compiled(first_address, 40))
        assert first.origin == COMPILED
        (reply,) = stub(two).GetKernels(kernels_request([add(40)]))
        assert reply.results[0].status == pb.KERNEL_STATUS_FOUND
        assert reply.results[0].manifest == first.manifest
        assert result_of(compiled(three, 40)).origin == STORED
    assert published(url) == 1


@pytest.mark.long
def test_a_killed_holder_is_taken_over_by_the_one_that_waits(tmp_path, url, gate):
    held = {"TEST_HELD_JOBS": str(gate)}
    with replicas(tmp_path, url, url, first_ttl=SHORT, **held) as [(holder, first), (_, two)]:
        lost = compiled(first, 42)
        until(lambda: started(gate))
        waiter = compiled(two, 42)
        follow_to(waiter, "waiting")
        holder.send_signal(signal.SIGKILL)
        (gate / "open").touch()
        assert result_of(waiter).origin == COMPILED
        with pytest.raises(grpc.RpcError) as caught:
            list(lost)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert started(gate) == 2
    assert published(url) == 1


@pytest.mark.long
def test_a_frozen_holder_is_taken_over_and_publishes_nothing_when_it_wakes_up(tmp_path, url, gate):
    held = {"TEST_HELD_JOBS": str(gate)}
    with replicas(tmp_path, url, url, first_ttl=SHORT, **held) as [(holder, first), (_, two)]:
        frozen = compiled(first, 43)
        until(lambda: started(gate))
        holder.send_signal(signal.SIGSTOP)
        (gate / "open").touch()
        winner = result_of(compiled(two, 43))
        assert winner.origin == COMPILED
        holder.send_signal(signal.SIGCONT)
        late = result_of(frozen)
        assert late.origin == JOINED
        assert late.manifest == winner.manifest
    assert started(gate) == 2
    assert published(url) == 1


def test_a_holder_that_is_cut_off_from_the_database_is_taken_over_and_comes_back(tmp_path, gate):
    held = {"TEST_HELD_JOBS": str(gate)}
    port = free_port()
    with postgres.running(port) as server, Proxy(port) as proxy:
        url = server.create()
        with replicas(tmp_path, proxy.url(url), url, first_ttl=SHORT, **held) as [(_, first), (_, two)]:
            cut = compiled(first, 44)
            until(lambda: started(gate))
            proxy.cut()
            (gate / "open").touch()
            winner = result_of(compiled(two, 44))
            assert winner.origin == COMPILED
            with pytest.raises(grpc.RpcError) as caught:
                list(stub(first).GetKernels(kernels_request([add(45)])))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            proxy.heal()
            late = result_of(cut)
            assert late.origin == JOINED
            assert late.manifest == winner.manifest
        assert published(url) == 1


@pytest.mark.parametrize("mode", [pytest.param("fast", marks=pytest.mark.long), "immediate"])
def test_a_compile_outlives_a_restart_of_the_database(tmp_path, gate, mode):
    with postgres.running() as server:
        url = server.create()
        # Leases outlive any restart: nobody else may compile meanwhile.
        held = {"TEST_HELD_JOBS": str(gate)}
        with replicas(tmp_path, url, url, **held) as [(_, first), (_, two)]:
            call = compiled(first, 46)
            until(lambda: started(gate))
            # Leases are not waited for until they are on disk; this one is there.
            server.execute("CHECKPOINT")
            server.stop(mode)
            (gate / "open").touch()
            with pytest.raises(grpc.RpcError) as caught:
                list(stub(two).GetKernels(kernels_request([add(46)])))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            server.start()
            assert result_of(call).origin == COMPILED
            assert result_of(compiled(two, 46)).origin == STORED
        assert started(gate) == 1
        assert published(url) == 1


def test_waiters_of_another_server_are_woken_and_do_not_poll(tmp_path, url, gate, monkeypatch):
    monkeypatch.setattr(lease_renewal, "_LAST", 3600.0)
    settings = gated_jobs.write_module(gate)
    config = config_in(tmp_path, db=url, worker=settings, lease_ttl=3600.0)
    with running(config) as first, running(config) as two:
        holder = first.stub.CompileKernel(compile_request(inline(add(47))))
        until(lambda: started(gate))
        waiter = two.stub.CompileKernel(compile_request(inline(add(47))))
        (gate / "slow").touch()
        follow_to(waiter, "waiting")
        (gate / "open").touch()
        follow_to(waiter, "render")
        (gate / "on").touch()
        assert result_of(waiter).origin == JOINED
        assert result_of(holder).origin == COMPILED
    assert published(url) == 1


def test_notices_that_nobody_hears_cost_the_polling_delay_only(tmp_path, url, gate, monkeypatch):
    class Deaf:
        def close(self) -> None: ...

    monkeypatch.setattr(PostgresDatabase, "watch", lambda self, tell: Deaf())
    settings = gated_jobs.write_module(gate)
    config = config_in(tmp_path, db=url, worker=settings, lease_ttl=3600.0)
    with running(config) as first, running(config) as two:
        holder = first.stub.CompileKernel(compile_request(inline(add(48))))
        until(lambda: started(gate))
        waiter = two.stub.CompileKernel(compile_request(inline(add(48))))
        follow_to(waiter, "waiting")
        (gate / "open").touch()
        assert result_of(waiter).origin == JOINED
        assert result_of(holder).origin == COMPILED


def test_a_raised_epoch_is_told_to_servers_that_would_not_look(tmp_path, url, monkeypatch):
    defaults = Namespaces.__init__.__defaults__ or ()
    monkeypatch.setattr(Namespaces.__init__, "__defaults__", (3600.0, *defaults[1:]))
    with running(config_in(tmp_path, db=url)) as server:
        assert result_of(server.stub.CompileKernel(compile_request(inline(add(49))))).origin == COMPILED
        with open_store(url) as store:
            store.raise_epoch(store.get_or_create_namespace("default"))

        def missing() -> bool:
            (reply,) = server.stub.GetKernels(kernels_request([add(49)]))
            return reply.results[0].status != pb.KERNEL_STATUS_FOUND

        until(missing)


def test_a_server_with_another_signing_key_is_rejected(tmp_path, url):
    idle = idle_jobs.settings()
    with running(config_in(tmp_path, db=url, worker=idle)):
        pass
    other = config_in(tmp_path, db=url, worker=idle, key_file=tmp_path / "other.key")
    with pytest.raises(PermissionDenied, match=r"share one key \(--key-file\)"), running(other):
        pass

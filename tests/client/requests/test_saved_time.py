"""Every hit knows the compile time that it saved, and for whom: memory, disk, service, joined compiles."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc.client.cache.totals import Recorded, Totals
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer
from tests.postgres import PostgresServer
from tests.server.harness import gated_jobs
from tests.server.harness.programs import add
from tests.server.harness.running import Running, config_in, running

pytestmark = pytest.mark.issue(number=20, point=6)

TARGET = "x86-64-v3"


@pytest.fixture(scope="module", params=["sqlite", "postgres", "memory"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Running]:
    """Its compiles wait for the file ``open`` in ``jobs``."""
    folder = tmp_path_factory.mktemp("saved")
    worker = gated_jobs.write_module(folder / "jobs")
    (folder / "jobs" / "open").touch()
    changes: dict[str, Any] = {"worker": worker}
    if request.param == "postgres":
        changes["db"] = postgres_server.create_migrated()
    elif request.param == "memory":
        changes["db"] = "memory:"
    with running(config_in(folder, **changes)) as server:
        yield server
    if request.param == "postgres":
        postgres_server.drop(changes["db"])


@pytest.fixture
def connect(server: Running, tmp_path: Path, new_client: NewClient) -> Any:
    """Clients of the real server in a namespace of the test's own, each with a cache directory of its own."""

    def make(name: str, **settings: Any) -> kcache.Client:
        space = tmp_path.name.replace("_", "-").lower()[:60]
        return new_client(server.address, namespace=space, cache_dir=tmp_path / name, **settings)

    return make


def saved_by(stats: kcache.Stats) -> dict[tuple[str, str], tuple[int, float]]:
    return {(each.actor, each.job): (each.hits, each.seconds_saved) for each in stats.savings}


def test_hits_of_every_tier(connect: Any, tmp_path: Path) -> None:
    client = connect("one", actor="ada", job="first")
    kernel = client.compile(add(4), target=TARGET)
    assert (kernel.origin, kernel.seconds_saved) == ("compiled", 0.0)
    took = kernel.manifest.compile_seconds
    assert took > 0
    memory = client.compile(add(4), target=TARGET)
    disk = connect("one", actor="ada", job="second").compile(add(4), target=TARGET)
    remote = connect("two", actor="bob", job="third").compile(add(4), target=TARGET)
    assert [each.origin for each in (memory, disk, remote)] == ["memory", "disk", "remote"]
    assert [each.seconds_saved for each in (memory, disk, remote)] == [took] * 3
    assert (kernel.seconds_saved, memory.named(["x", "y"]).seconds_saved) == (0.0, took)


def test_the_service_sums_by_actor_and_job(connect: Any) -> None:
    took = connect("one", actor="ada", job="first").compile(add(4), target=TARGET).manifest.compile_seconds
    for name, job in (("two", "second"), ("three", "second"), ("four", "third")):
        connect(name, actor="bob", job=job).compile(add(4), target=TARGET)
    stats = connect("five").stats()
    saved = saved_by(stats)
    assert saved == {
        ("bob", "second"): (2, pytest.approx(2 * took, abs=1e-5)),
        ("bob", "third"): (1, pytest.approx(took, abs=1e-5)),
    }
    assert stats.savings[0].job == "second"
    assert stats.savings[0].last is not None
    assert stats.seconds_saved == pytest.approx(3 * took, abs=1e-5)
    events = list(connect("six").audit("kind = serve"))
    assert [(event.actor, event.job) for event in events] == [("bob", "second")] * 2 + [("bob", "third")]
    assert all(event.time_saved == pytest.approx(took, abs=1e-5) for event in events)


def test_who_waits_for_the_compile_of_another_has_its_time_saved(server: Running, connect: Any) -> None:
    gate = server.config.state_dir.parent / "jobs" / "open"
    gate.unlink()
    first, second = connect("one", job="first"), connect("two", job="second")
    kernels: dict[str, kcache.Kernel] = {}
    waits = {"first": threading.Event(), "second": threading.Event()}

    def get(name: str, client: kcache.Client) -> None:
        kernels[name] = client.compile(add(9), target=TARGET, on_progress=lambda *_: waits[name].set())

    threads = [threading.Thread(target=get, args=each) for each in (("first", first), ("second", second))]
    try:
        for thread, name in zip(threads, waits, strict=True):
            thread.start()
            assert waits[name].wait(120)
    finally:
        gate.touch()
    for thread in threads:
        thread.join(120)
    assert {kernel.origin for kernel in kernels.values()} == {"compiled"}
    assert kernels["first"].seconds_saved == 0.0
    took = kernels["first"].manifest.compile_seconds
    assert kernels["second"].seconds_saved == took > 0
    [saving] = connect("three").stats().savings
    assert (saving.job, saving.hits) == ("second", 1)
    assert saving.seconds_saved == pytest.approx(took, abs=1e-5)


def test_many_at_once_and_the_asynchronous_client(server: Running, connect: Any, tmp_path: Path) -> None:
    client = connect("one")
    programs = [add(rows) for rows in (4, 5, 6)]
    compiled = client.compile_many(programs, target=TARGET)
    other = connect("two", job="many")
    served = other.compile_many(programs, target=TARGET)
    assert [kernel.seconds_saved for kernel in served] == [
        kernel.manifest.compile_seconds for kernel in compiled
    ]

    async def again() -> float:
        space = client._core.config.namespace
        async with kcache.aio.Client(server.address, namespace=space, cache_dir=tmp_path / "aio") as third:
            return (await third.compile(programs[0], target=TARGET)).seconds_saved

    assert asyncio.run(again()) == compiled[0].manifest.compile_seconds
    [saving, _] = other.stats().savings
    assert (saving.job, saving.hits) == ("many", 3)


def test_local_hits_stay_with_the_client_and_name_the_caller(fake: FakeServer, new_client: NewClient) -> None:
    first = new_client(fake.address, actor="ada", job="a")
    first.compile(PROGRAM)
    first.compile(PROGRAM)
    assert first.stats().client["memory_saved_us"] == 500_000  # what the fake's manifests say
    second = new_client(fake.address, actor="ada", job="b")
    for _ in range(3):
        second.compile(PROGRAM)
    second.close()
    stats = first.stats()
    assert stats.local_seconds_saved == {"memory": 1.5, "disk": 0.5}
    assert [(each.actor, each.job, each.hits, each.seconds_saved) for each in stats.local_savings] == [
        ("ada", "b", 3, 1.5),
        ("ada", "a", 1, 0.5),
    ]
    assert stats.savings == ()


def counted(**counts: int) -> dict[str, int]:
    return counts


def test_totals_of_an_earlier_version_are_read_and_kept(tmp_path: Path) -> None:
    old = '{"since": "2026-01-01T00:00:00+00:00", "memory_kernels": 3, "disk_kernels": 2,'
    (tmp_path / "totals.json").write_text(old + ' "remote_kernels": 1, "compiled_kernels": 4}')
    totals = Totals(tmp_path, "ada", "j")
    assert totals.read().kernels["memory_kernels"] == 3
    assert totals.read().seconds_saved == {}
    totals.add(counted(memory_kernels=1, memory_saved_us=2_000_000, bypass_retry=1))
    after = totals.read()
    assert after.since.startswith("2026-01-01")
    assert (after.kernels["memory_kernels"], after.seconds_saved) == (4, {"memory": 2.0})
    assert (after.callers, after.bypasses) == ({("ada", "j"): (1, 2_000_000)}, {"retry": 1})


@pytest.mark.parametrize("callers", ["[[1]]", "[5]", '"x"', "5", '[["a", "b", "c", 1]]'])
def test_damaged_callers_start_again(tmp_path: Path, callers: str) -> None:
    totals = Totals(tmp_path)
    totals.add(counted(disk_kernels=1, disk_saved_us=1))
    path = tmp_path / "totals.json"
    path.write_text(path.read_text().replace('[["", "", 1, 1]]', callers))
    assert callers in path.read_text()
    assert totals.read() == Recorded()


def test_later_callers_count_without_a_name(tmp_path: Path) -> None:
    for number in range(300):
        Totals(tmp_path, "ada", str(number)).add(counted(disk_kernels=1, disk_saved_us=10))
    callers = Totals(tmp_path).read().callers
    assert len(callers) == 257
    assert callers["", ""] == (44, 440)
    assert sum(hits for hits, _ in callers.values()) == 300

"""Background verification: off by default, at its rate, only when idle, and what it finds is made anew."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.cli.app import application
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.signing import Signer
from kcache_grpc.server import ServerConfig
from kcache_grpc.server.config import per_hour
from kcache_grpc.service.change_notifications import ChangeNotifications
from kcache_grpc.service.claims import Claims
from kcache_grpc.service.lifecycle.background_verification import (
    IDLE_LOOK,
    BackgroundVerification,
    Checked,
    Preempted,
)
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import AuditEvent
from kcache_grpc.worker import WorkerPool, WorkerSettings, pool
from tests.processes import workers
from tests.server.harness import gated_jobs, lying_jobs
from tests.server.harness.programs import add, compile_request, inline, result_of
from tests.server.harness.running import config_in, running
from tests.server.replicas.test_once import until
from tests.storage.inside import rows

pytestmark = pytest.mark.issue(number=20, point=8)

ROWS = (61, 62, 63)


@pytest.fixture(autouse=True)
def usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that tests share, a process of the lowest priority hardly starts."""
    monkeypatch.setattr(pool, "_LOWEST", 1)


class Held:
    """A clock that stands still: ``sleep`` waits until ``advance`` has gone so far."""

    def __init__(self) -> None:
        self.time = 0.0
        self.sleeping = 0
        self._changed = asyncio.Condition()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        until_then = self.time + seconds
        async with self._changed:
            self.sleeping += 1
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self.time >= until_then)
            self.sleeping -= 1

    async def advance(self, seconds: float) -> None:
        """Lets time pass, and waits until the loop has done what is due and sleeps again."""
        async with self._changed:
            self.time += seconds
            self._changed.notify_all()
        await asyncio.sleep(0)
        async with self._changed:
            await self._changed.wait_for(lambda: self.sleeping == 1)


class Replica:
    """Workers and a store as a server has them, in an event loop of its own."""

    def __init__(self, url: str, key: bytes, worker: WorkerSettings | None) -> None:
        self.store: Store = open_store(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._threads = StoreThreads(2)
        self.pool = WorkerPool(1, settings=worker)
        self._key = key
        self.call(self.pool.start())
        self.verification = self.call(self._make())

    async def _make(self, rate: float = 3600.0, clock: Any = None) -> BackgroundVerification:
        claims = Claims(self.store, self._threads, ChangeNotifications(self.store))
        return BackgroundVerification(self.store, self.pool, claims, self._key, rate, 240.0, clock=clock)

    def begin(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Any) -> Any:
        return self.begin(work).result(240)

    def step(self) -> Checked | None:
        return self.call(self.verification.step())

    def at_rate(self, rate: float) -> tuple[BackgroundVerification, Held]:
        async def make() -> tuple[BackgroundVerification, Held]:
            clock = Held()
            return await self._make(rate, clock), clock

        return self.call(make())

    def close(self) -> None:
        self.call(self.pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._threads.close()
        self.store.close()


@contextmanager
def replica(config: ServerConfig, worker: WorkerSettings | None = None) -> Iterator[Replica]:
    key = Signer.from_file(config.signing_key).public_key
    instance = Replica(config.db, key, worker)
    try:
        yield instance
    finally:
        instance.close()


def compile_rows(config: ServerConfig, *numbers: int) -> list[bytes]:
    """Compiles, and gives the origins."""
    with running(config) as server:
        return [
            result_of(server.stub.CompileKernel(compile_request(inline(add(number))))).origin
            for number in numbers
        ]


def events(store: Store) -> list[AuditEvent]:
    space = store.get_or_create_namespace("default")
    return [e.event for e in store.list_audit(space, limit=1000) if e.event.kind == "verify"]


def test_it_is_off_by_default(tmp_path: Path) -> None:
    assert ServerConfig.from_env({"KCACHE_STATE_DIR": str(tmp_path)}).verify_rate == 0
    with running(config_in(tmp_path)) as server:
        list(server.stub.CompileKernel(compile_request(inline(add(61)))))
    with open_store(f"sqlite:///{tmp_path}/kcache.sqlite") as store:
        assert events(store) == []


@pytest.mark.parametrize(
    ("text", "rate"), [("20", 20), ("20/hour", 20), ("0", 0), ("2/minute", 120), ("48/day", 2), ("0.5", 0.5)]
)
def test_rates(tmp_path: Path, text: str, rate: float) -> None:
    environment = {"KCACHE_STATE_DIR": str(tmp_path), "KCACHE_VERIFY_RATE": text}
    assert ServerConfig.from_env(environment).verify_rate == pytest.approx(rate)


@pytest.mark.parametrize("text", ["often", "3/week", "-1", "nan", "inf", "1/0"])
def test_what_is_no_rate(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError):
        per_hour(text)
    environment = {"KCACHE_STATE_DIR": str(tmp_path), "KCACHE_VERIFY_RATE": text}
    with pytest.raises(ArgumentError, match="KCACHE_VERIFY_RATE"):
        ServerConfig.from_env(environment)
    result = CliRunner().invoke(application(), ["serve", "--verify-rate", text])
    assert isinstance(result.exception, ArgumentError)
    assert "--verify-rate" in str(result.exception)


@pytest.mark.long
def test_a_round_verifies_every_kernel_once(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    compile_rows(config, *ROWS)
    with replica(config) as server:
        checked = [server.step() for _ in ROWS]
        assert all(each is not None and each.faults == () for each in checked)
        assert len({each.kernel_digest for each in checked if each is not None}) == len(ROWS)
        assert server.step() is not None  # of the next round
        records = events(server.store)
        assert [event.outcome for event in records] == ["ok"] * 4
        assert all(event.kernel_digest and event.toolchain and event.duration_us for event in records)
        assert json.loads(records[0].detail) == {"background": True, "faults": []}
        assert (server.verification.verified, server.verification.faulty) == (4, 0)


def test_an_empty_store_has_nothing_to_verify(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    compile_rows(config)
    with replica(config) as server:
        assert server.step() is None


def test_other_bytes_are_found_quarantined_told_and_made_anew(tmp_path: Path) -> None:
    """A kernel of a lying compiler, with a valid signature, in the store of an honest server that is idle."""
    compile_rows(config_in(tmp_path, worker=lying_jobs.settings()), 61)
    honest = config_in(tmp_path, verify_rate=36_000.0, metrics="127.0.0.1:0")
    database = tmp_path / "kcache.sqlite"
    with running(honest) as server:
        request = compile_request(inline(add(61)))
        until(
            lambda: rows(
                database, "SELECT count(*) FROM audit_events WHERE kind = 'verify' AND outcome = 'faulty'"
            )[0][0]
        )
        assert rows(database, "SELECT count(*) FROM kernels") == [(0,)]
        assert rows(database, "SELECT count(*) FROM quarantine")[0][0] >= 1
        # The server that served it from memory a moment ago notices: the row is gone.
        assert result_of(server.stub.CompileKernel(request)).origin == pb.ORIGIN_COMPILED
    with open_store(honest.db) as store:
        (event,) = [event for event in events(store) if event.outcome == "faulty"]
    (fault,) = json.loads(event.detail)["faults"]
    assert event.kernel_digest is not None
    assert fault["digest"] == event.kernel_digest.hex()
    assert "the same toolchain makes other bytes of so" in fault["problem"]
    assert fault["action"].startswith("quarantined")
    with replica(honest) as instance:
        checked = instance.step()
        assert checked is not None
        assert checked.faults == ()


@pytest.mark.long
def test_too_many_faults_are_told_and_left(tmp_path: Path) -> None:
    compile_rows(config_in(tmp_path, worker=lying_jobs.settings()), 61, 62, 63, 64, 65)
    with replica(config_in(tmp_path)) as server:
        actions = [server.step().faults[0].action.split(";")[0].split(",")[0] for _ in range(5)]  # type: ignore[union-attr]
        assert actions == ["quarantined"] * 3 + ["left"] * 2
        assert rows(tmp_path / "kcache.sqlite", "SELECT count(*) FROM kernels") == [(2,)]
        outcomes = Counter(event.outcome for event in events(server.store))
        assert outcomes == {"faulty": 5, "quarantined": 3}


@pytest.mark.long
def test_the_rate_is_kept_and_a_busy_server_is_left_alone(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    compile_rows(config, *ROWS)
    with replica(config) as server:
        verification, clock = server.at_rate(60.0)
        server.call(start(verification))
        for seconds, expected in ((59.0, 0), (1.0, 1), (59.0, 1), (1.0, 2), (60.0, 3), (30.0, 3)):
            server.call(clock.advance(seconds))
            assert verification.verified == expected
        busy: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(server.pool), "idle", property(lambda pool: not busy))
            busy.append("a client's job")
            for _ in range(5):
                server.call(clock.advance(60.0))
            assert verification.verified == 3
            busy.clear()
            server.call(clock.advance(IDLE_LOOK))
            assert verification.verified == 4
        server.call(verification.close())


async def start(verification: BackgroundVerification) -> None:
    verification.start()
    await asyncio.sleep(0)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    gated_jobs.write_module(tmp_path / "gate")
    return tmp_path / "gate"


def compiles(gate: Path) -> int:
    return len(list(gate.glob("started-*")))


def test_a_job_of_a_client_ends_it(tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_LOWEST", 19)
    config = config_in(tmp_path)
    compile_rows(config, 61)
    with replica(config, gated_jobs.write_module(gate)) as server:
        verifying = server.begin(server.verification.step())
        until(lambda: compiles(gate) == 1)
        assert server.pool.idle  # for clients
        assert 19 in {os.getpriority(os.PRIO_PROCESS, pid) for pid in workers(os.getpid())}
        asked = server.begin(server.pool.compile(job_of(server.store), 240.0, lambda stage: None))
        with pytest.raises(Preempted):
            verifying.result(240)
        assert (server.verification.preempted, server.verification.verified) == (1, 0)
        until(lambda: compiles(gate) == 2)
        with pytest.raises(Preempted):  # while the client's job runs
            server.step()
        (gate / "open").touch()
        asked.result(240)
        until(lambda: server.pool.idle)
        checked = server.step()
        assert checked is not None
        assert checked.faults == ()
        assert [event.outcome for event in events(server.store)] == ["ok"]


def job_of(store: Store) -> Any:
    from kcache_grpc.model.manifest import Manifest
    from kcache_grpc.service import manifests
    from kcache_grpc.worker import codec

    (kernel,) = store.page_kernels(space := store.get_or_create_namespace("default"), 0, 1)
    spec = store.get_spec(space, kernel.kernel.key)
    assert spec is not None
    manifest = Manifest.from_bytes(kernel.manifest.payload)
    arguments = manifests.compiler_arg_spec(kernel.kernel.arg_spec)
    return codec.compile_job(
        spec.text, arguments, kernel.kernel.target, manifests.compiler_options(manifest.options)
    )


@pytest.mark.long
def test_closing_ends_it(tmp_path: Path, gate: Path) -> None:
    config = config_in(tmp_path)
    compile_rows(config, 61)
    with replica(config, gated_jobs.write_module(gate)) as server:
        verification, clock = server.at_rate(60.0)
        server.call(start(verification))
        advancing = server.begin(clock.advance(60.0))
        until(lambda: compiles(gate) == 1)
        server.call(verification.close())
        advancing.cancel()
        assert verification.verified == 0
        assert events(server.store) == []


@pytest.mark.long
def test_two_replicas_verify_no_kernel_at_once(tmp_path: Path, url: str, gate: Path) -> None:
    config = config_in(tmp_path, db=url)
    compile_rows(config, 61)
    held = gated_jobs.write_module(gate)
    with replica(config, held) as first, replica(config, held) as two:
        verifying = first.begin(first.verification.step())
        until(lambda: compiles(gate) == 1)
        assert two.step() is None
        assert compiles(gate) == 1
        (gate / "open").touch()
        assert verifying.result(240).faults == ()
        checked = two.step()
        assert checked is not None
        assert checked.faults == ()
        assert compiles(gate) == 2


def test_kernels_of_other_replicas_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_in(tmp_path)
    compile_rows(config, *ROWS)
    with replica(config) as server:
        space = server.store.get_or_create_namespace("default")
        digests = [stored.kernel.kernel_digest for stored in server.store.page_kernels(space, 0, 10)]
        # From the first kernel on, so that all are in one page.
        monkeypatch.setattr(
            "kcache_grpc.service.lifecycle.background_verification.random.randrange", lambda _: 0
        )
        for own in digests:
            server.verification._is_own = own.__eq__
            orders = [
                [kernel.kernel.kernel_digest for _, kernel in server.verification._kernels()]
                for _ in range(5)
            ]
            assert [order[-1] for order in orders] == [own] * 5
            assert all(sorted(order) == sorted(digests) for order in orders)


@pytest.mark.long
def test_a_server_counts_what_it_verified(tmp_path: Path) -> None:
    compile_rows(config_in(tmp_path), 61)
    with running(config_in(tmp_path, verify_rate=36_000.0, metrics="127.0.0.1:0")) as server:
        from tests.server.rpcs.test_metrics import scrape

        until(lambda: scrape(server)["kcache_verifications_total", ()] >= 1)
        assert scrape(server)["kcache_verification_faults_total", ()] == 0

"""A service that is away: what is waited for, what is done without it, and what is told."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc import embedded
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.core import Core
from kcache_grpc.client.transport import circuit_breaker
from kcache_grpc.client.transport.blocking import BlockingIo, run
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService, Rejection


def without_grace(address: str, cache_dir: Path, **settings: Any) -> ClientConfig:
    settings = {
        "strict": True,
        "timeout": 120.0,
        "grace_period_new": 0.0,
        "grace_period_known": 0.0,
        **settings,
    }
    return ClientConfig(address, cache_dir, **settings)


def compiled(core: Core, program: str = PROGRAM) -> Any:
    return run(core.compile(program, None, "host", None, None))


def compiled_by_probes(core: Core, program: str) -> Any:
    """Probes again and again, as if cooldowns were over: the channel needs a moment to connect."""
    closing = core._services.main.channel._breaker
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        closing._probe_at = 0.0
        with contextlib.suppress(kcache.Unavailable):
            return compiled(core, program)
    raise AssertionError("the breaker never closed")


def test_strict_says_unavailable(new_client: NewClient) -> None:
    with pytest.raises(kcache.Unavailable):
        new_client("127.0.0.1:1", timeout=0.5).compile(PROGRAM)


def test_the_breaker_fails_at_once_and_closes_again(
    fake: FakeServer, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cooldown in ("FIRST_COOLDOWN", "LONGEST_COOLDOWN"):
        monkeypatch.setattr(circuit_breaker, cooldown, 3600.0)
    core = Core(without_grace(fake.address, cache_dir), BlockingIo())
    compiled(core)
    fake.stop()
    with pytest.raises(kcache.Unavailable):
        compiled(core, PROGRAM + "\n")
    with pytest.raises(kcache.Unavailable, match="asked again in") as caught:
        compiled(core, PROGRAM + "\n")
    assert caught.value.metadata["breaker"] == "open"
    assert compiled(core).origin == "memory"
    fake.start()
    assert compiled_by_probes(core, PROGRAM + "\n").origin == "compiled"
    assert compiled(core, PROGRAM + "\n\n").origin == "compiled"


def test_a_server_that_restarts_is_waited_for(
    fake: FakeServer, client: kcache.Client, service: FakeService
) -> None:
    """Killed while it compiles: the client attaches again once it is back."""
    service.hold.clear()
    told: list[str] = []

    def restart(stage: str, seconds: float) -> None:
        told.append(stage)
        if len(told) == 1:
            fake.stop()
            fake.start()

    assert client.compile(PROGRAM, on_progress=restart).origin == "compiled"
    assert service.calls["CompileKernel"] == 2


def test_the_callers_timeout_is_an_end_of_its_own(
    fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    client = new_client(fake.address, timeout=1.0)
    with contextlib.suppress(kcache.Unavailable):
        client.count()  # it is connected then, unless the machine is busy
    service.hold.clear()
    with pytest.raises(kcache.Unavailable, match="timeout of 1 s"):
        client.compile(PROGRAM)
    service.hold.set()


def test_the_start_of_the_embedded_service_is_part_of_the_timeout(
    new_client: NewClient, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on, for later calls, which wait for the same."""
    goes_on, ended = threading.Event(), threading.Event()
    starts: list[int] = []

    def start(cache_dir: Path | None, warn: embedded.Warn) -> embedded.EmbeddedService:
        starts.append(threading.get_ident())
        try:
            assert goes_on.wait(120)
            raise kcache.Unavailable("the test has no service")
        finally:
            ended.set()

    async def awaited() -> None:
        async with kcache.aio.Client(cache_dir=cache_dir, timeout=0.2) as client:
            await client.compile(PROGRAM)

    monkeypatch.setattr(embedded, "start", start)
    monkeypatch.delenv("KCACHE_ADDR", raising=False)
    client = new_client(None, timeout=0.2)
    for _ in range(3):
        with pytest.raises(kcache.Unavailable, match=r"timeout of 0\.2 s"):
            client.compile(PROGRAM)
    assert len(starts) == 1
    with pytest.raises(kcache.Unavailable, match=r"timeout of 0\.2 s"):
        asyncio.run(awaited())
    assert not ended.is_set()
    goes_on.set()
    assert ended.wait(120)
    with pytest.raises(kcache.Unavailable, match="the test has no service"):
        new_client(None).compile(PROGRAM)


def test_who_waits_for_a_caller_that_gave_up_goes_on_alone(
    fake: FakeServer, service: FakeService, client: kcache.Client
) -> None:
    joined, failed = threading.Event(), threading.Event()
    calls = 0

    def give_up(stage: str, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            assert joined.wait(120)
            raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            client.compile(PROGRAM, on_progress=give_up)
        failed.set()

    enter = client._core._running_calls.enter

    def watched(key: Any) -> Any:
        flight, leads = enter(key)
        if not leads:
            joined.set()
        return flight, leads

    client._core._running_calls.enter = watched  # type: ignore[method-assign]
    thread = threading.Thread(target=first)
    service.hold.clear()
    thread.start()
    result: list[kcache.Kernel] = []
    # The second caller comes while the first one's compile stands at the service.
    while not client._core._running_calls._calls:
        pass
    second = threading.Thread(target=lambda: result.append(client.compile(PROGRAM)))
    second.start()
    assert failed.wait(120)
    service.hold.set()
    thread.join()
    second.join(120)
    assert result[0].key == 1


@pytest.fixture
def no_server_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        embedded, "find_spec", lambda name: None if name in ("llvmlite", "sqlalchemy") else find(name)
    )


@pytest.mark.usefixtures("no_server_extra")
def test_without_the_server_extra_the_error_names_the_command(new_client: NewClient) -> None:
    for client in (new_client(None), new_client("127.0.0.1:1", strict=False)):
        with pytest.raises(
            kcache.Unavailable, match=r"llvmlite, sqlalchemy.*pip install 'kcache-grpc\[server\]'"
        ):
            client.compile(PROGRAM)


@pytest.mark.usefixtures("no_server_extra")
def test_keys_are_never_those_of_another_service(new_client: NewClient) -> None:
    client = new_client("127.0.0.1:1", strict=False, timeout=5)
    for call in (lambda: client.store(PROGRAM), client.count, lambda: client.lookup(PROGRAM)):
        with pytest.raises(kcache.Unavailable) as caught:
            call()
        assert "pip install" not in str(caught.value)


def test_not_strict_falls_back_with_one_warning_and_a_counted_reason(
    fake: FakeServer, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake service plays the embedded one."""
    monkeypatch.setattr(embedded, "missing", lambda: "")
    monkeypatch.setattr(embedded, "installation", lambda: "")
    monkeypatch.setattr(embedded, "server_id", lambda cache_dir: None)
    monkeypatch.setattr(
        "kcache_grpc.client.transport.endpoint.EmbeddedLocation.reach",
        lambda self: __import__("kcache_grpc.client.address", fromlist=["x"]).parse_endpoint(fake.address),
    )
    core = Core(without_grace("127.0.0.1:1", cache_dir, strict=False), BlockingIo())
    with pytest.warns(kcache.KcacheWarning, match=r"127\.0\.0\.1:1 does not answer") as caught:
        kernels = [compiled(core, text) for text in (PROGRAM, PROGRAM + "\n")]
    assert [kernel.origin for kernel in kernels] == ["compiled", "compiled"]
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(core).origin == "memory"
        assert core.recall(PROGRAM, None, "host", None) is not None
    counted = core._counters.snapshot()
    assert counted["fallbacks"] == 2
    assert counted["fallbacks_unavailable"] + counted.get("fallbacks_breaker_open", 0) == 2


def test_an_integrity_error_is_no_reason_to_fall_back(
    fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    service.change_signed = lambda signed: type(signed)(signed.payload, bytes(64), signed.key_id)
    with pytest.raises(kcache.IntegrityError):
        new_client(fake.address, strict=False).compile(PROGRAM)


def test_a_draining_server_is_asked_again(client: kcache.Client, service: FakeService) -> None:
    rejections = iter([True, True, False])

    def bend(reply: Any) -> Any:
        if next(rejections, False):
            raise Rejection(grpc.StatusCode.UNAVAILABLE, "shutting down", "UNAVAILABLE")
        return reply

    service.bend["CountSpecs"] = bend
    assert client.count() == 0
    assert service.calls["CountSpecs"] == 3


@pytest.mark.issue(number=19, point=28)
@pytest.mark.parametrize("address", ["127.0.0.1:1", "unix:/nowhere/kcache.sock", "127.0.0.1:1,127.0.0.1:2"])
def test_a_refused_connection_is_tried_once(address: str, cache_dir: Path) -> None:
    """However long a server that says nothing would be waited for."""
    core = Core(without_grace(address, cache_dir, grace_period_new=3600.0), BlockingIo())
    with pytest.raises(kcache.Unavailable, match="does not answer"):
        compiled(core)
    assert "retries" not in core._counters.snapshot()


@pytest.mark.issue(number=19, point=28)
def test_a_server_that_answered_before_is_waited_for_when_it_rejects(
    fake: FakeServer, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(without_grace(fake.address, cache_dir, grace_period_known=3600.0), BlockingIo())
    compiled(core)
    fake.stop()
    pauses: list[float] = []

    async def sleep(self: BlockingIo, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            fake.start()

    monkeypatch.setattr(BlockingIo, "sleep", sleep)
    assert compiled(core, PROGRAM + "\n").origin == "compiled"
    assert len(pauses) >= 3

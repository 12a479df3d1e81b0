"""Failures that are remembered, uses that are written down, namespaces that are looked up."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kcache_grpc import errors
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.model.signing import Signed
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.service.audit.recorder import AuditRecorder, Callers
from kcache_grpc.service.failures import Failures, as_error, lasting
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller, Found, KnownGraph, KnownKernel, Missing
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.saved_time import caller_usage
from kcache_grpc.storage.records import UsageDelta

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def name(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_what_would_fail_again_is_remembered_with_all_it_said(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        failures = Failures(store, threads, ttl=100)
        namespace = store.get_or_create_namespace("default")
        error = errors.UnsupportedOp("no lowering", op="stablehlo.fft", location="line 3")
        await failures.remember(namespace, name("k"), error)
        with pytest.raises(errors.UnsupportedOp) as caught:
            await failures.check(namespace, name("k"))
        assert (caught.value.message, caught.value.op) == ("no lowering", "stablehlo.fft")
        assert caught.value.metadata["location"] == "line 3"
        assert caught.value.metadata["remembered_until"]
        await failures.check(namespace, name("another"))

    run(body())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.CompileFailed("x", stage="lower"), True),
        (errors.CompileFailed("x", signal="SIGSEGV"), True),
        (errors.Unavailable("x", signal="SIGKILL"), False),
        (errors.UnsupportedOp("x"), True),
        (errors.CompileTimeout("x"), True),
        (errors.Unavailable("x"), False),
        (errors.ResourceExhausted("x"), False),
        (errors.InvalidProgram("x"), False),
        (errors.KcacheError("x"), False),
    ],
)
def test_what_lasts(error: errors.KcacheError, expected: bool) -> None:
    assert lasting(error) is expected


def test_a_long_diagnostic_is_remembered_from_its_end(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        failures = Failures(store, threads, ttl=100)
        namespace = store.get_or_create_namespace("default")
        error = errors.CompileFailed("m", stage="lower", diagnostic="x" * 100_000 + "the end")
        await failures.remember(namespace, name("k"), error)
        (record,) = (await failures.find(namespace, [name("k")])).values()
        again = as_error(record)
        assert isinstance(again, errors.CompileFailed)
        assert again.stage == "lower"
        assert again.diagnostic.endswith("the end")

    run(body())


def kernel(text: str) -> KnownKernel:
    return KnownKernel(name(text), Signed(b"", b"", b""), (), compile_us=1000)


TOOLCHAINS = Toolchains(Toolchain((("llvm", "22"),)), Toolchain((("ptxas", "13"),)))
GRAPH = KnownGraph(name("program"), 1, name("spec"), "f32[4]", Signed(b"", b"", b""))


def test_uses_are_written_in_batches_with_what_they_saved(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        recorder = AuditRecorder(store, threads, TOOLCHAINS)
        namespace = store.get_or_create_namespace("default")
        for _ in range(3):
            caller = Caller(request_id="r", client="c", actor="ada", job="j")
            recorder.served(namespace, caller, GRAPH, kernel("k"), "stored")
        assert not store.find_usage(namespace, "kernel", [name("k")])
        await recorder.close()
        usage = store.find_usage(namespace, "kernel", [name("k")])[name("k")]
        assert (usage.hits, usage.saved_us) == (3, 3000)
        events = [record.event for record in store.list_audit(namespace)]
        assert [event.kind for event in events] == ["serve"] * 3
        assert (events[0].request_id, events[0].actor, events[0].job, events[0].key) == ("r", "ada", "j", 1)
        assert events[0].detail == '{"client": "c"}'

    run(body())


def test_events_name_the_toolchain_of_their_target(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        recorder = AuditRecorder(store, threads, TOOLCHAINS)
        namespace = store.get_or_create_namespace("default")
        for target in (CpuTarget("x86-64-v3"), GpuTarget("sm_90")):
            recorder.looked_up(namespace, Caller(), target, [GRAPH.program_digest], [Missing(None)])
            recorder.served(namespace, Caller(), GRAPH, kernel("k"), "stored", target)
        await recorder.close()
        events = [record.event for record in store.list_audit(namespace)]
        digests = [TOOLCHAINS.cpu.digest] * 2 + [TOOLCHAINS.gpu.digest] * 2
        assert [event.toolchain for event in events] == digests

    run(body())


def test_busy_moments_have_one_event_for_equal_requests(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        recorder = AuditRecorder(store, threads, TOOLCHAINS)
        namespace = store.get_or_create_namespace("default")
        target = CpuTarget("x86-64-v3")
        missing = name("missing")
        for turn in range(150):
            caller = Caller(request_id=f"r{turn}", client="c", actor="ada" if turn % 3 else "bob")
            results = [Found(GRAPH, kernel("k")), Missing(None)]
            recorder.looked_up(namespace, caller, target, [GRAPH.program_digest, missing], results)
        assert recorder.waiting == 300
        await recorder.flush()
        assert recorder.waiting == 0
        events = [record.event for record in store.list_audit(namespace)]
        counted = {(event.kind, event.outcome, event.actor): event.request_count for event in events}
        assert counted == {
            ("serve", "hit", "ada"): 100,
            ("serve", "hit", "bob"): 50,
            ("miss", "need_program", "ada"): 100,
            ("miss", "need_program", "bob"): 50,
        }
        ids = {event.kind + event.actor: json.loads(event.detail)["request_ids"] for event in events}
        assert sorted(ids["serveada"] + ids["servebob"]) == sorted(f"r{turn}" for turn in range(150))
        assert sum(event.saved_us for event in events) == 150 * 1000
        assert store.find_usage(namespace, "kernel", [name("k")])[name("k")].hits == 150

    run(body())


def test_what_a_full_queue_drops_is_counted_and_written_down(
    store: Store, threads: StoreThreads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        monkeypatch.setattr("kcache_grpc.service.audit.recorder.MOST_WAITING", 3)
        recorder = AuditRecorder(store, threads, TOOLCHAINS)
        namespace = store.get_or_create_namespace("default")
        for _ in range(5):
            recorder.served(namespace, Caller(), GRAPH, kernel("k"), "stored")
        assert (recorder.dropped, recorder.waiting) == (2, 3)
        await recorder.flush()
        events = [record.event for record in store.list_audit(namespace)]
        assert [(event.kind, event.request_count) for event in events] == [("serve", 1)] * 3 + [("drop", 2)]
        recorder.served(namespace, Caller(), GRAPH, kernel("k"), "stored")
        assert (recorder.dropped, recorder.waiting) == (2, 1)
        assert "2 requests are not written" in caplog.text

    run(body())


def test_the_task_writes_by_itself(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        recorder = AuditRecorder(store, threads, TOOLCHAINS)
        recorder.start()
        namespace = store.get_or_create_namespace("default")
        recorder.served(namespace, Caller(), GRAPH, kernel("k"), "stored")
        while not store.find_usage(namespace, "kernel", [name("k")]):  # noqa: ASYNC110 - another thread writes
            await asyncio.sleep(0.01)
        await recorder.close()

    run(body())


def test_what_cannot_be_written_waits(store: Store, threads: StoreThreads, tmp_path: Path) -> None:
    async def body() -> None:
        namespace = store.get_or_create_namespace("default")
        broken = open_store(f"sqlite:///{tmp_path}/store.sqlite")
        broken.close()
        recorder = AuditRecorder(broken, threads, TOOLCHAINS)
        recorder.served(namespace, Caller(), GRAPH, kernel("k"), "stored")
        await recorder.flush()
        assert recorder.waiting == 1
        recorder._store = store  # pyright: ignore[reportPrivateUsage]
        await recorder.flush()
        assert recorder.waiting == 0
        assert store.find_usage(namespace, "kernel", [name("k")])[name("k")].hits == 1

    run(body())


def test_an_epoch_is_checked_once_a_second(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        now = [0.0]
        namespaces = Namespaces(store, threads, max_age=1.0, clock=lambda: now[0])
        first = store.get_or_create_namespace("default")
        assert await namespaces.get("default") == first
        store.raise_epoch(first)
        now[0] = 0.9
        assert (await namespaces.get("default")).epoch == 1
        now[0] = 1.0
        assert (await namespaces.get("default")).epoch == 2

    run(body())


def test_a_toolchain_for_gpus_is_disowned_alone(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        namespaces = Namespaces(store, threads, toolchains=TOOLCHAINS.digests)
        store.disown_toolchain(store.get_or_create_namespace("default"), TOOLCHAINS.gpu.digest)
        namespace = await namespaces.serving("default", TOOLCHAINS.cpu.digest)
        with pytest.raises(errors.PermissionDenied):
            await namespaces.serving("default", TOOLCHAINS.gpu.digest)
        store.readmit_toolchain(namespace, TOOLCHAINS.gpu.digest)
        namespaces.forget(namespace.id)
        assert await namespaces.serving("default", TOOLCHAINS.gpu.digest)

    run(body())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", ["", "A", "a b", "-a", ".a", "a/b", "a" * 129, "ä", "a\n"])
def test_names_that_are_none(store: Store, threads: StoreThreads, text: str) -> None:
    with pytest.raises(errors.ArgumentError):
        run(Namespaces(store, threads).get(text))
    assert len(store.list_namespaces()) <= 1


@pytest.mark.issue(number=20, point=6)
def test_what_hits_saved_is_summed_by_caller(store: Store, threads: StoreThreads) -> None:
    async def body() -> None:
        recorder = AuditRecorder(store, threads, TOOLCHAINS)
        namespace = store.get_or_create_namespace("default")
        outcomes = [Found(GRAPH, kernel("k")), Missing(None), Found(GRAPH, kernel("l"))]
        ada = Caller(actor="ada", job="j")
        recorder.looked_up(namespace, ada, CpuTarget("x86-64-v3"), [GRAPH.program_digest] * 3, outcomes)
        recorder.looked_up(namespace, Caller(), CpuTarget("x86-64-v3"), [name("p")], [Missing(None)])
        recorder.served(namespace, ada, GRAPH, kernel("k"), "stored")
        recorder.served(namespace, Caller(actor="bob"), GRAPH, kernel("k"), "joined")
        await recorder.close()
        savings = store.list_savings(namespace, 10)
        assert [(each.actor, each.job, each.hits, each.saved_us) for each in savings] == [
            ("ada", "j", 3, 3000),
            ("bob", "", 1, 1000),
        ]
        assert all(each.last_used_at > 0 for each in savings)
        assert store.stats(namespace).saved_us == 4000

    run(body())


@pytest.mark.issue(number=20, point=6)
def test_callers_beyond_the_bound_have_no_row_of_their_own(store: Store) -> None:
    namespace = store.get_or_create_namespace("default")
    other = store.get_or_create_namespace("other")
    for number in range(8):
        # A server of its own each time: what others have written counts, too.
        callers = Callers(most=5)
        uses = [caller_usage("ada", str(number), 1, 10, 1), UsageDelta("kernel", name("k"), 1, 10, 1)]
        store.add_usage(namespace, callers.bounded(store, namespace, uses))
        store.add_usage(other, callers.bounded(store, other, uses[:1]) if number == 0 else [])
    savings = store.list_savings(namespace, 100)
    assert {(each.actor, each.job): each.saved_us for each in savings} == {
        ("", ""): 30,
        **{("ada", str(number)): 10 for number in range(5)},
    }
    assert store.find_usage(namespace, "kernel", [name("k")])[name("k")].hits == 8
    assert len(store.list_savings(other, 100)) == 1

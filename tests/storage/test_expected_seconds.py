"""Estimates of compile times from what a store has, in memory, on SQLite and on Postgres."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.model.options import Options
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.service.compile.estimates import Basis, Estimate, Estimates, Subject
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import KernelRequirements
from kcache_grpc.storage.records import SpecDraft
from tests.storage.drafts import kernel, sha256

pytestmark = pytest.mark.issue(number=20, point=6)

TOOLCHAINS = Toolchains(Toolchain((("llvm", "22"),)), Toolchain((("ptxas", "13"),)))
REQUIREMENTS = KernelRequirements(CpuTarget("x86-64-v3"), Options())


def text(operations: int, name: str = "tanh") -> str:
    lines = "".join(f"%{number} = {name} a0[0] : f32[s0]\n" for number in range(operations))
    return f"kcache.spec v1\narg a0 f32[s0]\n{lines}return a0[0]\n"


@pytest.fixture
def threads():
    threads = StoreThreads(1)
    yield threads
    threads.close()


@pytest.fixture
def estimate(store, ns, threads):
    """The estimate of a subject; a service of its own for each, so that nothing is remembered."""

    def ask(subject: Subject, requirements: KernelRequirements = REQUIREMENTS) -> Estimate:
        return asyncio.run(Estimates(store, threads, TOOLCHAINS).estimate(ns, subject, requirements))

    return ask


@pytest.fixture
def publish(store, ns):
    """Stores a spec, and kernels of it that took so many seconds."""
    numbers = iter(range(10_000))

    def put(content: str, *seconds: float, **changes: object) -> int:
        stored = store.put_spec(ns, SpecDraft(sha256(content), content, "default", canonicalizer=1))
        for taken in seconds:
            draft = kernel(next(numbers), stored.key)
            draft = replace(draft, compile_us=round(taken * 1e6), kernel=replace(draft.kernel, **changes))
            store.publish_kernel(ns, draft)
        return stored.key

    return put


def test_nothing_is_known_of_an_empty_namespace(estimate, publish):
    assert estimate(Subject(text=text(5))) == Estimate(None, Basis.NO_HISTORY)
    key = publish(text(5))
    assert estimate(Subject(key)) == Estimate(None, Basis.NO_HISTORY)


def test_the_same_spec_is_its_own_history(estimate, publish):
    key = publish(text(5), 1.0, 9.0, 2.0)
    publish(text(6), 50.0)
    assert estimate(Subject(key)) == Estimate(2.0, Basis.SAME_SPEC, 3)


def test_kernels_most_like_the_request_count(estimate, publish):
    key = publish(text(5), 8.0, target="aarch64")
    assert estimate(Subject(key)).seconds == 8.0
    publish(text(5), 4.0, options="numerics=strict")
    assert estimate(Subject(key)).seconds == 4.0
    publish(text(5), 2.0, options=str(REQUIREMENTS.options))
    assert estimate(Subject(key)).seconds == 2.0
    publish(text(5), 1.0, options=str(REQUIREMENTS.options), toolchain=TOOLCHAINS.cpu.digest)
    assert estimate(Subject(key)) == Estimate(1.0, Basis.SAME_SPEC, 1)


def test_earlier_epochs_are_history(store, ns, threads, publish):
    key = publish(text(5), 3.0)
    raised = store.raise_epoch(ns)
    estimated = asyncio.run(
        Estimates(store, threads, TOOLCHAINS).estimate(raised, Subject(key), REQUIREMENTS)
    )
    assert estimated == Estimate(3.0, Basis.SAME_SPEC, 1)


def test_other_specs_are_extrapolated_by_operations(estimate, publish):
    for operations in (10, 20, 40, 80):
        publish(text(operations), 0.5 + operations * 0.01)
    estimated = estimate(Subject(text=text(160)))
    assert estimated.seconds == pytest.approx(2.1, rel=0.01)
    assert (estimated.basis, estimated.samples) == (Basis.NEAREST_SPECS, 4)
    key = publish(text(60))
    assert estimate(Subject(key)).seconds == pytest.approx(1.1, rel=0.01)


def test_single_slow_compiles_do_not_count(estimate, publish):
    for operations in range(10, 90, 10):
        publish(text(operations), 100.0 if operations == 40 else operations * 0.01)
    assert estimate(Subject(text=text(45))).seconds == pytest.approx(0.45, rel=0.15)


def test_a_large_program_is_never_expected_to_take_less_than_nothing(estimate, publish):
    publish(text(10), 2.0)
    publish(text(20), 1.0)  # the other way round: no slope is taken from that
    assert estimate(Subject(text=text(1000))).seconds == pytest.approx(1.5)
    assert estimate(Subject(text=text(1))).seconds == pytest.approx(1.5)


def test_one_count_of_operations_is_scaled_within_bounds(estimate, publish):
    publish(text(9), 1.0)
    assert estimate(Subject(text=text(19))).seconds == pytest.approx(2.0)
    assert estimate(Subject(text=text(999))).seconds == pytest.approx(8.0)
    assert estimate(Subject(text=text(0, "x"))).seconds == pytest.approx(0.125)


def test_the_nearest_sizes_are_read_and_no_more(store, estimate, publish, monkeypatch):
    for operations in range(1, 120):
        publish(text(operations), operations * 0.1)
    asked: list[int] = []
    read = type(store).list_compile_times

    def counted(self, namespace, key, target, limit):
        asked.append(key)
        return read(self, namespace, key, target, limit)

    monkeypatch.setattr(type(store), "list_compile_times", counted)
    estimated = estimate(Subject(text=text(60)))
    assert estimated.seconds == pytest.approx(6.0, rel=0.02)
    assert len(asked) == estimated.samples == 16
    assert all(abs(key - 60) <= 9 for key in asked)

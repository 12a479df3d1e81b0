"""What clients send is read in a process of its own: its crash, its hang and its bombs harm nobody else."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from benchmarks.adversary.inputs import alias_bomb
from kcache_grpc import errors
from kcache_grpc.worker import WorkerPool, WorkerSettings, codec
from kcache_grpc.worker import pool as pool_module
from kcache_grpc.worker.frames import Frame
from tests.worker import mutations

SETTINGS = WorkerSettings(
    memory_bytes=2 << 30, jobs="isolated_jobs", extra_path=(str(Path(__file__).parent),)
)
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@asynccontextmanager
async def pool(settings: WorkerSettings = SETTINGS, compilers: int = 1) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(compilers, settings=settings)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def ignore(stage: str) -> None:
    pass


async def compile(pool: WorkerPool, type: str, timeout: float = 240, **header: Any) -> Frame:
    return await pool.compile(Frame({"type": type, **header}), timeout, ignore)


@pytest.mark.issue(number=19, point=11)
def test_a_crash_while_reading_ends_its_own_process_only() -> None:
    async def body() -> None:
        async with pool() as p:
            before = (await compile(p, "who")).header
            with pytest.raises(errors.CompileFailed, match=r"died in stage parse: SIGSEGV") as caught:
                await compile(p, "read", how="segfault")
            assert "last words" in caught.value.diagnostic
            assert (await compile(p, "who")).header == before
            assert p.restarts == 0

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_reads_give_way_to_compiles_and_both_to_the_service() -> None:
    async def body() -> None:
        async with pool() as p:
            compiles = (await compile(p, "rank")).header
            reads = (await compile(p, "rank_of_read")).header
            assert compiles["niceness"] == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
            assert reads["niceness"] == 19
            if sys.version_info >= (3, 11):  # Linux compares niceness within a session only
                assert compiles["session"] == reads["session"] == os.getsid(0)

    run(body())


@pytest.mark.issue(number=19, point=11)
def test_no_read_shares_memory_with_another() -> None:
    async def body() -> None:
        async with pool() as p:
            first = await compile(p, "read", how="remember")
            second = await compile(p, "read", how="remember")
            assert first.header["count"] == second.header["count"] == 1
            assert first.header["pid"] != second.header["pid"]

    run(body())


@pytest.mark.issue(number=19, point=11)
def test_an_innocent_job_that_crashes_after_another_runs_again_alone() -> None:
    """The first job corrupts the process; the second dies of it, and is right in a worker of its own."""

    async def body() -> None:
        async with pool() as p:
            await compile(p, "corrupt")
            assert (await compile(p, "innocent")).type == "result"
            with pytest.raises(errors.CompileFailed, match="SIGSEGV"):
                await compile(p, "guilty")

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_a_cancelled_read_frees_its_worker_at_once() -> None:
    async def body() -> None:
        async with pool() as p:
            before = (await compile(p, "who")).header
            started = asyncio.Event()
            job = Frame({"type": "read", "how": "hang"})
            task = asyncio.create_task(p.compile(job, 240, lambda stage: started.set()))
            await asyncio.wait_for(started.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await compile(p, "who")).header == before
            assert p.restarts == 0

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_a_read_that_hangs_ends_at_its_time_limit_and_its_worker_goes_on() -> None:
    async def body() -> None:
        async with pool() as p:
            before = (await compile(p, "who")).header
            with pytest.raises(errors.CompileTimeout, match=r"stage parse passed the time limit of 0\.3 s"):
                await compile(p, "read", timeout=0.3, how="hang")
            assert (await compile(p, "who")).header == before

    run(body())


def reads(pool: WorkerPool, caller: str, count: int) -> list[asyncio.Task[Frame]]:
    """Reads that never end."""
    job = Frame({"type": "read", "how": "hang"})
    return [asyncio.create_task(pool.canonicalize(job, 240, caller)) for _ in range(count)]


async def read_by(pool: WorkerPool, caller: str) -> str:
    """The type of the reply to a read that ends."""
    reading = pool.canonicalize(Frame({"type": "read", "how": "remember"}), 240, caller)
    return (await asyncio.wait_for(reading, 60)).type


async def end(tasks: list[asyncio.Task[Frame]]) -> None:
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


@pytest.mark.issue(number=19, point=10)
def test_the_last_idle_worker_is_left_to_other_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn ends within this test: who waited for one would wait for ever."""
    monkeypatch.setattr(pool_module, "_FIRST_SLICE", 1e6)

    async def body() -> None:
        async with pool() as p:
            attack = reads(p, "attacker", 5)
            await asyncio.sleep(0)
            assert (p.counters()["workers_busy"], p.counters()["jobs_waiting"]) == (1, 4)
            for _ in range(2):
                assert await read_by(p, "other") == "result"
                reply = await p.compile(Frame({"type": "who"}), 240, ignore, "other")
                assert reply.type == "result"
                # What became idle meanwhile was not given to the attacker either.
                assert (p.counters()["workers_busy"], p.counters()["jobs_waiting"]) == (1, 4)
            await end(attack)
            assert p.restarts == 0

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_a_read_does_not_give_way_to_callers_that_may_not_have_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn that ends at once would begin again for ever."""
    monkeypatch.setattr(pool_module, "_FIRST_SLICE", 0.0)

    async def body() -> None:
        async with pool() as p:
            attack = reads(p, "attacker", 5)
            await asyncio.sleep(0)
            assert await read_by(p, "other") == "result"
            assert not any(task.done() for task in attack)
            await end(attack)

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_a_compile_takes_its_worker_back_from_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_FIRST_SLICE", 1e6)

    async def body() -> None:
        async with pool() as p:
            attack = [*reads(p, "one", 1), *reads(p, "two", 1)]
            await asyncio.sleep(0)
            assert p.counters()["workers_busy"] == 2
            reply = await asyncio.wait_for(p.compile(Frame({"type": "who"}), 240, ignore, "other"), 60)
            assert reply.type == "result"
            assert not any(task.done() for task in attack)
            await end(attack)
            assert p.restarts == 0

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_of_a_caller_with_two_workers_one_read_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with one worker each keep it: their turns do not end within this test."""
    monkeypatch.setattr(pool_module, "_FIRST_SLICE", 1e6)
    monkeypatch.setattr(pool_module, "_SHARED", 0.0)

    async def body() -> None:
        async with pool(compilers=2) as p:
            both = [p.compile(Frame({"type": "who"}), 240, ignore) for _ in range(2)]
            await asyncio.gather(*both)
            await asyncio.gather(*p._starting)
            assert p.counters()["workers"] == 3
            attack = reads(p, "attacker", 2)
            single = reads(p, "single", 1)
            await asyncio.sleep(0)
            assert p.counters()["workers_busy"] == 3
            assert await read_by(p, "other") == "result"
            assert not any(task.done() for task in (*attack, *single))
            await end([*attack, *single])
            assert p.restarts == 0

    run(body())


@pytest.mark.long
@pytest.mark.issue(number=19, point=10)
def test_an_attribute_of_shared_parts_cannot_be_printed_for_ever() -> None:
    bomb = alias_bomb(levels=26)
    assert len(bomb) < 1000

    async def body() -> None:
        async with pool(WorkerSettings(memory_bytes=4 << 30)) as p:
            job = codec.canonicalize_job(bomb, "stablehlo", "default", {}, 60.0)
            with pytest.raises((errors.CompileTimeout, errors.ResourceExhausted)) as caught:
                await p.canonicalize(job, 60.0)
            assert caught.value.metadata["stage"] == "read"
            assert p.restarts == 0

    run(body())


@pytest.mark.issue(number=19, point=11)
@pytest.mark.parametrize("count", [60, pytest.param(20_000, marks=pytest.mark.long)])
def test_mutated_bytecode_harms_no_valid_program(count: int) -> None:
    """The first sixty of this seed include crashes of the readers."""
    outcome = run(mutations.run(count, seed=1))
    assert outcome.programs == count
    assert outcome.innocent == count // 20
    assert outcome.harmed == []
    assert outcome.worker_restarts == 0
    assert any("SIG" in answer for answer in outcome.answers), outcome.answers


def test_seeds_are_valid() -> None:
    seeds = mutations.seeds()
    assert {format for format, _ in seeds} == {"stablehlo", "linalg", "torch"}
    assert all(body.startswith(b"ML\xef") for _, body in seeds)


@pytest.mark.issue(number=19, point=10)
def test_a_long_read_gives_its_worker_to_other_callers() -> None:
    """Reads that never end hold all workers; another caller's read does not wait for them."""

    async def body() -> None:
        async with pool() as p:
            job = Frame({"type": "read", "how": "hang"})
            endless = [asyncio.create_task(p.canonicalize(job, 240, "one")) for _ in range(5)]
            reply = await p.canonicalize(Frame({"type": "read", "how": "remember"}), 240, "another")
            assert reply.header["count"] == 1
            assert not any(task.done() for task in endless)
            assert p.restarts == 0
            for task in endless:
                task.cancel()
            await asyncio.gather(*endless, return_exceptions=True)

    run(body())

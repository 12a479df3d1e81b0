"""A worker that crashes, hangs or eats memory costs its own request only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kcache_grpc import errors
from kcache_grpc.worker import WorkerPool, WorkerSettings
from kcache_grpc.worker.frames import Frame

PATH = str(Path(__file__).parent)
SETTINGS = WorkerSettings(memory_bytes=2 << 30, jobs="misbehaving_jobs", extra_path=(PATH,))
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@asynccontextmanager
async def pool(compilers: int = 1, **rest: Any) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(compilers, settings=SETTINGS, **rest)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def ignore(stage: str) -> None:
    pass


async def compile(pool: WorkerPool, type: str, timeout: float = 240, **header: Any) -> Frame:
    return await pool.compile(Frame({"type": type, **header}, (b"x" * 100,)), timeout, ignore)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes signal nothing
        await asyncio.sleep(0.005)


def test_a_job_gets_its_blobs_and_replies_with_blobs() -> None:
    async def body() -> None:
        async with pool() as p:
            blobs = (b"", bytes(range(256)) * 8192, b"tail")
            reply = await p.compile(Frame({"type": "echo"}, blobs), 60, ignore)
            assert reply.blobs == blobs
            assert reply.header["nice"] == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
            assert p.toolchains.cpu.ingredients == (("compiler", "none"), ("pid", ""))
            assert p.toolchains.gpu.ingredients == (("assembler", "none"),)
            assert p.canonicalizer == 7

    run(body())


@pytest.mark.issue(number=19, point=27)
def test_workers_start_on_demand(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def body() -> None:
        async with pool(compilers=3) as p:
            assert len(p.pids) == 2  # a compiler and a parser
            for _ in range(3):
                await compile(p, "echo")
            assert len(p.pids) == 2
            waiting = asyncio.gather(*(compile(p, "gate", gate=str(gate)) for _ in range(3)))
            await until(lambda: len(p.pids) == 4)
            gate.touch()
            await waiting
            await asyncio.gather(*(compile(p, "echo") for _ in range(9)))
            assert len(p.pids) == 4

    run(body())


def test_stages_arrive_in_order_before_the_reply() -> None:
    async def body() -> None:
        seen: list[str] = []
        async with pool() as p:
            names = [f"stage{i}" for i in range(50)]
            await p.compile(Frame({"type": "stages", "stages": names}), 60, seen.append)
            assert seen == names

    run(body())


def test_what_native_code_prints_does_not_disturb_the_channel() -> None:
    async def body() -> None:
        async with pool() as p:
            assert (await compile(p, "noise")).blobs == (b"x" * 100,)

    run(body())


def test_a_worker_sees_nothing_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCACHE_TOKEN", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")

    descriptor = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(descriptor, True)

    async def body() -> None:
        async with pool() as p:
            seen = (await compile(p, "look")).header
        assert not {"KCACHE_TOKEN", "OMP_NUM_THREADS"} & set(seen["environment"])
        assert seen["environment"]["CUDA_HOME"] == "/opt/cuda"  # where ptxas is
        assert "/dev/zero" not in seen["descriptors"]
        assert seen["main"] == "kcache_grpc.worker.__main__"

    run(body())
    os.close(descriptor)


@pytest.mark.parametrize("signal", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_a_crash_fails_its_own_request_and_names_stage_and_signal(signal: str) -> None:
    async def body() -> None:
        async with pool(compilers=2) as p:
            crashed, fine = await asyncio.gather(
                compile(p, "crash", signal=signal), compile(p, "echo"), return_exceptions=True
            )
            assert isinstance(fine, Frame)
            assert isinstance(crashed, errors.CompileFailed)
            assert crashed.stage == "lower"
            assert crashed.metadata["signal"] == signal
            assert "the last words" in crashed.diagnostic
            assert isinstance(await compile(p, "echo"), Frame)

    run(body())


def test_a_job_whose_worker_is_killed_is_given_to_another_one_once() -> None:
    """A job that kills its worker each time: the second death is told, and blamed on nobody's program."""

    async def body() -> None:
        async with pool(compilers=2) as p:
            with pytest.raises(errors.Unavailable, match="ended from outside in stage lower: SIGKILL"):
                await compile(p, "crash", signal="SIGKILL")
            assert p.restarts == 2
            assert isinstance(await compile(p, "echo"), Frame)

    run(body())


def test_a_wild_pointer_is_a_crash_like_any_other() -> None:
    async def body() -> None:
        async with pool() as p:
            with pytest.raises(errors.CompileFailed, match="SIGSEGV"):
                await compile(p, "segfault")
            assert isinstance(await compile(p, "echo"), Frame)
            assert p.restarts == 1

    run(body())


def test_an_exit_is_a_crash_too() -> None:
    async def body() -> None:
        async with pool() as p:
            with pytest.raises(errors.CompileFailed, match="exit status 3"):
                await compile(p, "leave")
            assert isinstance(await compile(p, "echo"), Frame)

    run(body())


def test_a_hang_ends_at_its_time_limit_with_all_its_children() -> None:
    async def body() -> None:
        async with pool() as p:
            before = set(p.pids)
            with pytest.raises(errors.CompileTimeout) as caught:
                await compile(p, "hang", timeout=4.0)
            assert caught.value.metadata["stage"] == "bufferize"
            assert isinstance(await compile(p, "echo"), Frame)
            assert not set(p.pids) >= before
        await until(lambda: not any(group_lives(pid) for pid in before))

    run(body())


def test_memory_is_limited_and_says_so() -> None:
    async def body() -> None:
        async with pool() as p:
            with pytest.raises(errors.ResourceExhausted) as caught:
                await compile(p, "eat")
            assert caught.value.metadata["limit"] == "worker_memory_bytes"
            assert isinstance(await compile(p, "echo"), Frame)

    run(body())


def test_typed_errors_and_bugs_travel() -> None:
    async def body() -> None:
        async with pool() as p:
            with pytest.raises(errors.InvalidProgram) as rejected:
                await compile(p, "reject")
            assert rejected.value.metadata == {"line": "3"}
            with pytest.raises(errors.CompileFailed) as failed:
                await compile(p, "bug")
            assert failed.value.stage == "fuse"
            assert failed.value.diagnostic == "ZeroDivisionError: a bug"
            assert p.restarts == 0

    run(body())


def test_parsing_does_not_wait_behind_compiles(tmp_path: Path) -> None:
    async def body() -> None:
        async with pool() as p:
            gate = tmp_path / "gate"
            stages: list[str] = []
            job = Frame({"type": "gate", "gate": str(gate)})
            long = [asyncio.create_task(p.compile(job, 60, stages.append)) for _ in range(3)]
            await until(lambda: bool(stages))
            for _ in range(3):
                assert await p.canonicalize(Frame({"type": "echo"}), 60)
            assert not any(task.done() for task in long)
            gate.touch()
            await asyncio.gather(*long)

    run(body())


def test_a_parsing_job_is_dropped_when_it_is_not_needed_once_there_is_a_worker(tmp_path: Path) -> None:
    async def body() -> None:
        async with pool() as p:
            gate, asked = tmp_path / "gate", list[tuple[bool, bool]]()
            holding = Frame({"type": "gate", "gate": str(gate)})
            held = [asyncio.create_task(p.compile(holding, 60, ignore))]
            held.append(asyncio.create_task(p.canonicalize(holding, 60)))
            await until(lambda: p.counters()["workers_busy"] == 2)

            async def needed(answer: bool, waited: bool) -> bool:
                asked.append((answer, waited))
                return answer

            def ask(answer: bool) -> asyncio.Task[Frame | None]:
                echo = Frame({"type": "echo"}, (b"x",))
                return asyncio.create_task(p.canonicalize_if(echo, 60, partial(needed, answer)))

            dropped, done = ask(False), ask(True)
            await until(lambda: p.counters()["jobs_waiting"] == 2)
            gate.touch()
            await asyncio.gather(*held)
            assert await dropped is None
            reply = await done
            assert reply is not None
            assert reply.blobs == (b"x",)
            assert sorted(asked) == [(False, True), (True, True)]
            assert await ask(False) is None
            assert asked[2:] == [(False, False)]

    run(body())


def test_a_worker_is_replaced_after_its_share_of_jobs() -> None:
    async def body() -> None:
        async with pool(jobs_per_worker=3) as p:
            pids = set[int]()
            while len(pids) < 3:
                pids.add((await compile(p, "echo")).header["pid"])
            assert p.restarts == 0

    run(body())


def test_a_worker_at_the_end_of_its_share_has_one_successor_however_often_it_comes_back(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with pool(jobs_per_worker=1) as p:
            gate = tmp_path / "gate"
            holding = Frame({"type": "gate", "gate": str(gate)})
            held = [asyncio.create_task(p.compile(holding, 60, ignore))]
            held.append(asyncio.create_task(p.canonicalize(holding, 60)))
            await until(lambda: p.counters()["workers_busy"] == 2)

            async def needed(_: bool) -> bool:
                return False

            echo = Frame({"type": "echo"}, (b"x",))
            waiting = [asyncio.create_task(p.canonicalize_if(echo, 60, needed)) for _ in range(20)]
            await until(lambda: p.counters()["jobs_waiting"] == 20)
            gate.touch()
            await asyncio.gather(*held)
            assert await asyncio.gather(*waiting) == [None] * 20
            assert len(p._starting) <= 2

    run(body())


def test_a_worker_killed_while_idle_is_replaced() -> None:
    async def body() -> None:
        async with pool() as p:
            pids = list(p.pids)
            for pid in pids:
                os.kill(pid, 9)
            await until(lambda: not any(worker_alive(pid) for pid in pids))
            assert isinstance(await compile(p, "echo"), Frame)
            assert isinstance(await p.canonicalize(Frame({"type": "echo"}), 60), Frame)

    run(body())


def test_workers_of_another_version_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with pool() as p:
            pids = list(p.pids)
            monkeypatch.setenv("CUDA_HOME", "older")
            for pid in pids:
                os.kill(pid, 9)
            await until(lambda: not any(worker_alive(pid) for pid in pids))
            waiting = asyncio.ensure_future(compile(p, "echo"))
            await until(lambda: "changed under a running service" in caplog.text)
            monkeypatch.delenv("CUDA_HOME")
            assert isinstance(await waiting, Frame)

    run(body())


def state_and_group(pid: int | str) -> tuple[str, int]:
    """Of a process; of one that is gone those of a zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state, _, group, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return state, int(group)
    return "Z", 0


def worker_alive(pid: int) -> bool:
    return state_and_group(pid)[0] != "Z"


def group_lives(pid: int) -> bool:
    states = (state_and_group(path.name) for path in Path("/proc").glob("[0-9]*"))
    return any(group == pid and state != "Z" for state, group in states)


def test_a_cancelled_job_frees_its_place() -> None:
    async def body() -> None:
        async with pool() as p:
            task = asyncio.create_task(compile(p, "hang"))
            waiting = asyncio.create_task(compile(p, "echo"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert isinstance(await waiting, Frame)

    run(body())


def test_a_closed_pool_rejects_work_and_leaves_no_process() -> None:
    async def body() -> None:
        async with pool() as p:
            pids = p.pids
            running = asyncio.create_task(compile(p, "hang"))
            await asyncio.sleep(0)
        with pytest.raises(errors.Unavailable):
            await running
        with pytest.raises(errors.Unavailable):
            await compile(p, "echo")
        assert not any(worker_alive(pid) for pid in pids)

    run(body())


def test_a_pool_that_closes_before_a_job_begins_rejects_it() -> None:
    async def body() -> None:
        async with pool() as p:

            async def needed(_: bool) -> bool:
                await p.close()
                return True

            with pytest.raises(errors.Unavailable):
                await p.canonicalize_if(Frame({"type": "echo"}, (b"x",)), 60, needed)

    run(body())


def test_a_compiler_that_does_not_import_is_a_clear_error() -> None:
    async def body() -> None:
        pool = WorkerPool(1, settings=WorkerSettings(jobs="no_such_module"))
        with pytest.raises(errors.Unavailable, match="no_such_module"):
            await pool.start()

    run(body())


def test_workers_die_with_a_killed_parent() -> None:
    script = f"""
import asyncio, os, sys
from kcache_grpc.worker import WorkerPool, WorkerSettings
async def main():
    pool = WorkerPool(1, settings=WorkerSettings(jobs="misbehaving_jobs", extra_path=({PATH!r},)))
    await pool.start()
    print(*pool.pids, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2

    async def gone() -> None:
        await until(lambda: not any(worker_alive(pid) for pid in pids))

    run(gone())

"""Libraries are precompiled once, only while no caller has work, and delay nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kcache_grpc.cli.app import application
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.target import host_target
from kcache_grpc.server import ServerConfig
from kcache_grpc.service.compile.library_precompilation import REST, LibraryPrecompilation
from kcache_grpc.worker import WorkerPool, WorkerSettings, codec
from kcache_grpc.worker import pool as pool_module
from kcache_grpc.worker.child.warm_up import compile_typical_program
from kcache_grpc.worker.frames import Frame
from kcache_grpc.worker.libraries import LibraryDirectory
from tests.server.harness.running import config_in, running
from tests.server.rpcs.test_metrics import scrape

PATH = str(Path(__file__).parent)


class Held:
    """A clock whose ``sleep`` waits until ``wake``."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._awake = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._awake.clear()
        await self._awake.wait()

    def wake(self) -> None:
        self._awake.set()


@pytest.fixture(autouse=True)
def usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that tests share, a process of the lowest priority hardly starts."""
    monkeypatch.setattr(pool_module, "_LOWEST", 1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 240))


@asynccontextmanager
async def precompiling(
    folder: Path, *targets: str
) -> AsyncIterator[tuple[WorkerPool, LibraryPrecompilation, Held]]:
    settings = WorkerSettings(jobs="precompiling_jobs", extra_path=(PATH,), writable=(str(folder),))
    pool, clock = WorkerPool(1, settings=settings), Held()
    await pool.start()
    precompilation = LibraryPrecompilation(pool, targets, clock.sleep)
    try:
        precompilation.start()
        yield pool, precompilation, clock
    finally:
        await precompilation.close()
        await pool.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes signal nothing
        await asyncio.sleep(0.005)


async def compile(pool: WorkerPool) -> None:
    reply = await pool.compile(Frame({"type": "echo"}, (b"job",)), 240, lambda stage: None)
    assert reply.blobs == (b"job",)


def began(folder: Path) -> int:
    return len(list(folder.glob("began-*")))


def warmed_up(folder: Path) -> list[int]:
    """The process ids of workers that warmed up."""
    return [int(file.name.removeprefix("warm-")) for file in folder.glob("warm-*")]


def test_an_idle_service_precompiles_its_targets_in_order(tmp_path: Path) -> None:
    (tmp_path / "open").touch()

    async def body() -> None:
        async with precompiling(tmp_path, str(tmp_path), "unknown", str(tmp_path)) as (
            _,
            precompilation,
            clock,
        ):
            await precompilation.wait()
            assert precompilation.compiled == 6  # a target that fails keeps no other from being compiled
            assert precompilation.preempted == 0
            assert clock.slept == []
            assert began(tmp_path) == 2

    run(body())


def test_a_worker_of_the_pool_warms_up_when_its_libraries_are_precompiled(tmp_path: Path) -> None:
    """The worker that compiles next: the one that precompiled has ended."""

    async def body() -> None:
        async with precompiling(tmp_path, str(tmp_path)) as (pool, precompilation, _):
            await until(lambda: began(tmp_path) == 1)
            assert not warmed_up(tmp_path)
            (tmp_path / "open").touch()
            await precompilation.wait()
            (worker,) = warmed_up(tmp_path)
            assert worker in pool.pids
            assert pool.idle

    run(body())


def test_a_busy_worker_does_not_warm_up(tmp_path: Path) -> None:
    async def body() -> None:
        async with precompiling(tmp_path) as (pool, _, _):
            job = asyncio.create_task(compile(pool))
            await asyncio.sleep(0)  # the job takes the worker
            assert not pool.idle
            assert await pool.compile_if_idle(codec.warm_up_job(str(tmp_path)), 240) is None
            await job
            assert await pool.compile_if_idle(codec.warm_up_job(str(tmp_path)), 240) is not None

    run(body())


def test_the_warm_up_program_has_products_attention_and_a_convolution(tmp_path: Path) -> None:
    libraries = LibraryDirectory(tmp_path)
    compile_typical_program(str(host_target()), libraries)
    assert len({file.name.partition("-")[0] for file in tmp_path.iterdir()}) >= 2


def test_a_job_of_a_caller_ends_it_at_once_and_it_goes_on_later(tmp_path: Path) -> None:
    async def body() -> None:
        async with precompiling(tmp_path, str(tmp_path)) as (pool, precompilation, clock):
            await until(lambda: began(tmp_path) == 1)
            await compile(pool)  # although nothing opens the gate
            await until(lambda: clock.slept == [REST])
            assert (precompilation.preempted, precompilation.compiled) == (1, 0)
            (tmp_path / "open").touch()
            clock.wake()
            await precompilation.wait()
            assert (precompilation.preempted, precompilation.compiled) == (1, 3)
            assert began(tmp_path) == 2

    run(body())


def test_closing_ends_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with precompiling(tmp_path, str(tmp_path)) as (pool, precompilation, _):
            await until(lambda: began(tmp_path) == 1)
            await precompilation.close()
            assert precompilation.compiled == 0
            assert pool.idle

    run(body())


def test_a_server_precompiles_its_target_and_counts(tmp_path: Path) -> None:
    with running(config_in(tmp_path, prepare=("host",), metrics="127.0.0.1:0")) as server:

        async def precompiled() -> None:
            await until(lambda: scrape(server)["kcache_libraries_prepared_total", ()] == 3)

        run(precompiled())
        assert scrape(server)["kcache_library_preparations_preempted_total", ()] == 0
    assert len(list((tmp_path / "state" / "libraries").iterdir())) == 3


def test_targets_of_settings(tmp_path: Path) -> None:
    environment = {"KCACHE_STATE_DIR": str(tmp_path)}
    host = str(host_target())
    assert ServerConfig.from_env(environment).precompile_targets == (host,)
    several = {**environment, "KCACHE_PREPARE": "x86-64-v2, aarch64,x86-64-v2"}
    assert ServerConfig.from_env(several).precompile_targets == ("x86-64-v2", "aarch64")
    assert ServerConfig.from_env({**environment, "KCACHE_PREPARE": "none"}).precompile_targets == ()
    assert ServerConfig("sqlite://", tmp_path).precompile_targets == ()


def test_targets_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="x86-64-v9"):
        ServerConfig.from_env({"KCACHE_STATE_DIR": str(tmp_path), "KCACHE_PREPARE": "x86-64-v9"})
    result = CliRunner().invoke(
        application(), ["serve", "--state-dir", str(tmp_path), "--prepare", "x86-64-v9"]
    )
    assert "x86-64-v9" in str(result.exception)

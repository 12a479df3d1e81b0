"""The asynchronous client: the same answers, awaited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from tests.client.conftest import PROGRAM
from tests.client.fake import CONSTANT, FakeServer, FakeService


def make(fake: FakeServer, cache_dir: Path, **settings: Any) -> kcache.aio.Client:
    return kcache.aio.Client(fake.address, cache_dir=cache_dir, strict=True, timeout=120, **settings)


def test_every_operation(fake: FakeServer, cache_dir: Path, service: FakeService) -> None:
    async def main() -> None:
        async with make(fake, cache_dir) as client:
            service.constants = (CONSTANT,)
            assert await client.lookup(PROGRAM) is None
            assert await client.store(PROGRAM) == 1
            kernel = await client.compile(PROGRAM)
            assert (kernel.key, kernel.origin) == (1, "compiled")
            assert (await client.compile(PROGRAM)).origin == "memory"
            assert (await client.normalize(PROGRAM)).text == "kcache default"
            assert await client.count() == 1
            assert (await client.retrieve(1)) == (await client.lookup(PROGRAM))
            assert (await client.stats()).client["memory_kernels"] == 1
            many = await client.compile_many([PROGRAM, PROGRAM + "\n", PROGRAM + "\n\n"])
            assert [kernel.origin for kernel in many] == ["memory", "compiled", "compiled"]
            large = PROGRAM + "//" + "x" * (2 << 20) + "\n"
            assert (await client.compile(large)).origin == "compiled"
        with pytest.raises(kcache.ArgumentError, match="closed"):
            await client.count()

    asyncio.run(main())


def test_many_tasks_make_one_compile(fake: FakeServer, cache_dir: Path, service: FakeService) -> None:
    async def main() -> None:
        async with make(fake, cache_dir) as client:
            kernels = await asyncio.gather(*(client.compile(PROGRAM) for _ in range(32)))
            assert {kernel.key for kernel in kernels} == {1}

    asyncio.run(main())
    assert service.calls["CompileKernel"] == 1


def test_cancelling_the_first_caller_leaves_the_others(
    fake: FakeServer, cache_dir: Path, service: FakeService
) -> None:
    async def main() -> None:
        async with make(fake, cache_dir) as client:
            service.hold.clear()
            begun = asyncio.Event()
            first = asyncio.create_task(client.compile(PROGRAM, on_progress=lambda *_: begun.set()))
            await asyncio.wait_for(begun.wait(), 120)
            others = [asyncio.create_task(client.compile(PROGRAM)) for _ in range(4)]
            for _ in range(5):
                await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            service.hold.set()
            kernels = await asyncio.wait_for(asyncio.gather(*others), 120)
            assert {kernel.key for kernel in kernels} == {1}

    asyncio.run(main())


def test_cancelling_a_waiter_leaves_the_first(
    fake: FakeServer, cache_dir: Path, service: FakeService
) -> None:
    async def main() -> None:
        async with make(fake, cache_dir) as client:
            service.hold.clear()
            begun = asyncio.Event()
            first = asyncio.create_task(client.compile(PROGRAM, on_progress=lambda *_: begun.set()))
            await asyncio.wait_for(begun.wait(), 120)
            waiter = asyncio.create_task(client.compile(PROGRAM))
            for _ in range(5):
                await asyncio.sleep(0)
            waiter.cancel()
            service.hold.set()
            assert (await asyncio.wait_for(first, 120)).key == 1

    asyncio.run(main())


def test_one_client_in_one_loop_after_another(fake: FakeServer, cache_dir: Path) -> None:
    client = make(fake, cache_dir)
    for count in range(3):
        program = PROGRAM + "\n" * count
        assert asyncio.run(client.compile(program)).origin == "compiled"
    asyncio.run(client.close())


def test_errors_are_the_same(fake: FakeServer, cache_dir: Path, service: FakeService) -> None:
    async def main() -> None:
        async with make(fake, cache_dir, server_id="a" * 64) as client:
            with pytest.raises(kcache.IntegrityError):
                await client.compile(PROGRAM)
            with pytest.raises(kcache.ArgumentError):
                await client.compile(PROGRAM, symbols=[(0, 0)])
        async with kcache.aio.Client("127.0.0.1:1", cache_dir=cache_dir, strict=True, timeout=0.5) as client:
            with pytest.raises(kcache.Unavailable):
                await client.count()

    asyncio.run(main())


def test_what_the_sync_client_kept_is_a_hit_here(
    fake: FakeServer, cache_dir: Path, client: kcache.Client
) -> None:
    client.compile(PROGRAM)

    async def main() -> None:
        async with make(fake, cache_dir) as other:
            assert (await other.compile(PROGRAM)).origin == "disk"

    asyncio.run(main())

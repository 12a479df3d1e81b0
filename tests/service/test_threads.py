"""Where calls of the store run."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, nullcontext

import pytest

from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.storage.errors import StoreUnavailable


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_prompt_calls_run_in_the_loop_until_one_waits_for_the_disk():
    clock, reads = Clock(), 7

    def call(seconds: float, read: int = 0) -> bool:
        nonlocal reads
        clock.now += seconds
        reads += read
        return threading.current_thread() is threading.main_thread()

    async def run() -> list[bool]:
        threads = StoreThreads(1, clock, lambda: reads)
        here = [await threads.look(hurry, call, 0.009) for hurry in (nullcontext, nullcontext, None)]
        # It lost its core, or found in memory what another had read.
        here += [await threads.look(nullcontext, call, 0.011) for _ in range(2)]
        here += [await threads.look(nullcontext, call, 0.011, 8) for _ in range(2)]
        clock.now += 1.0
        here += [await threads.look(nullcontext, call, 0.001), await threads(call, 0.0)]
        # So long that it does not matter why.
        here += [await threads.look(nullcontext, call, 0.11) for _ in range(2)]
        threads.close()
        return here

    expected = [True, True, False] + [True, True] + [True, False] + [True, False] + [True, False]
    assert asyncio.run(run()) == expected


def test_who_meets_a_lock_in_the_loop_waits_for_it_in_a_thread():
    hurried: list[bool] = []
    within = threading.local()

    @contextmanager
    def hurry():
        within.now = True
        yield
        within.now = False

    def call() -> str:
        hurried.append(getattr(within, "now", False))
        if hurried[-1]:
            raise StoreUnavailable("locked")
        return "found"

    async def run() -> str:
        threads = StoreThreads(1)
        result = await threads.look(hurry, call)
        threads.close()
        return result

    assert asyncio.run(run()) == "found"
    assert hurried == [True, False]


@pytest.mark.parametrize("hurry", [nullcontext, None])
def test_errors_arrive(hurry):
    def call() -> None:
        raise ValueError("as raised")

    async def run() -> None:
        threads = StoreThreads(1)
        with pytest.raises(ValueError, match="as raised"):
            await threads.look(hurry, call)
        threads.close()

    asyncio.run(run())

"""Where calls of the store run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kcache_grpc.service.threads import StoreThreads


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_prompt_calls_run_in_the_loop_until_one_is_slow():
    clock = Clock()

    def call(seconds: float) -> bool:
        clock.now += seconds
        return threading.current_thread() is threading.main_thread()

    async def run() -> list[bool]:
        threads = StoreThreads(1, clock)
        here = [await threads.look(prompt, call, 0.009) for prompt in (True, True, False)]
        here += [await threads.look(True, call, 0.011) for _ in range(2)]
        clock.now += 1.0
        here += [await threads.look(True, call, 0.001), await threads(call, 0.0)]
        threads.close()
        return here

    assert asyncio.run(run()) == [True, True, False, True, False, True, False]


@pytest.mark.parametrize("prompt", [True, False])
def test_errors_arrive(prompt):
    def call() -> None:
        raise ValueError("as raised")

    async def run() -> None:
        threads = StoreThreads(1)
        with pytest.raises(ValueError, match="as raised"):
            await threads.look(prompt, call)
        threads.close()

    asyncio.run(run())

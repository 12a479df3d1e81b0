"""Progress events for the waiters of a compile."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest

from kcache_grpc.service.compile.progress import Waiter, Waiters
from kcache_grpc.service.tasks.single_flight import InFlightCall, SingleFlight
from kcache_grpc.service.values import Stage


class Leaping(asyncio.SelectorEventLoop):
    """Its clock stands still while there is work, and leaps to the next alarm when there is none."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(Leaps(self))

    def time(self) -> float:
        return self.now


class Leaps(selectors.DefaultSelector):
    def __init__(self, loop: Leaping) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        events = super().select(0)
        self._loop.now += 0.0 if events else timeout
        return events


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=Leaping) as runner:
        runner.run(work)


async def follow(
    waiter: Waiter, call: InFlightCall[int], *, ours: bool, silence: float
) -> AsyncIterator[Stage | None]:
    """What a listener tells, one after the other, each taken before the next is told."""
    told: asyncio.Queue[Stage | None] = asyncio.Queue(1)
    following = asyncio.ensure_future(waiter.follow(call, told.put, ours=ours, silence=silence))
    while not (following.done() and told.empty()):
        getting = asyncio.ensure_future(told.get())
        await asyncio.wait({following, getting}, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            getting.cancel()
            break
        yield getting.result()
    await following


class Gated:
    """A flight that reports two stages, waits for ``gate``, and reports two more."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.call, _ = SingleFlight[str, int]().join("key", self._work)

    async def _work(self, call: InFlightCall[int]) -> int:
        call.report("one")
        call.report("two")
        await self.gate.wait()
        call.report("three")
        call.report("four")
        return 42


def test_who_asked_first_is_told_all_stages_and_those_at_the_end_too() -> None:
    async def body() -> None:
        gated = Gated()
        with Waiters().waiter() as waiter:
            told = follow(waiter, gated.call, ours=True, silence=3600.0)
            assert await anext(told) == Stage("two", ("one",))
            gated.gate.set()
            assert [stage async for stage in told] == [Stage("four", ("three",))]
            assert waiter.rest(gated.call) == ()

    run(body())


def test_who_joined_is_told_while_it_takes_and_has_the_rest_with_the_result() -> None:
    async def body() -> None:
        gated = Gated()
        with Waiters().waiter() as waiter:
            told = follow(waiter, gated.call, ours=False, silence=3600.0)
            assert await anext(told) == Stage("two", ("one",))
            gated.gate.set()
            assert [stage async for stage in told] == []
            assert waiter.rest(gated.call) == ("three", "four")
            assert waiter.rest(gated.call) == ()

    run(body())


def test_who_joins_a_flight_that_has_ended_has_all_stages_with_the_result() -> None:
    async def body() -> None:
        gated = Gated()
        gated.gate.set()
        await gated.call.result()
        with Waiters().waiter() as waiter:
            assert [each async for each in follow(waiter, gated.call, ours=False, silence=0.0)] == []
            assert waiter.rest(gated.call) == ("one", "two", "three", "four")

    run(body())


@pytest.mark.parametrize("ours", [True, False])
def test_silence_is_broken_while_no_stage_begins(ours: bool) -> None:
    async def body() -> None:
        gated = Gated()
        with Waiters().waiter() as waiter:
            told = follow(waiter, gated.call, ours=ours, silence=0.3)
            stage = Stage("two", ("one",))
            expected = [stage, None, None] if ours else [None, stage, None]
            assert [await anext(told) for _ in range(3)] == expected
            gated.gate.set()
            assert [each async for each in told] == ([Stage("four", ("three",))] if ours else [])

    run(body())


def test_those_who_come_later_make_the_earlier_ones_wait_longer() -> None:
    async def body() -> None:
        gated, waiters = Gated(), Waiters()
        with ExitStack() as stack:
            waiter = stack.enter_context(waiters.waiter())
            told = follow(waiter, gated.call, ours=False, silence=3600.0)
            first = asyncio.ensure_future(anext(told))
            await asyncio.sleep(0)
            for _ in range(24):
                stack.enter_context(waiters.waiter())
            assert await first == Stage("two", ("one",))
            assert asyncio.get_running_loop().time() == pytest.approx(0.75)

    run(body())


def test_the_more_wait_the_less_often_each_is_told() -> None:
    waiters = Waiters()
    with ExitStack() as stack:
        paces = [waiters.pace]
        for _ in range(3):
            for _ in range(200):
                stack.enter_context(waiters.waiter())
            paces.append(waiters.pace)
        assert paces == [0.1, 4.0, 4.0, 4.0]
    assert waiters.pace == 0.1

"""What those who wait for a compile are told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from kcache_grpc.service.flight import Flight, Flights
from kcache_grpc.service.telling import Audience
from kcache_grpc.service.values import Stage


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


class Gated:
    """A flight that reports two stages, waits for ``gate``, and reports two more."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.flight, _ = Flights[str, int]().join("key", self._work)

    async def _work(self, flight: Flight[int]) -> int:
        flight.report("one")
        flight.report("two")
        await self.gate.wait()
        flight.report("three")
        flight.report("four")
        return 42


def test_who_asked_first_is_told_all_stages_and_those_at_the_end_too() -> None:
    async def body() -> None:
        gated = Gated()
        with Audience().listener() as listener:
            told = listener.follow(gated.flight, ours=True)
            assert await anext(told) == Stage("two", ("one",))
            gated.gate.set()
            assert [stage async for stage in told] == [Stage("four", ("three",))]
            assert listener.rest() == ()

    run(body())


def test_who_joined_is_told_while_it_takes_and_has_the_rest_with_the_result() -> None:
    async def body() -> None:
        gated = Gated()
        with Audience().listener() as listener:
            told = listener.follow(gated.flight, ours=False)
            assert await anext(told) == Stage("two", ("one",))
            gated.gate.set()
            assert [stage async for stage in told] == []
            assert listener.rest() == ("three", "four")
            assert listener.rest() == ()

    run(body())


def test_what_one_flight_left_untold_is_told_with_the_next() -> None:
    async def body() -> None:
        first, second = Gated(), Gated()
        first.gate.set()
        await first.flight.result()
        with Audience().listener() as listener:
            assert [stage async for stage in listener.follow(first.flight, ours=False)] == []
            told = listener.follow(second.flight, ours=False)
            assert await anext(told) == Stage("two", ("one", "two", "three", "four", "one"))
            second.gate.set()
            assert [stage async for stage in told] == []

    run(body())


def test_the_more_wait_the_less_often_each_is_told() -> None:
    audience = Audience()
    with ExitStack() as stack:
        paces = [audience.pace]
        for _ in range(3):
            for _ in range(200):
                stack.enter_context(audience.listener())
            paces.append(audience.pace)
        assert paces == [0.1, 2.0, 4.0, 4.0]
    assert audience.pace == 0.1

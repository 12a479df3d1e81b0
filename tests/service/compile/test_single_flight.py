"""Single flight in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from kcache_grpc import errors
from kcache_grpc.service.tasks.single_flight import InFlightCall, SingleFlight

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_equal_work_flies_once_and_everybody_sees_all_stages() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight()
        gate = asyncio.Event()
        runs: list[int] = []

        async def work(call: InFlightCall[int]) -> int:
            runs.append(1)
            call.report("one")
            await gate.wait()
            call.report("two")
            return 42

        async def passenger() -> tuple[list[str], int, bool]:
            call, ours = flights.join("key", work)
            await call.ended(3600.0)
            return list(call.stages), await call.result(), ours

        tasks = [asyncio.create_task(passenger()) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        outcomes = await asyncio.gather(*tasks)
        assert [(stages, result) for stages, result, _ in outcomes] == [(["one", "two"], 42)] * 5
        assert [ours for *_, ours in outcomes] == [True, False, False, False, False]
        assert len(runs) == 1
        assert len(flights) == 0

    run(body())


def test_who_listens_hears_what_began_before_and_what_begins_later() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight()
        gate = asyncio.Event()

        async def work(call: InFlightCall[int]) -> int:
            call.report("one")
            await gate.wait()
            call.report("two")
            return 42

        call, _ = flights.join("key", work)
        await asyncio.sleep(0)
        heard: list[str] = []
        call.add_listener(heard.append)
        assert heard == ["one"]
        gate.set()
        assert await call.result() == 42
        assert heard == ["one", "two"]

    run(body())


def test_who_comes_after_the_window_begins_another_flight() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight(window=0.0)
        gates = [asyncio.Event(), asyncio.Event()]

        def work(number: int) -> Callable[[InFlightCall[int]], Coroutine[Any, Any, int]]:
            async def fly(_: InFlightCall[int]) -> int:
                await gates[number].wait()
                return number

            return fly

        first, _ = flights.join("key", work(0))
        second, ours = flights.join("key", work(1))
        assert ours
        gates[0].set()
        assert await first.result() == 0
        assert "key" in flights  # the end of the first one is not that of the second
        gates[1].set()
        assert await second.result() == 1
        assert len(flights) == 0

    run(body())


def test_a_passenger_who_leaves_does_not_end_the_flight() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight()
        gate = asyncio.Event()

        async def work(call: InFlightCall[int]) -> int:
            await gate.wait()
            return 1

        call, _ = flights.join("key", work)
        leaving = asyncio.create_task(call.result())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        gate.set()
        assert await call.result() == 1

    run(body())


def test_an_error_reaches_all_passengers_and_the_next_flight_tries_again() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight()

        async def crash(call: InFlightCall[int]) -> int:
            raise errors.CompileFailed("no")

        first, _ = flights.join("key", crash)
        second, _ = flights.join("key", crash)
        for call in (first, second):
            with pytest.raises(errors.CompileFailed):
                await call.result()
        _, ours = flights.join("key", crash)
        assert ours
        await flights.drain(1)

    run(body())


def test_a_drain_waits_and_then_cancels() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight()

        async def forever(call: InFlightCall[int]) -> int:
            await asyncio.Event().wait()
            return 0

        async def short(call: InFlightCall[int]) -> int:
            return 7

        late, quick = flights.join("late", forever)[0], flights.join("quick", short)[0]
        await flights.drain(0.01)
        assert await quick.result() == 7
        with pytest.raises(asyncio.CancelledError):
            await late.result()

    run(body())


@pytest.mark.issue(number=19, point=10)
def test_abandoned_work_is_cancelled_when_the_last_one_leaves() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight(abandon=True)
        ended: list[str] = []

        async def work(call: InFlightCall[int]) -> int:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
            return 1

        call, _ = flights.join("a", work)
        waiting = [asyncio.create_task(call.result()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        assert not call.abandoned
        waiting[1].cancel()
        await asyncio.wait({waiting[1]})
        assert call.abandoned
        # Who comes now joins no work that is about to end.
        other, began = flights.join("a", work)
        assert began
        await asyncio.wait({call.task})
        assert ended == ["cancelled"]
        assert "a" in flights
        await flights.drain(0)
        assert other.task.cancelled()

    asyncio.run(body())


@pytest.mark.issue(number=19, point=10)
def test_work_that_is_kept_outlives_its_callers() -> None:
    async def body() -> None:
        flights: SingleFlight[str, int] = SingleFlight(abandon=True)
        go_on = asyncio.Event()

        async def work(call: InFlightCall[int]) -> int:
            call.keep()
            await go_on.wait()
            return 7

        call, _ = flights.join("a", work)
        waiting = asyncio.create_task(call.result())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        go_on.set()
        assert await call.task == 7

    asyncio.run(body())

"""Large calls leave the event loop to others: no attacker's queue of them holds up anybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kcache_grpc.server import call_scheduler
from kcache_grpc.server.call_scheduler import CallScheduler
from kcache_grpc.server.servicers.kernel_cache import KernelCacheServicer
from kcache_grpc.service import Caller
from kcache_grpc.service.values import Missing
from tests.server.harness.programs import add, kernels_request

pytestmark = pytest.mark.issue(number=19, point=9)

#: Large calls that come at once, and turns of the event loop that another call needs meanwhile.
CALLS, LAPS = 60, 400


class Clock:
    """Time that passes when a slice says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_callers_take_turns_whoever_came_first() -> None:
    order: list[str] = []

    async def slices(queue: CallScheduler, caller: str) -> None:
        await queue.wait(caller)
        order.append(caller)

    async def body() -> None:
        queue = CallScheduler(Clock())
        await asyncio.gather(*(slices(queue, name) for name in ("many", "many", "many", "few", "some")))

    asyncio.run(body())
    assert order == ["many", "many", "few", "some", "many"]


def test_a_slice_is_followed_by_a_pause_as_long_as_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them are free: clients that start at once do not wait."""
    pauses: list[float] = []

    async def body() -> None:
        loop, clock = asyncio.get_running_loop(), Clock()

        def call_later(seconds: float, callback: Any, *args: Any) -> Any:
            pauses.append(seconds)
            clock.now += seconds
            return loop.call_soon(callback, *args)

        monkeypatch.setattr(loop, "call_later", call_later)
        queue = CallScheduler(clock)
        for _ in range(4):
            await queue.wait("a")
            clock.now += 0.04

    asyncio.run(body())
    assert pauses[:2] == pytest.approx([0.09, 0.12])


def test_a_caller_that_gives_up_passes_its_turn_on() -> None:
    async def body() -> None:
        queue = CallScheduler(Clock())
        second, third, fourth = [asyncio.create_task(queue.wait(name)) for name in ("two", "three", "four")]
        await queue.wait("one")
        loop = asyncio.get_running_loop()
        loop.call_soon(second.cancel)  # when it has its turn and does not know yet
        loop.call_soon(third.cancel)
        await asyncio.wait_for(fourth, 60)
        await asyncio.wait_for(queue.wait("five"), 60)
        assert second.cancelled()
        assert third.cancelled()

    asyncio.run(body())


class _Context:
    """What a servicer sees of a call."""

    def caller(self, header: Any) -> Caller:
        return Caller(peer="ipv4:127.0.0.1:1")

    async def acquire(self, size: int) -> None:
        pass

    async def write(self, message: bytes) -> None:
        pass

    def release(self) -> None:
        pass

    def release_at_end(self, size: int = 0) -> None:
        pass


class _Service:
    """Knows no kernel."""

    def check_queries(self, count: int) -> None:
        pass

    async def get_kernels(
        self, caller: Caller, digests: Sequence[bytes], *rest: object
    ) -> AsyncGenerator[list[Missing]]:
        yield [Missing(None) for _ in digests]


class _Queries(list[Any]):
    """Counts the slices that are looked at."""

    slices = 0

    def __getitem__(self, index: Any) -> Any:
        _Queries.slices += isinstance(index, slice)
        return super().__getitem__(index)


def test_many_large_calls_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call needs ``LAPS`` turns of the loop: few slices of the large calls come between them."""
    monkeypatch.setattr(call_scheduler, "_BURST", 0.005)
    servicer = KernelCacheServicer(cast("Any", _Service()), 1.0)
    request = kernels_request([add(4)] * 4096)
    sliced: Any = SimpleNamespace(
        header=request.header,
        queries=_Queries(request.queries),
        target=request.target,
        options=request.options,
        shapes=request.shapes,
        target_match=request.target_match,
        artifact_kinds=[],
        inline_budget_bytes=0,
    )

    async def body() -> int:
        calls = [
            asyncio.create_task(servicer.GetKernels(sliced, cast("Any", _Context()))) for _ in range(CALLS)
        ]
        for _ in range(LAPS):
            await asyncio.sleep(0)
        slices = _Queries.slices
        await asyncio.gather(*calls)
        return slices

    slices = asyncio.run(body())
    assert _Queries.slices == 4 * CALLS
    assert slices < LAPS / 4

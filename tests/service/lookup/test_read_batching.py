"""Questions that come while one is asked share the next statement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from kcache_grpc.service.store_threads import ReadBatch


class Asked:
    """Answers with the length of a key when its gate opens, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[str]]] = []
        self.gate = asyncio.Event()

    async def __call__(self, group: int, keys: Sequence[str]) -> Mapping[str, int]:
        self.calls.append((group, list(keys)))
        await self.gate.wait()
        if "bad" in keys:
            raise ValueError("bad")
        return {key: len(key) for key in keys if key}


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_comes_meanwhile_is_asked_together() -> None:
    async def body() -> None:
        asked = Asked()
        gathering = ReadBatch(asked)
        first = asyncio.create_task(gathering.read(1, "a"))
        await turns()
        others = [
            asyncio.create_task(gathering.read(*each)) for each in ((1, "bb"), (1, "a"), (1, "bb"), (1, ""))
        ]
        other = asyncio.create_task(gathering.read(2, "ccc"))
        await turns()
        assert asked.calls == [(1, ["a"])]
        asked.gate.set()
        assert await first == 1
        assert await asyncio.gather(*others, other) == [2, 1, 2, None, 3]
        # Who asked for a key that was being looked for is told what was there afterwards.
        assert asked.calls == [(1, ["a"]), (1, ["bb", "a", ""]), (2, ["ccc"])]

    asyncio.run(body())


def test_an_error_is_for_those_who_asked_with_it() -> None:
    async def body() -> None:
        asked = Asked()
        gathering = ReadBatch(asked)
        first = asyncio.create_task(gathering.read(1, "bad"))
        await turns()
        second = asyncio.create_task(gathering.read(1, "good"))
        asked.gate.set()
        with pytest.raises(ValueError, match="bad"):
            await first
        assert await second == 4

    asyncio.run(body())


def test_who_leaves_takes_no_answer_from_others() -> None:
    async def body() -> None:
        asked = Asked()
        gathering = ReadBatch(asked)
        leaving, staying = (asyncio.create_task(gathering.read(1, "a")) for _ in range(2))
        await turns()
        leaving.cancel()
        await turns()
        asked.gate.set()
        assert await staying == 1
        assert leaving.cancelled()

    asyncio.run(body())


def test_a_statement_that_hangs_does_not_hold_up_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcache_grpc.service.store_threads._READ_TIMEOUT", -1.0)

    async def body() -> None:
        gates = [asyncio.Event(), asyncio.Event()]
        calls = iter(gates)

        async def ask(group: int, keys: Sequence[str]) -> Mapping[str, int]:
            await next(calls).wait()
            return dict.fromkeys(keys, group)

        gathering = ReadBatch(ask)
        hanging = asyncio.create_task(gathering.read(1, "a"))
        await turns()
        gates[1].set()
        assert await gathering.read(1, "b") == 1
        assert not hanging.done()
        gates[0].set()
        assert await hanging == 1

    asyncio.run(body())

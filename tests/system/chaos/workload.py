"""Clients that ask servers at random, and at the end for everything that anybody was told of."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.system.chaos.questions import DEADLINE, Name, Observed, Questions

#: Seconds after its deadline in which a client must be told at least that there is no answer.
SLACK = 10.0
#: Statuses that say "not now" or "who knows"; anything else is an answer.
_AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNKNOWN,
}
#: Programs of one question for kernels, when everything is asked for.
_BATCH = 8


@dataclass(frozen=True)
class _Question:
    what: str
    ask: Callable[[Questions], Awaitable[None]]


class Workload:
    """Clients of some servers, and what they saw."""

    def __init__(
        self,
        addresses: Sequence[str],
        seed: int,
        programs: int,
        kernels: int,
        spellings: int = 3,
        may_vanish: bool = False,
    ) -> None:
        self._addresses = addresses
        self._seed = seed
        self._programs = programs
        self._kernels = kernels
        self._spellings = spellings
        #: Whether bytes may be lost, so that kernels and blobs are absent until they are made again.
        self._may_vanish = may_vanish
        self.seen = Observed()
        self.stopping = False

    async def run(self, clients: int, operations: int, until: asyncio.Event | None) -> None:
        """Returns when ``operations`` questions were answered and ``until`` is set, or ``stopping`` is."""
        async with AsyncExitStack() as stack:
            servers = await self._servers(stack)

            async def client(number: int) -> None:
                chance = random.Random(f"{self._seed} {number}")
                while not self.stopping and (
                    self.seen.answered < operations or not (until is None or until.is_set())
                ):
                    server = chance.choice(servers)
                    if await self._timed(self._choose(chance), server):
                        # A client that is told "not now" takes a breath.
                        await asyncio.sleep(chance.random() * 0.2)

            await asyncio.gather(*map(client, range(clients)))

    async def ask_all(self, clients: int = 12) -> list[str]:
        """Ask once for all that anybody was told of, while nothing is broken. What had no answer."""
        questions = self._all()
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            turns = itertools.cycle(await self._servers(stack))

            async def client() -> None:
                while questions:
                    question = questions.pop()
                    if rejected := await self._timed(question, next(turns)):
                        problems.append(f"{question.what} had no answer: {rejected}")

            await asyncio.gather(*(client() for _ in range(clients)))
        return problems

    def _all(self) -> list[_Question]:
        """Each key, kernel, text and blob that somebody was told of, in some order."""
        answers = self.seen.history.answers
        names = sorted({a.register[1:] for a in answers if a.value and a.register[0] == "mapping"})  # type: ignore[index, misc]
        batches = [names[at : at + _BATCH] for at in range(0, len(names), _BATCH)]
        operations = [
            *(_Question(f"look up {name}", partial(Questions.look_up, name=name)) for name in names),
            *(_Question(f"find {some}", partial(Questions.find, wanted=some)) for some in batches),
            *(_Question(f"retrieve {key}", partial(Questions.retrieve, key=key)) for key in self.seen.texts),
            *(
                _Question(f"read {digest.hex()}", partial(Questions.read, digest=digest))
                for digest in self.seen.objects
            ),
            *[_Question("count", Questions.count)] * 10,
        ]
        random.Random(self._seed).shuffle(operations)
        return operations

    async def _servers(self, stack: AsyncExitStack) -> list[Questions]:
        options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1000)]
        clients: list[Questions] = []
        for address in self._addresses:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            clients.append(Questions(stub, self.seen, self._may_vanish))
        return clients

    def _choose(self, chance: random.Random) -> _Question:
        weights = {
            "store": 20,
            "look_up": 25,
            "compile": 12,
            "find": 25,
            "read": 8,
            "retrieve": 5,
            "count": 5,
        }
        (what,) = chance.choices(list(weights), list(weights.values()))
        match what:
            case "store":
                name = self._pick(chance, self._programs)
                return _Question(what, partial(Questions.store, name=name))
            case "look_up":
                name = self._pick(chance, self._programs)
                return _Question(what, partial(Questions.look_up, name=name))
            case "compile":
                return _Question(what, partial(Questions.compile, name=self._pick(chance, self._kernels)))
            case "find":
                wanted = [self._pick(chance, self._kernels) for _ in range(chance.randint(1, 4))]
                return _Question(what, partial(Questions.find, wanted=wanted))
            case "read" if self.seen.objects:
                digest = chance.choice(sorted(self.seen.objects))
                return _Question(what, partial(Questions.read, digest=digest))
            case "retrieve" if self.seen.texts:
                key = chance.choice(sorted(self.seen.texts))
                return _Question(what, partial(Questions.retrieve, key=key))
            case _:
                return _Question("count", Questions.count)

    def _pick(self, chance: random.Random, most: int) -> Name:
        """Small numbers are asked for more often, as in life."""
        number = min(int(chance.paretovariate(0.7)) - 1, most * 7) % most
        return number, chance.randrange(self._spellings)

    async def _timed(self, question: _Question, server: Questions) -> str:
        """Why there was no answer; empty when there was one. What may not be goes to ``seen.wrong``."""
        began = time.monotonic()
        rejected = ""
        try:
            await asyncio.wait_for(question.ask(server), DEADLINE + SLACK)
            self.seen.answered += 1
        except asyncio.TimeoutError:
            rejected = "kept waiting"
        except grpc.RpcError as error:
            self.seen.unanswered += 1
            lost = self._may_vanish and error.code() is grpc.StatusCode.NOT_FOUND
            if error.code() not in _AWAY and not lost:
                self.seen.wrong.append(f"{question.what}: {error.code()} {error.details()}")
            rejected = "" if lost else f"{error.code()} {error.details()}"
        if time.monotonic() - began > DEADLINE + SLACK:
            self.seen.wrong.append(f"{question.what} was kept waiting for {time.monotonic() - began:.1f} s")
        return rejected

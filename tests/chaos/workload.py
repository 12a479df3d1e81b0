"""Clients that ask servers at random, believe nothing, and write down every answer."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.chaos.history import Answer, Count, History
from tests.server.programs import SO, compile_request, header, inline, kernels_request

#: Seconds that a client gives a question, and in which it must be told at least that there is no answer.
DEADLINE = 20.0
SLACK = 10.0
#: Statuses that say "not now" or "who knows"; anything else is an answer.
_AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNKNOWN,
}


def program(number: int, name: int) -> bytes:
    """Computation ``number``, in one of several spellings."""
    ops = ("add", "multiply", "subtract", "maximum")
    a, b = f"a{name}", f"b{name}"
    lines, value, left = [], f"%{a}", number
    for step in range(6):
        op = ops[left % 4]
        left //= 4
        lines.append(f"  %t{name}_{step} = stablehlo.{op} {value}, %{b} : tensor<7xf32>")
        value = f"%t{name}_{step}"
    body = "\n".join(lines)
    return (
        f"module {{ func.func @main(%{a}: tensor<7xf32>, %{b}: tensor<7xf32>) -> tensor<7xf32> {{\n"
        f"{body}\n  return {value} : tensor<7xf32>\n}} }}\n"
    ).encode()


@dataclass
class Observed:
    """What all clients saw."""

    history: History = field(default_factory=History)
    #: Answers that no history explains: wrong bytes, strange statuses, clients kept waiting.
    wrong: list[str] = field(default_factory=list)
    answered: int = 0
    unanswered: int = 0
    #: Digest of a shared object -> what it is for.
    objects: dict[bytes, str] = field(default_factory=dict)
    #: Key -> spec digest, as somebody was told.
    texts: dict[int, bytes] = field(default_factory=dict)


class Workload:
    """``clients`` tasks, each with a channel to one server at a time."""

    def __init__(
        self,
        addresses: list[str],
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
        self._stubs: dict[str, Any] = {}
        self._channels: list[grpc.aio.Channel] = []
        self._until: asyncio.Event | None = None
        self.seen = Observed()
        self.stopping = False

    async def run(self, clients: int, operations: int, until: asyncio.Event | None) -> None:
        """Returns when ``operations`` questions were answered and ``until`` is set, or ``stopping`` is."""
        self._until = until
        options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1000)]
        for address in self._addresses:
            channel = grpc.aio.insecure_channel(address, options=options)
            self._channels.append(channel)
            self._stubs[address] = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        try:
            await asyncio.gather(*(self._client(number, operations) for number in range(clients)))
        finally:
            for channel in self._channels:
                await channel.close()

    async def _client(self, number: int, operations: int) -> None:
        chance = random.Random(f"{self._seed} {number}")
        ask = {
            self._store: 20, self._lookup: 25, self._compile: 12, self._find: 25,
            self._read: 8, self._retrieve: 5, self._count: 5,
        }  # fmt: skip
        while not self.stopping and (
            self.seen.answered < operations or not (self._until is None or self._until.is_set())
        ):
            stub = self._stubs[chance.choice(self._addresses)]
            (question,) = chance.choices(list(ask), list(ask.values()))
            await self._timed(question, stub, chance)

    async def _timed(
        self, question: Callable[[Any, random.Random], Awaitable[None]], stub: Any, chance: random.Random
    ) -> None:
        began = time.monotonic()
        try:
            await asyncio.wait_for(question(stub, chance), DEADLINE + SLACK)
            self.seen.answered += 1
        except asyncio.TimeoutError:
            self.seen.wrong.append(f"{question.__name__} was kept waiting for {DEADLINE + SLACK} s")
        except grpc.RpcError as error:
            self.seen.unanswered += 1
            lost = self._may_vanish and error.code() is grpc.StatusCode.NOT_FOUND
            if error.code() not in _AWAY and not lost:
                self.seen.wrong.append(f"{question.__name__}: {error.code()} {error.details()}")
            # A client that is told "not now" takes a breath.
            await asyncio.sleep(chance.random() * 0.2)
        if time.monotonic() - began > DEADLINE + SLACK:
            self.seen.wrong.append(f"{question.__name__} took {time.monotonic() - began:.1f} s")

    def _pick(self, chance: random.Random, most: int) -> tuple[int, int]:
        """Small numbers are asked for more often, as in life."""
        number = min(int(chance.paretovariate(0.7)) - 1, most * 7) % most
        return number, chance.randrange(self._spellings)

    def _told(self, register: object, value: object, asked: float, writes: bool) -> None:
        answer = Answer(register, value, asked, time.monotonic(), writes)  # type: ignore[arg-type]
        self.seen.history.answers.append(answer)

    def _told_key(self, number: int, name: int, key: int, asked: float, writes: bool) -> None:
        self._told(("mapping", number, name), key, asked, writes)
        # A lookup may find what another spelling stored, whose writer is in the history itself.
        self._told(("key", number), key, asked, writes)

    async def _store(self, stub: Any, chance: random.Random) -> None:
        number, name = self._pick(chance, self._programs)
        asked = time.monotonic()
        self.seen.history.lost += [(("mapping", number, name), asked), (("key", number), asked)]
        request = pb.StoreGraphRequest(header=header(), graph=inline(program(number, name)))
        reply = await stub.StoreGraph(request, timeout=DEADLINE)
        self._told_key(number, name, reply.key, asked, True)
        self._told(("text", reply.key), reply.spec_digest, asked, True)
        self.seen.texts[reply.key] = reply.spec_digest

    async def _lookup(self, stub: Any, chance: random.Random) -> None:
        number, name = self._pick(chance, self._programs)
        asked = time.monotonic()
        request = pb.LookupGraphRequest(header=header(), graph=inline(program(number, name)))
        reply = await stub.LookupGraph(request, timeout=DEADLINE)
        self._told(("key", number), reply.spec.key or None, asked, False)

    async def _compile(self, stub: Any, chance: random.Random) -> None:
        number, name = self._pick(chance, self._kernels)
        asked = time.monotonic()
        for register in (("mapping", number, name), ("key", number), ("kernel", number)):
            self.seen.history.lost.append((register, asked))
        request = compile_request(inline(program(number, name)), artifact_kinds=[SO])
        result, body, digest = None, b"", b""
        async for reply in _patient(stub.CompileKernel(request, timeout=DEADLINE)):
            match reply.WhichOneof("event"):
                case "result":
                    result = reply.result
                case "chunk":
                    body += reply.chunk.data
                    digest = reply.chunk.ref.sha256
        if result is None:
            self.seen.wrong.append("a compile ended without a result and without an error")
            return
        self._check(body, digest, f"kernel {number}")
        self._told_key(number, name, result.key, asked, True)
        self._told(("kernel", number), hashlib.sha256(result.manifest.payload).hexdigest(), asked, True)

    async def _find(self, stub: Any, chance: random.Random) -> None:
        wanted = [self._pick(chance, self._kernels) for _ in range(chance.randint(1, 4))]
        asked = time.monotonic()
        request = kernels_request(
            [program(*each) for each in wanted], artifact_kinds=[SO], inline_budget_bytes=1 << 20
        )
        async for reply in _patient(stub.GetKernels(request, timeout=DEADLINE)):
            for result in reply.results:
                number, name = wanted[result.index]
                if result.status == pb.KERNEL_STATUS_FOUND:
                    for artifact in result.artifacts:
                        self._check(artifact.data, artifact.ref.sha256, f"kernel {number}")
                    manifest = hashlib.sha256(result.manifest.payload).hexdigest()
                    self._told(("kernel", number), manifest, asked, False)
                    self._told_key(number, name, result.key, asked, False)
                elif result.status == pb.KERNEL_STATUS_NEED_PROGRAM:
                    self._told(("mapping", number, name), None, asked, False)
                elif result.status == pb.KERNEL_STATUS_NEED_COMPILE:
                    if not self._may_vanish:
                        self._told(("kernel", number), None, asked, False)
                else:
                    self.seen.wrong.append(f"kernel {number}: a failure was remembered: {result.failure}")

    async def _read(self, stub: Any, chance: random.Random) -> None:
        if not self.seen.objects:
            return
        digest = chance.choice(sorted(self.seen.objects))
        request = pb.ReadArtifactRequest(header=header(), sha256=digest)
        body = b"".join(
            [reply.data async for reply in _patient(stub.ReadArtifact(request, timeout=DEADLINE))]
        )
        self._check(body, digest, self.seen.objects[digest])

    async def _retrieve(self, stub: Any, chance: random.Random) -> None:
        if not self.seen.texts:
            return
        key = chance.choice(sorted(self.seen.texts))
        asked = time.monotonic()
        request = pb.GetSpecRequest(header=header(), key=key)
        replies = [reply async for reply in _patient(stub.GetSpec(request, timeout=DEADLINE))]
        text = b"".join(reply.text_chunk for reply in replies)
        self._told(("text", key), hashlib.sha256(text).digest(), asked, False)

    async def _count(self, stub: Any, chance: random.Random) -> None:
        asked = time.monotonic()
        reply = await stub.CountSpecs(pb.CountSpecsRequest(header=header()), timeout=DEADLINE)
        self.seen.history.counts.append(Count(reply.count, asked, time.monotonic()))

    def _check(self, body: bytes, digest: bytes, what: str) -> None:
        if hashlib.sha256(body).digest() != digest:
            self.seen.wrong.append(f"{what}: {len(body)} bytes do not hash to their digest")
        else:
            self.seen.objects[digest] = what


async def _patient(call: Any) -> AsyncIterator[Any]:
    """All replies; the call is cancelled when nobody wants the rest."""
    try:
        async for reply in call:
            yield reply
    finally:
        call.cancel()

"""The questions that clients ask. They trust nothing, and record every answer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from tests.server.harness.programs import SO, compile_request, header, inline, kernels_request
from tests.system.chaos.history import Answer, Count, History

#: Seconds that a client gives a question.
DEADLINE = 20.0

#: A computation, and one of its spellings.
Name = tuple[int, int]


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


class Questions:
    """What may be asked of one server."""

    def __init__(self, stub: Any, seen: Observed, may_vanish: bool) -> None:
        self._stub = stub
        self._seen = seen
        #: Whether bytes may be lost, so that kernels are absent until they are made again.
        self._may_vanish = may_vanish

    def _record(self, register: object, value: object, asked: float, writes: bool) -> None:
        answer = Answer(register, value, asked, time.monotonic(), writes)  # type: ignore[arg-type]
        self._seen.history.answers.append(answer)

    def _told_key(self, name: Name, key: int, asked: float, writes: bool) -> None:
        self._record(("mapping", *name), key, asked, writes)
        # A lookup may find what another spelling stored, whose writer is in the history itself.
        self._record(("key", name[0]), key, asked, writes)

    async def store(self, name: Name) -> None:
        number, _ = name
        asked = time.monotonic()
        self._seen.history.lost += [(("mapping", *name), asked), (("key", number), asked)]
        request = pb.StoreGraphRequest(header=header(), graph=inline(program(*name)))
        reply = await self._stub.StoreGraph(request, timeout=DEADLINE)
        self._told_key(name, reply.key, asked, True)
        self._record(("text", reply.key), reply.spec_digest, asked, True)
        self._seen.texts[reply.key] = reply.spec_digest

    async def look_up(self, name: Name) -> None:
        asked = time.monotonic()
        request = pb.LookupGraphRequest(header=header(), graph=inline(program(*name)))
        reply = await self._stub.LookupGraph(request, timeout=DEADLINE)
        self._record(("key", name[0]), reply.spec.key or None, asked, False)

    async def compile(self, name: Name) -> None:
        number, _ = name
        asked = time.monotonic()
        for register in (("mapping", *name), ("key", number), ("kernel", number), ("so", number)):
            self._seen.history.lost.append((register, asked))
        request = compile_request(inline(program(*name)), artifact_kinds=[SO])
        result, body, digest = None, b"", b""
        async for reply in _all_replies(self._stub.CompileKernel(request, timeout=DEADLINE)):
            match reply.WhichOneof("event"):
                case "result":
                    result = reply.result
                case "chunk":
                    body += reply.chunk.data
                    digest = reply.chunk.ref.sha256
        if result is None:
            self._seen.wrong.append("a compile ended without a result and without an error")
            return
        self._check(body, digest, f"kernel {number}")
        self._told_key(name, result.key, asked, True)
        self._record(("kernel", number), hashlib.sha256(result.manifest.payload).hexdigest(), asked, True)
        self._record(("so", number), digest, asked, True)

    async def find(self, wanted: Sequence[Name]) -> None:
        asked = time.monotonic()
        request = kernels_request(
            [program(*each) for each in wanted], artifact_kinds=[SO], inline_budget_bytes=1 << 20
        )
        answered: set[int] = set()
        async for reply in _all_replies(self._stub.GetKernels(request, timeout=DEADLINE)):
            for result in reply.results:
                answered.add(result.index)
                if result.status != pb.KERNEL_STATUS_DUPLICATE:
                    self._found(wanted[result.index], result, asked)
                elif wanted[result.first_index] != wanted[result.index]:
                    self._seen.wrong.append(
                        f"{wanted[result.index]} was answered with another program's result"
                    )
        if answered != set(range(len(wanted))):
            self._seen.wrong.append(f"{len(wanted)} kernels were asked for, and {sorted(answered)} answered")

    def _found(self, name: Name, result: Any, asked: float) -> None:
        number, _ = name
        match result.status:
            case pb.KERNEL_STATUS_FOUND:
                for artifact in result.artifacts:
                    self._check(artifact.data, artifact.ref.sha256, f"kernel {number}")
                    self._record(("so", number), artifact.ref.sha256, asked, False)
                manifest = hashlib.sha256(result.manifest.payload).hexdigest()
                self._record(("kernel", number), manifest, asked, False)
                self._told_key(name, result.key, asked, False)
            case pb.KERNEL_STATUS_NEED_PROGRAM:
                self._record(("mapping", *name), None, asked, False)
            case pb.KERNEL_STATUS_NEED_COMPILE:
                if not self._may_vanish:
                    self._record(("kernel", number), None, asked, False)
            case _:
                self._seen.wrong.append(f"kernel {number}: a failure was remembered: {result.failure}")

    async def read(self, digest: bytes) -> None:
        request = pb.ReadArtifactRequest(header=header(), sha256=digest)
        replies = _all_replies(self._stub.ReadArtifact(request, timeout=DEADLINE))
        body = b"".join([reply.data async for reply in replies])
        self._check(body, digest, self._seen.objects[digest])

    async def retrieve(self, key: int) -> None:
        asked = time.monotonic()
        request = pb.GetSpecRequest(header=header(), key=key)
        replies = [reply async for reply in _all_replies(self._stub.GetSpec(request, timeout=DEADLINE))]
        text = b"".join(reply.text_chunk for reply in replies)
        self._record(("text", key), hashlib.sha256(text).digest(), asked, False)

    async def count(self) -> None:
        asked = time.monotonic()
        reply = await self._stub.CountSpecs(pb.CountSpecsRequest(header=header()), timeout=DEADLINE)
        self._seen.history.counts.append(Count(reply.count, asked, time.monotonic()))

    def _check(self, body: bytes, digest: bytes, what: str) -> None:
        if hashlib.sha256(body).digest() != digest:
            self._seen.wrong.append(f"{what}: {len(body)} bytes do not hash to their digest")
        else:
            self._seen.objects[digest] = what


async def _all_replies(call: Any) -> AsyncIterator[Any]:
    """All replies; the call is cancelled when nobody wants the rest."""
    try:
        async for reply in call:
            yield reply
    finally:
        call.cancel()

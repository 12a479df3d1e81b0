"""Equal compile requests are one, and remembered for a while."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kcache_grpc.errors import CompileFailed
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.model.signing import Signed
from kcache_grpc.model.sizes.modes import AUTO, ShapeRequirements
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.service.compile.reply_cache import ReplyCache
from kcache_grpc.service.tasks.single_flight import InFlightCall
from kcache_grpc.service.values import Answer, KernelRequirements, KnownGraph, KnownKernel, Origin
from kcache_grpc.storage.records import Namespace

HERE = Namespace(1, "default", 1)
REQUIREMENTS = KernelRequirements(CpuTarget("x86-64-v3"), Options())
SIGNED = Signed(b"payload", b"signature", b"key")


def program(body: bytes = b"module {}") -> Program:
    """Equal to another one, not the same."""
    return Program(ProgramFormat.STABLEHLO, bytes(bytearray(body)))


def answer() -> Answer:
    graph = KnownGraph(b"p" * 32, 1, b"s" * 32, "f32[4]", SIGNED)
    kernel = KnownKernel(b"k" * 32, SIGNED, (ArtifactRef("so", b"a" * 32, 1000),), 5)
    return Answer(graph, kernel, Origin.COMPILED)


def test_equal_requests_are_one_and_remembered_until_something_is_removed() -> None:
    async def body() -> None:
        cache, gate, reply = ReplyCache(), asyncio.Event(), answer()
        runs: list[int] = []

        async def work(_: InFlightCall[Answer]) -> Answer:
            runs.append(1)
            await gate.wait()
            return reply

        joined = [cache.join(HERE, program(), REQUIREMENTS, False, work) for _ in range(3)]
        assert [ours for _, ours in joined] == [True, False, False]
        assert cache.get(HERE, program(), REQUIREMENTS) is None
        gate.set()
        assert [await call.result() for call, _ in joined] == [reply] * 3
        assert len(runs) == 1
        assert cache.get(HERE, program(), REQUIREMENTS) is reply
        assert cache.get(replace(HERE, removals=1), program(), REQUIREMENTS) is None
        assert cache.get(replace(HERE, epoch=2), program(), REQUIREMENTS) is None
        assert cache.get(replace(HERE, name="other"), program(), REQUIREMENTS) is None
        assert cache.get(HERE, program(b"module @other {}"), REQUIREMENTS) is None
        assert cache.get(HERE, program().digest, REQUIREMENTS) is None
        assert cache.get(HERE, program(), replace(REQUIREMENTS, options=Options(opt_level=1))) is None

    asyncio.run(body())


def test_who_wants_a_failure_tried_again_does_not_join_who_does_not() -> None:
    async def body() -> None:
        cache = ReplyCache()

        async def fail(_: InFlightCall[Answer]) -> Answer:
            raise CompileFailed("no")

        flights = [cache.join(HERE, program(), REQUIREMENTS, retry, fail) for retry in (False, True)]
        assert [ours for _, ours in flights] == [True, True]
        for call, _ in flights:
            with pytest.raises(CompileFailed):
                await call.result()
        assert cache.get(HERE, program(), REQUIREMENTS) is None

    asyncio.run(body())


def test_what_may_be_bettered_is_not_remembered() -> None:
    async def body() -> None:
        cache, requirements = ReplyCache(), replace(REQUIREMENTS, shapes=ShapeRequirements(AUTO))

        async def work(_: InFlightCall[Answer]) -> Answer:
            return answer()

        call, _ = cache.join(HERE, program(), requirements, False, work)
        await call.result()
        assert cache.get(HERE, program(), requirements) is None

    asyncio.run(body())

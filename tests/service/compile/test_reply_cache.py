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
from kcache_grpc.model.sizes.modes import AUTO, ShapeWish
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.service.compile.reply_cache import Answers
from kcache_grpc.service.tasks.single_flight import Flight
from kcache_grpc.service.values import Answer, KernelWish, KnownGraph, KnownKernel, Origin
from kcache_grpc.storage.records import Namespace

HERE = Namespace(1, "default", 1)
WISH = KernelWish(CpuTarget("x86-64-v3"), Options())
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
        answers, gate, reply = Answers(), asyncio.Event(), answer()
        runs: list[int] = []

        async def work(_: Flight[Answer]) -> Answer:
            runs.append(1)
            await gate.wait()
            return reply

        joined = [answers.join(HERE, program(), WISH, False, work) for _ in range(3)]
        assert [ours for _, ours in joined] == [True, False, False]
        assert answers.remembered(HERE, program(), WISH) is None
        gate.set()
        assert [await flight.result() for flight, _ in joined] == [reply] * 3
        assert len(runs) == 1
        assert answers.remembered(HERE, program(), WISH) is reply
        assert answers.remembered(replace(HERE, removals=1), program(), WISH) is None
        assert answers.remembered(replace(HERE, epoch=2), program(), WISH) is None
        assert answers.remembered(replace(HERE, name="other"), program(), WISH) is None
        assert answers.remembered(HERE, program(b"module @other {}"), WISH) is None
        assert answers.remembered(HERE, program().digest, WISH) is None
        assert answers.remembered(HERE, program(), replace(WISH, options=Options(opt_level=1))) is None

    asyncio.run(body())


def test_who_wants_a_failure_tried_again_does_not_join_who_does_not() -> None:
    async def body() -> None:
        answers = Answers()

        async def fail(_: Flight[Answer]) -> Answer:
            raise CompileFailed("no")

        flights = [answers.join(HERE, program(), WISH, retry, fail) for retry in (False, True)]
        assert [ours for _, ours in flights] == [True, True]
        for flight, _ in flights:
            with pytest.raises(CompileFailed):
                await flight.result()
        assert answers.remembered(HERE, program(), WISH) is None

    asyncio.run(body())


def test_what_may_be_bettered_is_not_remembered() -> None:
    async def body() -> None:
        answers, wish = Answers(), replace(WISH, shapes=ShapeWish(AUTO))

        async def work(_: Flight[Answer]) -> Answer:
            return answer()

        flight, _ = answers.join(HERE, program(), wish, False, work)
        await flight.result()
        assert answers.remembered(HERE, program(), wish) is None

    asyncio.run(body())

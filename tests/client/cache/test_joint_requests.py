"""Several misses are one stream; what it does not answer is asked for alone."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from tests.client.conftest import PROGRAM
from tests.client.fake import FakeServer, FakeService, Rejection, once

SEVEN = [PROGRAM + "\n" * count for count in range(7)]


def digests(kernels: list[kcache.Kernel]) -> list[bytes]:
    return [kernel.binding.program_digest for kernel in kernels]


def test_more_than_eight_are_shared_out_over_streams(client: kcache.Client, service: FakeService) -> None:
    kernels = client.compile_many([PROGRAM + "\n" * count for count in range(20)])
    assert len(set(digests(kernels))) == 20
    assert {kernel.origin for kernel in kernels} == {"compiled"}
    assert service.calls["CompileKernels"] == 3
    assert service.together == 20
    assert not service.calls["CompileKernel"]
    assert not service.calls["ReadArtifact"]


def test_a_single_miss_has_a_stream_of_its_own(client: kcache.Client, service: FakeService) -> None:
    client.compile_many(SEVEN[:1])
    assert (service.calls["CompileKernel"], service.calls["CompileKernels"]) == (1, 0)


def test_large_programs_go_alone(client: kcache.Client, service: FakeService) -> None:
    large = PROGRAM + "// " + "x" * (300 << 10) + "\n"
    kernels = client.compile_many([*SEVEN, large])
    assert len(set(digests(kernels))) == 8
    assert (service.together, service.calls["CompileKernel"]) == (7, 1)


def test_known_programs_are_not_sent_again(client: kcache.Client, service: FakeService) -> None:
    for program in SEVEN:
        client.store(program)
    sent: list[str] = []
    program = service._program

    def spy(source: Any) -> Any:
        sent.append(source.WhichOneof("source"))
        return program(source)

    service._program = spy  # type: ignore[method-assign]
    client.compile_many(SEVEN)
    assert sent == ["program_digest"] * 7
    assert service.together == 7


def test_programs_that_were_evicted_meanwhile_are_sent_after_all(
    client: kcache.Client, service: FakeService
) -> None:
    for program in SEVEN:
        client.store(program)

    def forget(reply: Any) -> Any:
        service.programs.clear()
        return reply

    service.bend["GetKernels"] = forget
    kernels = client.compile_many(SEVEN)
    assert len(set(digests(kernels))) == 7
    assert service.together == 7


def test_an_older_server_is_asked_for_each(client: kcache.Client, service: FakeService) -> None:
    service.bend["CompileKernels"] = _raising(Rejection(grpc.StatusCode.UNIMPLEMENTED))
    kernels = client.compile_many(SEVEN)
    assert len(set(digests(kernels))) == 7
    assert (service.calls["CompileKernels"], service.calls["CompileKernel"]) == (1, 7)


def _raising(rejection: Rejection) -> Any:
    def bend(reply: Any) -> Any:
        raise rejection

    return bend


def test_a_stream_that_breaks_is_gone_on_with_alone(client: kcache.Client, service: FakeService) -> None:
    told: list[pb.CompileKernelsResponse] = []

    def bend(reply: pb.CompileKernelsResponse) -> pb.CompileKernelsResponse:
        told.append(reply)
        if reply.events[0].index == 3:
            raise Rejection(grpc.StatusCode.UNAVAILABLE, "going down")
        return reply

    service.bend["CompileKernels"] = bend
    kernels = client.compile_many(SEVEN)
    assert len(set(digests(kernels))) == 7
    assert (service.calls["CompileKernels"], service.calls["CompileKernel"]) == (1, 4)


def test_the_error_of_one_is_raised_as_what_it_is(client: kcache.Client, service: FakeService) -> None:
    rejection = Rejection(grpc.StatusCode.FAILED_PRECONDITION, "too odd", "COMPILE_FAILED", stage="lower")
    service.bend["CompileKernel"] = _raising(rejection)
    with pytest.raises(kcache.CompileFailed, match="too odd") as caught:
        client.compile_many(SEVEN)
    assert caught.value.stage == "lower"
    assert not service.calls["CompileKernel"]


def test_one_that_is_to_be_tried_again_is(client: kcache.Client, service: FakeService) -> None:
    service.bend["CompileKernel"] = once(Rejection(grpc.StatusCode.UNAVAILABLE, "full", "UNAVAILABLE"))
    kernels = client.compile_many(SEVEN)
    assert len(set(digests(kernels))) == 7
    assert (service.together, service.calls["CompileKernel"]) == (7, 1)


def test_an_index_that_nobody_asked_for_is_rejected(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: pb.CompileKernelsResponse) -> pb.CompileKernelsResponse:
        reply.events[0].index += 7
        return reply

    service.bend["CompileKernels"] = bend
    with pytest.raises(kcache.IntegrityError, match="answers 7 of 7 requests"):
        client.compile_many(SEVEN)


def test_stages_are_told(client: kcache.Client, service: FakeService) -> None:
    stages: list[str] = []
    client.compile_many(SEVEN, on_progress=lambda stage, seconds: stages.append(stage))
    assert stages.count("receive") == 7
    assert "lower" in stages


def test_the_asynchronous_client_does_the_same(fake: FakeServer, service: FakeService, tmp_path) -> None:
    async def work() -> list[kcache.Kernel]:
        async with kcache.aio.Client(fake.address, cache_dir=tmp_path / "async") as client:
            return await client.compile_many(SEVEN)

    assert len(set(digests(asyncio.run(work())))) == 7
    assert service.calls["CompileKernels"] == 1
    assert service.together == 7

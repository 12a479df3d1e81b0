"""Hostile bytes: a typed error within the time limit, nothing stored, and the server goes on."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from tests.server.harness.programs import add, compile_request, header, inline, result_of
from tests.server.harness.running import Running
from tests.server.rpcs.test_errors import info_of

STABLEHLO = common_pb2.PROGRAM_FORMAT_STABLEHLO
KNOWN = {"INVALID_PROGRAM", "UNSUPPORTED_OP", "RESOURCE_EXHAUSTED", "COMPILE_FAILED"}


def truncated() -> bytes:
    return add(4)[: len(add(4)) // 2]


def noise(seed: int) -> bytes:
    source = random.Random(seed)
    return bytes(source.randrange(256) for _ in range(4000))


def flipped(seed: int) -> bytes:
    source, body = random.Random(seed), bytearray(add(4))
    for _ in range(5):
        body[source.randrange(len(body))] ^= 1 << source.randrange(7)
    return bytes(body)


def nested(depth: int) -> bytes:
    return b"module { " * depth + b"}" * depth


def brackets(depth: int) -> bytes:
    return b"module attributes {a = " + b"[" * depth + b"]" * depth + b"} {}"


def recursive() -> bytes:
    return (
        b"module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        b"  %r = func.call @main(%a) : (tensor<4xf32>) -> tensor<4xf32>\n  return %r : tensor<4xf32>\n} }"
    )


def enormous() -> bytes:
    kind = b"tensor<1152921504606846976xf32>"
    return b"module { func.func @main(%a: " + kind + b") -> " + kind + b" { return %a : " + kind + b" } }"


CASES: dict[str, bytes] = {
    "truncated": truncated(),
    "noise": noise(1),
    "nested": nested(5000),
    "brackets": brackets(50_000),
    "recursive": recursive(),
    "enormous": enormous(),
    "unknown dialect": b'module { func.func @main() { "mystery.op"() : () -> () return } }',
    "no main": b"module {}",
    "zeros": bytes(100_000),
    "many operations": b"module {\n" + b"func.func private @f()\n" * 40_000 + b"}",
}


@pytest.mark.parametrize("name", CASES)
def test_hostile_programs(server: Running, name: str) -> None:
    def rejected(call: Any) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            list(call())
        assert info_of(caught.value).reason in KNOWN, caught.value

    graph = inline(CASES[name])
    namespace = header("hostile")
    rejected(lambda: server.stub.CompileKernel(compile_request(graph, "hostile")))
    counts = server.stub.GetStats(pb.GetStatsRequest(header=namespace))
    assert counts.kernels == 0
    assert result_of(server.stub.CompileKernel(compile_request(inline(add(4)), "fine")))


def test_flipped_bits_never_hurt_the_server(server: Running) -> None:
    calls = [
        server.stub.StoreGraph.future(
            pb.StoreGraphRequest(header=header("flips"), graph=inline(flipped(seed)))
        )
        for seed in range(30)
    ]
    for call in calls:
        error = call.exception()
        assert error is None or info_of(error).reason in KNOWN
    assert result_of(server.stub.CompileKernel(compile_request(inline(add(4)), "fine")))


NO_MESSAGE = b"\x0a\xff\xff no message"


def _sent(method: str, bodies: list[bytes], channel: grpc.Channel) -> None:
    path = f"/kcache.v1.KernelCache/{method}"
    if method == "UploadProgram":
        channel.stream_unary(path)(iter(bodies))
    else:
        list(channel.unary_stream(path)(bodies[0]))


@pytest.mark.parametrize("method", ["LookupGraph", "CompileKernel", "GetStats", "UploadProgram"])
def test_bytes_that_are_no_request(server: Running, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _sent(method, [NO_MESSAGE], server.channel)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # pyright: ignore
    assert info_of(caught.value).reason == "ARGUMENT"


def test_a_message_within_an_upload_that_is_none(server: Running) -> None:
    first = pb.UploadProgramRequest(
        header=header("hostile"), size_bytes=10, program_digest=bytes(32), format=STABLEHLO
    )
    with pytest.raises(grpc.RpcError) as caught:
        _sent("UploadProgram", [first.SerializeToString(), NO_MESSAGE], server.channel)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # pyright: ignore
    assert "no message" in caught.value.details()  # pyright: ignore

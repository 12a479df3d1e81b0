"""What is rejected: with a typed error that names the limit, and nothing is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.service.values import Limits
from tests.server.harness.programs import (
    TARGET,
    add,
    by_digest,
    compile_request,
    digest,
    header,
    inline,
    kernels_request,
)
from tests.server.harness.running import Running, config_in, running
from tests.server.rpcs.test_errors import info_of

LIMITS = Limits(program_bytes=20_000, inline_program_bytes=10_000, operations=50, nesting=5, queries=10)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(config_in(tmp_path_factory.mktemp("limits"), limits=LIMITS)) as server:
        yield server


def rejected(call: Any) -> tuple[str, str, dict[str, str]]:
    """Code, reason and metadata of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        list(call())
    info = info_of(caught.value)
    return caught.value.code().name, info.reason, dict(info.metadata)


def store(server: Running, body: bytes, **rest: Any) -> Any:
    return server.stub.StoreGraph(pb.StoreGraphRequest(header=header("limits"), graph=inline(body), **rest))


def chain(operations: int) -> bytes:
    lines = [f"%{i + 1} = stablehlo.add %{i}, %{i} : tensor<4xf32>" for i in range(operations)]
    body = "\n".join(lines).replace("%0,", "%a,").replace("%0 ", "%a ")
    return (
        f"module {{ func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ {body}\n"
        f"return %{operations} : tensor<4xf32> }} }}"
    ).encode()


def test_too_many_operations(server: Running) -> None:
    code, reason, metadata = rejected(lambda: store(server, chain(51)))
    assert (code, reason) == ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED")
    assert "operations" in metadata["limit"]
    assert store(server, chain(40)).key >= 1


def test_a_program_too_large_for_a_request(server: Running) -> None:
    code, _, metadata = rejected(lambda: store(server, b" " * 10_001))
    assert code == "RESOURCE_EXHAUSTED"
    assert metadata["limit"] == "max_inline_program_bytes"


def test_a_program_too_large_for_an_upload(server: Running) -> None:
    first = pb.UploadProgramRequest(
        header=header("limits"),
        format=common_pb2.PROGRAM_FORMAT_STABLEHLO,
        size_bytes=20_001,
        program_digest=bytes(32),
    )
    code, _, metadata = rejected(lambda: server.stub.UploadProgram(iter([first])))
    assert (code, metadata["limit"]) == ("RESOURCE_EXHAUSTED", "max_program_bytes")


def test_too_many_queries(server: Running) -> None:
    code, _, metadata = rejected(lambda: server.stub.GetKernels(kernels_request([add(4)] * 11, "limits")))
    assert (code, metadata["limit"]) == ("RESOURCE_EXHAUSTED", "max_queries")


@pytest.mark.parametrize("body", [b"", b"\0" * 100, b"module {", b"not mlir at all", b"ML\xefR" + bytes(50)])
def test_what_is_no_program(server: Running, body: bytes) -> None:
    code, reason, _ = rejected(lambda: store(server, body))
    assert (code, reason) == ("INVALID_ARGUMENT", "INVALID_PROGRAM")


@pytest.mark.parametrize("format", [0, 3, 4, 5, 77])
def test_formats_of_another_version(server: Running, format: int) -> None:
    graph = common_pb2.GraphSource(program=common_pb2.Program(format=format, body=add(4)))  # pyright: ignore
    request = pb.StoreGraphRequest(header=header("limits"), graph=graph)
    assert rejected(lambda: server.stub.StoreGraph(request))[:2] == ("INVALID_ARGUMENT", "INVALID_PROGRAM")


BAD_REQUESTS: dict[str, Any] = {
    "namespace": lambda s: s.CountSpecs(pb.CountSpecsRequest(header=header("No Spaces"))),
    "long namespace": lambda s: s.CountSpecs(pb.CountSpecsRequest(header=header("n" * 129))),
    "request id": lambda s: s.CountSpecs(pb.CountSpecsRequest(header=header("limits", "r" * 129))),
    "no graph": lambda s: s.StoreGraph(pb.StoreGraphRequest(header=header("limits"))),
    "digest": lambda s: s.StoreGraph(
        pb.StoreGraphRequest(header=header("limits"), graph=common_pb2.GraphSource(program_digest=b"short"))
    ),
    "query digest": lambda s: s.GetKernels(
        pb.GetKernelsRequest(queries=[pb.KernelQuery(program_digest=b"short")], target=TARGET)
    ),
    "no target": lambda s: s.GetKernels(pb.GetKernelsRequest(header=header("limits"))),
    "target": lambda s: s.CompileKernel(
        compile_request(inline(add(4)), target=common_pb2.Target(cpu=common_pb2.CpuTarget(isa="z80")))
    ),
    "triple": lambda s: s.CompileKernel(
        compile_request(
            inline(add(4)),
            target=common_pb2.Target(
                cpu=common_pb2.CpuTarget(isa="aarch64", triple="x86_64-unknown-linux-gnu")
            ),
        )
    ),
    "gpu": lambda s: s.CompileKernel(
        compile_request(inline(add(4)), target=common_pb2.Target(gpu=common_pb2.GpuTarget(arch="sm_130")))
    ),
    "opt level": lambda s: s.CompileKernel(
        compile_request(inline(add(4)), options=common_pb2.Options(opt_level=4))
    ),
    "tuning": lambda s: s.CompileKernel(
        compile_request(inline(add(4)), options=common_pb2.Options(tuning_model="cray-1"))
    ),
    "artifact kind": lambda s: s.CompileKernel(compile_request(inline(add(4)), artifact_kinds=[99])),
    "artifact digest": lambda s: s.ReadArtifact(pb.ReadArtifactRequest(sha256=b"short")),
    "empty upload": lambda s: s.UploadProgram(iter([])),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_arguments(server: Running, name: str) -> None:
    code, reason, _ = rejected(lambda: BAD_REQUESTS[name](server.stub))
    assert (code, reason) == ("INVALID_ARGUMENT", "ARGUMENT")


def test_what_is_not_there(server: Running) -> None:
    def reason(call: Any) -> tuple[str, str]:
        return rejected(call)[:2]

    missing = ("NOT_FOUND", "NOT_FOUND")
    assert reason(lambda: server.stub.GetSpec(pb.GetSpecRequest(header=header("void"), key=1))) == missing
    assert reason(lambda: server.stub.GetSpec(pb.GetSpecRequest(header=header("void"), key=-1))) == missing
    assert reason(lambda: server.stub.ReadArtifact(pb.ReadArtifactRequest(sha256=bytes(32)))) == missing
    needed = ("NOT_FOUND", "PROGRAM_REQUIRED")
    graph = by_digest(add(77))
    for call in (
        lambda: server.stub.StoreGraph(pb.StoreGraphRequest(graph=graph)),
        lambda: server.stub.LookupGraph(pb.LookupGraphRequest(graph=graph)),
        lambda: server.stub.NormalizeGraph(pb.NormalizeGraphRequest(graph=graph)),
        lambda: server.stub.CompileKernel(compile_request(graph)),
    ):
        assert reason(call) == needed
    assert len(digest(add(77))) == 32


def test_nothing_of_what_was_rejected_is_stored(server: Running) -> None:
    reply = server.stub.GetStats(pb.GetStatsRequest(header=header("void")))
    assert (reply.specs, reply.mappings, reply.kernels, reply.artifacts) == (0, 0, 0, 0)


def test_an_operation_without_lowering_has_a_key_and_no_kernel(server: Running) -> None:
    kind = "tensor<8xcomplex<f32>>"
    body = (
        f"module {{ func.func @main(%a: {kind}) -> {kind} {{\n"
        f"  %r = stablehlo.custom_call @anything(%a) : ({kind}) -> {kind}\n"
        f"  return %r : {kind}\n}} }}\n"
    ).encode()
    namespace = header("call")
    assert server.stub.StoreGraph(pb.StoreGraphRequest(header=namespace, graph=inline(body))).key == 1
    code, reason, metadata = rejected(
        lambda: server.stub.CompileKernel(compile_request(inline(body), "call"))
    )
    assert (code, reason) == ("UNIMPLEMENTED", "UNSUPPORTED_OP")
    assert metadata["op"] == "stablehlo.custom_call"
    (reply,) = server.stub.GetKernels(kernels_request([body], "call"))
    assert reply.results[0].status == pb.KERNEL_STATUS_FAILED
    assert reply.results[0].failure.reason == "UNSUPPORTED_OP"


def test_more_calls_at_once_than_grpc_lets_wait_by_default_are_all_answered(tmp_path: Path) -> None:
    """Beyond 1000 calls that nobody has looked at yet, it would cancel some at random."""
    with running(config_in(tmp_path)) as server:
        looked, sent = threading.Event(), threading.Event()

        def hold_the_loop() -> None:
            looked.set()
            sent.wait(60)

        server.loop.call_soon_threadsafe(hold_the_loop)
        looked.wait(60)
        calls = [server.stub.CountSpecs.future(pb.CountSpecsRequest()) for _ in range(1300)]
        sent.set()
        assert {call.result(timeout=120).count for call in calls} == {0}

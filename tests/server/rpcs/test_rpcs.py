"""Every RPC of KernelCache against a real server on real SQLite, with the real compiler."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Verifier
from kcache_grpc.storage import open_store
from tests.server.harness.programs import (
    ISA,
    SO,
    TARGET,
    add,
    by_digest,
    compile_request,
    digest,
    header,
    inline,
    kernels_request,
    result_of,
    stages_of,
)
from tests.server.harness.running import Running


def verified(server: Running, domain: bytes, signed: common_pb2.SignedBytes) -> bytes:
    key = server.stub.GetCapabilities(pb.GetCapabilitiesRequest()).public_key
    return Verifier(key).verify(domain, Signed(signed.payload, signed.signature, signed.key_id))


def stats(server: Running, namespace: str) -> pb.GetStatsResponse:
    return server.stub.GetStats(pb.GetStatsRequest(header=header(namespace)))


def test_capabilities_say_who_the_server_is_and_what_it_allows(server: Running) -> None:
    reply = server.stub.GetCapabilities(pb.GetCapabilitiesRequest(header=header("caps")))
    assert reply.server_id == hashlib.sha256(reply.public_key).hexdigest()
    toolchain = tuple((item.name, item.value) for item in reply.toolchain)
    assert reply.toolchain_digest == toolchain_digest(toolchain)
    assert {"torch-mlir", "llvmlite"} <= {name for name, _ in toolchain}
    gpu_toolchain = tuple((item.name, item.value) for item in reply.gpu_toolchain)
    assert reply.gpu_toolchain_digest == toolchain_digest(gpu_toolchain)
    assert "ptxas" in {name for name, _ in gpu_toolchain} - {name for name, _ in toolchain}
    assert reply.epoch == 1
    assert reply.canonicalizer >= 1
    assert reply.limits.max_program_bytes > reply.limits.max_inline_program_bytes > 0
    assert reply.limits.compile_timeout.seconds > 0
    targets = [target.cpu.isa or target.gpu.arch for target in reply.targets]
    assert targets[:5] == ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "aarch64-sve"]
    assert {"znver5", "sapphirerapids", "neoverse-v1", "sm_75", "sm_90a", "sm_120"} <= set(targets)
    assert list(reply.abis) == [1, 2]


def test_normalize_gives_text_and_types_and_stores_nothing(server: Running) -> None:
    request = pb.NormalizeGraphRequest(header=header("norm"), graph=inline(add(4)))
    first, *rest = server.stub.NormalizeGraph(request)
    text = first.text_chunk + b"".join(part.text_chunk for part in rest)
    assert len(text) == first.text_size_bytes
    assert hashlib.sha256(text).digest() == first.spec_digest
    assert [list(tensor.dims) for tensor in first.inputs] == [["4", "8"], ["4", "8"]]
    assert [list(tensor.dims) for tensor in first.outputs] == [["4", "8"]]
    assert server.stub.CountSpecs(pb.CountSpecsRequest(header=header("norm"))).count == 0


def test_store_gives_the_same_key_again_and_signs_the_binding(server: Running) -> None:
    request = pb.StoreGraphRequest(header=header("store"), graph=inline(add(4)))
    first, second = server.stub.StoreGraph(request), server.stub.StoreGraph(request)
    assert (first.key, first.created) == (1, True)
    assert (second.key, second.created) == (1, False)
    assert second.binding == first.binding
    binding = Binding.from_bytes(verified(server, BINDING_DOMAIN, first.binding))
    assert binding.program_digest == Program(ProgramFormat.STABLEHLO, add(4)).digest
    assert (binding.namespace, binding.epoch, binding.key) == ("store", 1, 1)
    assert binding.spec_digest == first.spec_digest
    assert binding.arg_spec == "f32[4,8];f32[4,8]"


def test_renamed_and_resized_graphs_meet_one_key_and_another_graph_the_next(server: Running) -> None:
    def store(body: bytes) -> pb.StoreGraphResponse:
        return server.stub.StoreGraph(pb.StoreGraphRequest(header=header("keys"), graph=inline(body)))

    first, renamed, resized = store(add(4)), store(add(4, names=("x", "y"))), store(add(5))
    other = store(add(4, op="multiply"))
    assert (first.key, renamed.key, resized.key, other.key) == (1, 1, 1, 2)
    assert not renamed.created
    assert not resized.created
    assert len({reply.binding.payload for reply in (first, renamed, resized)}) == 3
    assert server.stub.CountSpecs(pb.CountSpecsRequest(header=header("keys"))).count == 2


def test_numerics_are_part_of_the_spec(server: Running) -> None:
    keys = [
        server.stub.StoreGraph(
            pb.StoreGraphRequest(header=header("numerics"), graph=inline(add(4)), numerics=numerics)
        ).key
        for numerics in (
            common_pb2.NUMERICS_STRICT,
            common_pb2.NUMERICS_DEFAULT,
            common_pb2.NUMERICS_UNSPECIFIED,
        )
    ]
    assert keys == [1, 2, 2]


def test_lookup_finds_what_is_stored_and_nothing_else(server: Running) -> None:
    request = pb.LookupGraphRequest(header=header("look"), graph=inline(add(4)))
    assert not server.stub.LookupGraph(request).HasField("spec")
    stored = server.stub.StoreGraph(pb.StoreGraphRequest(header=header("look"), graph=inline(add(4))))
    renamed = pb.LookupGraphRequest(header=header("look"), graph=inline(add(4, names=("x", "y"))))
    for reply in (server.stub.LookupGraph(request), server.stub.LookupGraph(renamed)):
        assert (reply.spec.key, reply.spec.spec_digest) == (stored.key, stored.spec_digest)
        assert reply.spec.create_time.seconds > 1_700_000_000
    assert server.stub.CountSpecs(pb.CountSpecsRequest(header=header("look"))).count == 1


def test_a_spec_is_read_back_by_key(server: Running) -> None:
    stored = server.stub.StoreGraph(pb.StoreGraphRequest(header=header("spec"), graph=inline(add(4))))
    replies = list(server.stub.GetSpec(pb.GetSpecRequest(header=header("spec"), key=stored.key)))
    text = b"".join(reply.text_chunk for reply in replies)
    assert hashlib.sha256(text).digest() == stored.spec_digest == replies[0].spec.spec_digest
    assert replies[0].spec.text_size_bytes == len(text)


def test_small_artifacts_come_inside_the_result_within_the_budget_of_the_request(server: Running) -> None:
    chunked = list(server.stub.CompileKernel(compile_request(inline(add(6)), "inline", artifact_kinds=[SO])))
    content = b"".join(reply.chunk.data for reply in chunked if reply.HasField("chunk"))
    assert not result_of(chunked).artifacts

    def ask(budget: int) -> list[pb.CompileKernelResponse]:
        request = compile_request(inline(add(6)), "inline", artifact_kinds=[SO], inline_budget_bytes=budget)
        return list(server.stub.CompileKernel(request))

    (whole,) = ask(len(content))
    (artifact,) = whole.result.artifacts
    assert artifact.data == content
    assert artifact.ref.sha256 == hashlib.sha256(content).digest()
    result, *chunks = ask(len(content) - 1)
    assert not result.result.artifacts
    assert b"".join(reply.chunk.data for reply in chunks) == content


def test_compile_streams_stages_then_the_signed_result_then_bytes(server: Running) -> None:
    replies = list(server.stub.CompileKernel(compile_request(inline(add(6)), "comp", artifact_kinds=[SO])))
    kinds = [reply.WhichOneof("event") for reply in replies]
    assert kinds.index("result") == kinds.count("stage") + kinds.count("heartbeat")
    assert set(kinds[kinds.index("result") + 1 :]) == {"chunk"}
    stages = stages_of(replies)
    assert stages[:3] == ["canonicalize", "store", "queued"]
    assert stages[-1] == "publish"
    result = result_of(replies)
    assert result.origin == pb.ORIGIN_COMPILED
    manifest = Manifest.from_bytes(verified(server, MANIFEST_DOMAIN, result.manifest))
    binding = Binding.from_bytes(verified(server, BINDING_DOMAIN, result.binding))
    assert (manifest.key, manifest.spec_digest) == (binding.key, binding.spec_digest)
    assert str(manifest.target) == ISA
    assert manifest.compile_seconds > 0
    content = b"".join(reply.chunk.data for reply in replies if reply.HasField("chunk"))
    so = manifest.artifact("so")
    assert so is not None
    assert (hashlib.sha256(content).digest(), len(content)) == (so.sha256, so.size)
    assert content.startswith(b"\x7fELF")


def test_a_repeat_compiles_nothing_parses_nothing_and_uploads_nothing(server: Running) -> None:
    compiled = result_of(server.stub.CompileKernel(compile_request(inline(add(7)), "again")))
    before = stats(server, "again")
    repeat = result_of(server.stub.CompileKernel(compile_request(by_digest(add(7)), "again")))
    (reply,) = server.stub.GetKernels(kernels_request([add(7)], "again"))
    assert repeat.origin == pb.ORIGIN_STORED
    assert repeat.manifest == compiled.manifest == reply.results[0].manifest
    after = stats(server, "again")
    assert after.programs_parsed == before.programs_parsed
    assert (after.compiles, after.kernels) == (1, 1)
    assert after.hits == before.hits + 2
    assert after.time_saved.ToNanoseconds() > 0
    assert after.memory_hits >= before.memory_hits + 2


def test_a_renamed_graph_gets_the_kernel_of_the_first(server: Running) -> None:
    first = result_of(server.stub.CompileKernel(compile_request(inline(add(8)), "renamed")))
    second = result_of(
        server.stub.CompileKernel(compile_request(inline(add(8, names=("x", "y"))), "renamed"))
    )
    assert second.origin == pb.ORIGIN_STORED
    assert second.manifest == first.manifest
    assert stats(server, "renamed").compiles == 1


def test_get_kernels_answers_every_query_once_and_says_what_is_missing(server: Running) -> None:
    other = add(3, op="multiply")
    server.stub.StoreGraph(pb.StoreGraphRequest(header=header("batch"), graph=inline(other)))
    list(server.stub.CompileKernel(compile_request(inline(add(4)), "batch")))
    bodies = [add(4), add(99), other, add(4)]
    results = [r for reply in server.stub.GetKernels(kernels_request(bodies, "batch")) for r in reply.results]
    statuses = {result.index: result.status for result in results}
    assert statuses == {
        0: pb.KERNEL_STATUS_FOUND,
        1: pb.KERNEL_STATUS_NEED_PROGRAM,
        2: pb.KERNEL_STATUS_NEED_COMPILE,
        3: pb.KERNEL_STATUS_DUPLICATE,
    }
    assert len(results) == 4
    hit = next(result for result in results if result.index == 0)
    assert hit.key == 2
    assert not hit.artifacts


def test_get_kernels_answers_a_call_without_queries_with_one_empty_message(server: Running) -> None:
    (reply,) = server.stub.GetKernels(kernels_request([], "none"))
    assert not reply.results


def test_target_and_options_are_part_of_a_kernel(server: Running) -> None:
    list(server.stub.CompileKernel(compile_request(inline(add(4)), "variants")))

    def status(**requirements: Any) -> int:
        (reply,) = server.stub.GetKernels(kernels_request([add(4)], "variants", **requirements))
        return reply.results[0].status

    other = common_pb2.Target(cpu=common_pb2.CpuTarget(isa="x86-64-v2"))
    assert status() == pb.KERNEL_STATUS_FOUND
    assert status(options=common_pb2.Options(opt_level=3)) == pb.KERNEL_STATUS_FOUND
    assert status(target=other) == pb.KERNEL_STATUS_NEED_COMPILE
    assert status(options=common_pb2.Options(opt_level=1)) == pb.KERNEL_STATUS_NEED_COMPILE
    strict = common_pb2.Options(numerics=common_pb2.NUMERICS_STRICT)
    assert status(options=strict) == pb.KERNEL_STATUS_NEED_PROGRAM


def test_artifacts_come_inline_up_to_the_budget(server: Running) -> None:
    bodies = [add(rows) for rows in (4, 5, 6)]
    for body in bodies:
        list(server.stub.CompileKernel(compile_request(inline(body), "inline")))
    size = Manifest.from_bytes(
        next(iter(server.stub.GetKernels(kernels_request(bodies, "inline")))).results[0].manifest.payload
    ).artifact("so")
    assert size is not None
    request = kernels_request(bodies, "inline", artifact_kinds=[SO], inline_budget_bytes=size.size * 2)
    results = [r for reply in server.stub.GetKernels(request) for r in reply.results]
    assert [len(r.artifacts) for r in results] == [1, 1, 0]
    for result in results[:2]:
        (artifact,) = result.artifacts
        assert hashlib.sha256(artifact.data).digest() == artifact.ref.sha256


def test_an_artifact_is_read_from_any_offset(server: Running) -> None:
    result = result_of(server.stub.CompileKernel(compile_request(inline(add(4)), "read")))
    ref = Manifest.from_bytes(result.manifest.payload).artifact("so")
    assert ref is not None

    def read(offset: int, limit: int = 0) -> list[pb.ReadArtifactResponse]:
        return list(
            server.stub.ReadArtifact(
                pb.ReadArtifactRequest(
                    header=header("read"), sha256=ref.sha256, read_offset=offset, read_limit=limit
                )
            )
        )

    whole = b"".join(reply.data for reply in read(0))
    assert hashlib.sha256(whole).digest() == ref.sha256
    assert b"".join(reply.data for reply in read(1000)) == whole[1000:]
    assert b"".join(reply.data for reply in read(10, 20)) == whole[10:30]
    assert read(0)[0].size_bytes == ref.size
    (at_end,) = read(ref.size)
    assert (at_end.data, at_end.size_bytes) == (b"", ref.size)
    with pytest.raises(grpc.RpcError) as caught:
        read(ref.size + 1)
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE


def test_large_constants_are_lifted_bound_and_served(server: Running) -> None:
    data = "".join(f"{i % 251:02X}000000" for i in range(4096))
    body = (
        "module { func.func @main(%a: tensor<4096xi32>) -> tensor<4096xi32> {\n"
        f'  %c = stablehlo.constant dense<"0x{data}"> : tensor<4096xi32>\n'
        "  %r = stablehlo.add %a, %c : tensor<4096xi32>\n  return %r : tensor<4096xi32>\n} }\n"
    ).encode()
    result = result_of(server.stub.CompileKernel(compile_request(inline(body), "constants")))
    (constant,) = Binding.from_bytes(result.binding.payload).constants
    request = pb.ReadArtifactRequest(header=header("constants"), sha256=constant.sha256)
    content = b"".join(reply.data for reply in server.stub.ReadArtifact(request))
    assert hashlib.sha256(content).digest() == constant.sha256
    assert content == b"".join((i % 251).to_bytes(4, "little") for i in range(4096))


def test_namespaces_do_not_see_each_other(server: Running) -> None:
    result = result_of(server.stub.CompileKernel(compile_request(inline(add(4)), "one")))
    ref = Manifest.from_bytes(result.manifest.payload).artifact("so")
    assert ref is not None
    (reply,) = server.stub.GetKernels(kernels_request([add(4)], "two"))
    assert reply.results[0].status == pb.KERNEL_STATUS_NEED_PROGRAM
    with pytest.raises(grpc.RpcError) as caught:
        list(server.stub.ReadArtifact(pb.ReadArtifactRequest(header=header("two"), sha256=ref.sha256)))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert digest(add(4)) != digest(add(5))


def test_a_risen_epoch_disowns_mappings_and_kernels_within_a_second(server: Running) -> None:
    list(server.stub.CompileKernel(compile_request(inline(add(4)), "epochs")))

    def status() -> int:
        (reply,) = server.stub.GetKernels(kernels_request([add(4)], "epochs"))
        return reply.results[0].status

    assert status() == pb.KERNEL_STATUS_FOUND
    with open_store(server.config.db) as store:
        store.raise_epoch(store.get_or_create_namespace("epochs"))
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        if status() != pb.KERNEL_STATUS_FOUND:
            break
        # However slow the machine: whoever asks after the window is told.
        assert asked - began < 1.0
    assert status() == pb.KERNEL_STATUS_NEED_PROGRAM
    again = result_of(server.stub.CompileKernel(compile_request(inline(add(4)), "epochs")))
    assert (again.origin, again.key) == (pb.ORIGIN_COMPILED, 1)
    assert Manifest.from_bytes(again.manifest.payload).epoch == 2


def test_the_audit_log_tells_who_stored_published_and_was_served(server: Running) -> None:
    namespace = header("audit", "request-1")
    for _ in range(2):
        request = pb.CompileKernelRequest(header=namespace, graph=inline(add(4)), target=TARGET)
        list(server.stub.CompileKernel(request))
    stats(server, "audit")  # writes down what waits
    with open_store(server.config.db) as store:
        events = [record.event for record in store.list_audit(store.get_or_create_namespace("audit"))]
    assert [event.kind for event in events] == ["store", "publish", "serve"]
    assert {(event.request_id, event.detail, event.key) for event in events} == {
        ("request-1", '{"client": "test/1"}', 1)
    }
    assert events[1].duration_us > 0
    assert events[2].saved_us == events[1].duration_us


def test_many_results_are_packed_into_messages_below_the_limit(server: Running) -> None:
    list(server.stub.CompileKernel(compile_request(inline(add(4)), "packed")))
    bodies = [add(4, names=(f"a{number}", "b")) for number in range(60)]
    for body in bodies:
        result_of(server.stub.CompileKernel(compile_request(inline(body), "packed")))
    request = kernels_request(bodies, "packed", artifact_kinds=[SO], inline_budget_bytes=12 << 20)
    replies = list(server.stub.GetKernels(request))
    assert len(replies) > 1
    assert all(reply.ByteSize() < 1 << 20 for reply in replies)
    assert [result.index for reply in replies for result in reply.results] == list(range(60))
    assert all(result.artifacts for reply in replies for result in reply.results)


@pytest.mark.issue(number=19, point=9)
def test_get_kernels_answers_a_repeated_query_once(server: Running) -> None:
    list(server.stub.CompileKernel(compile_request(inline(add(4)), "repeated")))
    bodies = [add(4), *[add(9)] * 3, *[add(4)] * 1000]
    request = kernels_request(bodies, "repeated", artifact_kinds=[SO], inline_budget_bytes=12 << 20)
    replies = list(server.stub.GetKernels(request))
    assert sum(reply.ByteSize() for reply in replies) < 64 << 10
    results = sorted((each for reply in replies for each in reply.results), key=lambda each: each.index)
    assert [each.index for each in results] == list(range(1004))
    hit, missing, *rest = results
    assert hit.status == pb.KERNEL_STATUS_FOUND
    assert hit.artifacts
    assert missing.status == pb.KERNEL_STATUS_NEED_PROGRAM
    assert {each.status for each in rest} == {pb.KERNEL_STATUS_DUPLICATE}
    assert [each.first_index for each in rest] == [1] * 2 + [0] * 1000


def test_health_and_reflection(server: Running) -> None:
    health = health_pb2_grpc.HealthStub(server.channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    stub: Any = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    (reply,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    names = {service.name for service in reply.list_services_response.service}
    assert {"kcache.v1.KernelCache", "grpc.health.v1.Health"} <= names

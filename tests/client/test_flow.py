"""How a kernel is brought: what is asked, what is sent, what is done when the connection breaks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import CONSTANT, FakeServer, FakeService, Rejection, once

LARGE = PROGRAM + "// " + "x" * (3 << 20) + "\n"


def test_a_miss_asks_by_digest_and_then_sends_the_program(
    client: kcache.Client, service: FakeService
) -> None:
    kernel = client.compile(PROGRAM)
    assert kernel.origin == "compiled"
    assert kernel.key == 1
    assert service.calls == {"GetCapabilities": 1, "GetKernels": 1, "CompileKernel": 1}


def test_a_hit_uploads_nothing(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, service: FakeService, tmp_path: Path
) -> None:
    client.compile(PROGRAM)
    service.calls.clear()
    kernel = new_client(fake.address, cache_dir=tmp_path / "other").compile(PROGRAM)
    assert kernel.origin == "remote"
    assert service.calls == {"GetCapabilities": 1, "GetKernels": 1}


def test_a_known_program_is_compiled_by_its_digest(client: kcache.Client, service: FakeService) -> None:
    client.store(PROGRAM)
    sent: list[str] = []
    service._program = _spy(service._program, sent)  # type: ignore[method-assign]
    assert client.compile(PROGRAM).origin == "compiled"
    assert sent == ["program_digest"]


def _spy(program: Any, sent: list[str]) -> Any:
    def spy(source: Any) -> Any:
        sent.append(source.WhichOneof("source"))
        return program(source)

    return spy


def test_a_known_program_that_was_evicted_is_sent_after_all(
    client: kcache.Client, service: FakeService
) -> None:
    client.store(PROGRAM)
    sent: list[str] = []
    program = service._program

    def forgetful(source: Any) -> Any:
        service.programs.clear()
        return program(source)

    service._program = _spy(forgetful, sent)  # type: ignore[method-assign]
    assert client.compile(PROGRAM).origin == "compiled"
    assert sent == ["program_digest", "program"]


def test_a_joined_compile_counts_as_compiled(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: pb.CompileKernelResponse) -> pb.CompileKernelResponse:
        if reply.WhichOneof("event") == "result":
            reply.result.origin = pb.ORIGIN_JOINED
        return reply

    service.bend["CompileKernel"] = bend
    assert client.compile(PROGRAM).origin == "compiled"


def test_a_kernel_that_appeared_meanwhile_counts_as_remote(
    client: kcache.Client, service: FakeService
) -> None:
    def bend(reply: pb.GetKernelsResponse) -> pb.GetKernelsResponse:
        reply.results[0].status = pb.KERNEL_STATUS_NEED_COMPILE
        return reply

    client.compile(PROGRAM)
    service.bend["GetKernels"] = bend
    options = kcache.Options(opt_level=3)
    assert client.compile(PROGRAM, options=options).origin == "memory"
    service.compiled.clear()
    service.programs.clear()


def test_a_program_above_one_message_is_uploaded(client: kcache.Client, service: FakeService) -> None:
    assert client.compile(LARGE).origin == "compiled"
    assert service.calls["UploadProgram"] == 1


def test_a_broken_upload_resumes(client: kcache.Client, service: FakeService) -> None:
    starts: list[int] = []

    def breaks(held: bytes) -> None:
        starts.append(len(held))
        if len(starts) == 1:
            raise Rejection(grpc.StatusCode.UNAVAILABLE, "gone")

    service.bend["UploadPart"] = breaks
    assert client.compile(LARGE).origin == "compiled"
    assert service.calls["UploadProgram"] == 2
    # Two parts had come; the second upload began behind them.
    assert starts == [2 << 20, len(LARGE)]


def test_a_program_above_the_servers_limit_is_not_sent(client: kcache.Client, service: FakeService) -> None:
    service.limits.max_program_bytes = 1000
    with pytest.raises(kcache.ResourceExhausted) as caught:
        client.compile(PROGRAM + "//" + "x" * 1000 + "\n")
    assert caught.value.metadata["limit"] == "max_program_bytes"
    assert "CompileKernel" not in service.calls


def test_constants_come_in_their_order_and_are_read_once(
    client: kcache.Client, service: FakeService, fake: FakeServer, new_client: NewClient
) -> None:
    service.constants = (CONSTANT, b"small")
    client.compile(PROGRAM)
    assert service.calls["ReadArtifact"] == 2
    kernel = new_client(fake.address).compile(PROGRAM)
    assert kernel.origin == "disk"
    assert service.calls["ReadArtifact"] == 2
    assert list(kernel._constant_bytes) == [CONSTANT, b"small"]


def test_a_broken_download_resumes_where_it_broke(client: kcache.Client, service: FakeService) -> None:
    service.constants = (CONSTANT,)
    service.bend["ReadArtifact"] = once(Rejection(grpc.StatusCode.UNAVAILABLE, "gone"), after=2)
    client.compile(PROGRAM)
    assert service.read_offsets == [0, 2 << 20]


def test_a_broken_stream_is_attached_to_again(client: kcache.Client, service: FakeService) -> None:
    service.bend["CompileKernel"] = once(Rejection(grpc.StatusCode.UNAVAILABLE, "gone"), after=1)
    assert client.compile(PROGRAM).origin == "compiled"
    assert service.calls["CompileKernel"] == 2
    assert client.stats().client["retries"] == 1


def test_a_stream_that_breaks_among_the_bytes_is_finished_by_reading(
    client: kcache.Client, service: FakeService
) -> None:
    service.bend["CompileKernel"] = once(Rejection(grpc.StatusCode.UNAVAILABLE, "gone"), after=4)
    assert client.compile(PROGRAM).origin == "compiled"
    assert service.calls["CompileKernel"] == 1
    [offset] = service.read_offsets
    assert offset > 0


def test_evicted_bytes_are_a_miss(
    fake: FakeServer, client: kcache.Client, new_client: NewClient, service: FakeService, tmp_path: Path
) -> None:
    client.compile(PROGRAM)
    service.inline = False
    service.artifacts.clear()
    kernel = new_client(fake.address, cache_dir=tmp_path / "other").compile(PROGRAM)
    assert kernel.origin == "remote"
    assert service.calls["CompileKernel"] == 2


@pytest.mark.parametrize(
    ("rejection", "error", "calls"),
    [
        (Rejection(grpc.StatusCode.UNAVAILABLE, "restarting", "UNAVAILABLE"), None, 2),
        (Rejection(grpc.StatusCode.CANCELLED, "shutdown"), None, 2),
        (Rejection(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"), None, 2),
        (Rejection(grpc.StatusCode.INTERNAL, "bug"), kcache.KcacheError, 1),
        (Rejection(grpc.StatusCode.PERMISSION_DENIED, "no"), kcache.PermissionDenied, 1),
        (Rejection(grpc.StatusCode.UNAUTHENTICATED, "no token"), kcache.PermissionDenied, 1),
        (
            Rejection(grpc.StatusCode.UNIMPLEMENTED, "no fft", "UNSUPPORTED_OP", op="stablehlo.fft"),
            kcache.UnsupportedOp,
            1,
        ),
        (
            Rejection(grpc.StatusCode.FAILED_PRECONDITION, "no", "COMPILE_FAILED", stage="link"),
            kcache.CompileFailed,
            1,
        ),
        (Rejection(grpc.StatusCode.DEADLINE_EXCEEDED, "slow", "COMPILE_TIMEOUT"), kcache.CompileTimeout, 1),
        (Rejection(grpc.StatusCode.INVALID_ARGUMENT, "bad", "INVALID_PROGRAM"), kcache.InvalidProgram, 1),
        (Rejection(grpc.StatusCode.FAILED_PRECONDITION, "new", "FROM_THE_FUTURE"), kcache.KcacheError, 1),
    ],
)
def test_errors_are_what_the_server_meant_and_only_absence_is_retried(
    client: kcache.Client,
    service: FakeService,
    rejection: Rejection,
    error: type[kcache.KcacheError] | None,
    calls: int,
) -> None:
    service.bend["CompileKernel"] = once(rejection)
    if error is None:
        client.compile(PROGRAM)
    else:
        with pytest.raises(error) as caught:
            client.compile(PROGRAM)
        assert type(caught.value) is error
        assert rejection.message in str(caught.value)
        assert caught.value.metadata.items() >= rejection.metadata.items()
    assert service.calls["CompileKernel"] == calls


def test_a_remembered_failure_is_raised_as_what_it_was(client: kcache.Client, service: FakeService) -> None:
    def bend(reply: pb.GetKernelsResponse) -> pb.GetKernelsResponse:
        reply.results[0].status = pb.KERNEL_STATUS_FAILED
        return reply

    client.store(PROGRAM)
    service.bend["GetKernels"] = bend
    service.bend["CompileKernel"] = once(
        Rejection(grpc.StatusCode.UNIMPLEMENTED, "no fft", "UNSUPPORTED_OP", op="stablehlo.fft")
    )
    with pytest.raises(kcache.UnsupportedOp, match="no fft") as caught:
        client.compile(PROGRAM)
    assert caught.value.op == "stablehlo.fft"
    # It expired meanwhile.
    assert client.compile(PROGRAM).origin == "compiled"


def test_progress_is_told(client: kcache.Client) -> None:
    seen: list[tuple[str, float]] = []
    client.compile(PROGRAM, on_progress=lambda stage, seconds: seen.append((stage, seconds)))
    assert [stage for stage, _ in seen] == ["lower", "lower", "receive"]
    assert all(seconds >= 0 for _, seconds in seen)


def test_an_error_of_on_progress_reaches_the_caller(client: kcache.Client) -> None:
    def fails(stage: str, seconds: float) -> None:
        raise RuntimeError(stage)

    with pytest.raises(RuntimeError, match="lower"):
        client.compile(PROGRAM, on_progress=fails)
    assert client.compile(PROGRAM).origin in ("compiled", "remote")


def test_sixteen_threads_make_one_question(client: kcache.Client, service: FakeService) -> None:
    service.hold.clear()
    begun = threading.Barrier(17)

    def compile() -> kcache.Kernel:
        begun.wait()
        return client.compile(PROGRAM, on_progress=lambda stage, seconds: service.hold.set())

    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(compile) for _ in range(16)]
        begun.wait()
        kernels = [future.result(120) for future in futures]
    assert service.calls["CompileKernel"] == 1
    assert service.calls["GetKernels"] == 1
    assert {kernel.key for kernel in kernels} == {1}
    assert {kernel.origin for kernel in kernels} <= {"compiled", "memory"}


def test_a_shared_failure_reaches_all_who_wait(client: kcache.Client, service: FakeService) -> None:
    rejection = Rejection(grpc.StatusCode.FAILED_PRECONDITION, "no", "COMPILE_FAILED")

    def bend(reply: Any) -> Any:
        raise rejection

    service.bend["CompileKernel"] = bend
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(client.compile, PROGRAM) for _ in range(8)]
        errors = [future.exception(120) for future in futures]
    assert all(isinstance(error, kcache.CompileFailed) for error in errors)


def test_many_programs_make_one_question(client: kcache.Client, service: FakeService) -> None:
    programs = [PROGRAM + "\n" * count for count in range(6)]
    client.compile(programs[2])
    service.calls.clear()
    kernels = client.compile_many([*programs, programs[0]])
    assert [kernel.binding.program_digest for kernel in kernels[:6]] == list(
        dict.fromkeys(kernel.binding.program_digest for kernel in kernels)
    )
    assert kernels[2].origin == "memory"
    assert kernels[6].key == kernels[0].key
    assert service.calls == {"GetKernels": 1, "CompileKernels": 1}
    assert service.together == 5


def test_questions_are_cut_at_the_servers_limit(client: kcache.Client, service: FakeService) -> None:
    service.limits.max_queries = 2
    client.compile_many([PROGRAM + "\n" * count for count in range(5)])
    assert service.calls["GetKernels"] == 3


def test_graph_operations(client: kcache.Client, service: FakeService) -> None:
    assert client.lookup(PROGRAM) is None
    assert client.count() == 0
    assert client.store(PROGRAM) == 1
    assert client.store(PROGRAM, numerics="strict") == 1
    client.compile(PROGRAM)
    spec = client.lookup(PROGRAM)
    assert spec is not None
    assert (spec.key, spec.text, spec.numerics, spec.canonicalizer) == (1, "canonical é text", "default", 1)
    assert client.retrieve(1) == spec
    assert client.retrieve(2) is None
    assert client.retrieve(0) is None
    assert client.retrieve(2**80) is None
    assert client.count() == 1
    graph = client.normalize(PROGRAM, numerics="fast")
    assert graph.text == "kcache fast"
    stats = client.stats()
    assert (stats.specs, stats.hits, stats.client["compiled_kernels"]) == (1, 7, 1)
    with pytest.raises(kcache.ArgumentError, match="a key is an int"):
        client.retrieve("1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"layouts": {}}, {"layouts": "column-major"}, {"layouts": [(1, 4)]}, {"symbols": ()},
     {"symbols": [(0, 0)]}, {"dynamic": "sometimes"}, {"dynamic": 1}, {"dynamic": None},
     {"dynamic": True, "symbols": ()}, {"dynamic": True, "symbols": [(0,)]},
     {"dynamic": True, "symbols": [(0, -1)]}, {"dynamic": True, "symbols": ["00"]},
     {"dynamic": True, "symbols": "00"}, {"dynamic": True, "symbols": {(0, 0): 8}},
     {"dynamic": "auto", "symbols": [(0, 0), (0, 0)]}, {"options": "fast"},
     {"target": "sm_130"}, {"format": ["x"]}],
)  # fmt: skip
def test_wrong_arguments_are_rejected_before_anything_is_sent(
    client: kcache.Client, service: FakeService, wrong: dict[str, Any]
) -> None:
    with pytest.raises(kcache.ArgumentError):
        client.compile(PROGRAM, **wrong)
    assert not service.calls


def test_every_request_names_namespace_client_and_request(
    fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    service.namespace = "team"
    client = new_client(fake.address, namespace="team")
    client.compile(PROGRAM)
    client.count()
    headers = service.headers
    assert {header.namespace for header in headers} == {"team"}
    assert all(header.client_version.startswith("kcache-python/") for header in headers)
    assert len({header.request_id for header in headers}) == len(headers)


def test_a_closed_client_says_so_and_its_kernels_stay(client: kcache.Client) -> None:
    kernel = client.compile(PROGRAM)
    client.close()
    client.close()
    for call in (lambda: client.compile(PROGRAM), client.count, lambda: client.store(PROGRAM)):
        with pytest.raises(kcache.ArgumentError, match="closed"):
            call()
    assert kernel.artifact("so").startswith(b"\x7fELF")


def test_representation(client: kcache.Client, fake: FakeServer) -> None:
    assert repr(client) == f"<kcache.Client {fake.address} default>"

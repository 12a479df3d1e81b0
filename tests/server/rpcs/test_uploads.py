"""Uploads resume where they broke, are verified, and are good for every RPC that takes a digest."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.program import Program
from kcache_grpc.server.request_log import RequestLog
from kcache_grpc.server.rpc_handlers import Call, RpcHandlers
from kcache_grpc.service.compile.reply_cache import ReplyCache
from kcache_grpc.service.graphs.uploads import Uploads
from kcache_grpc.service.tasks.single_flight import InFlightCall
from kcache_grpc.service.values import Answer
from tests.server.harness.programs import add, by_digest, compile_request, digest, header, result_of
from tests.server.harness.running import Running
from tests.server.rpcs.test_errors import info_of

STABLEHLO = common_pb2.PROGRAM_FORMAT_STABLEHLO


def messages(
    body: bytes, namespace: str, offset: int = 0, step: int = 50
) -> Iterator[pb.UploadProgramRequest]:
    yield pb.UploadProgramRequest(
        header=header(namespace),
        format=STABLEHLO,
        size_bytes=len(body),
        write_offset=offset,
        program_digest=digest(body),
    )
    for start in range(offset, len(body), step):
        yield pb.UploadProgramRequest(data=body[start : start + step])


def progress(server: Running, body: bytes, namespace: str) -> pb.GetUploadResponse:
    request = pb.GetUploadRequest(header=header(namespace), program_digest=digest(body))
    return server.stub.GetUpload(request)


def test_an_uploaded_program_compiles_by_its_digest(server: Running) -> None:
    reply = server.stub.UploadProgram(messages(add(60), "up"))
    assert (reply.complete, reply.committed_size_bytes) == (True, len(add(60)))
    assert progress(server, add(60), "up").complete
    result = result_of(server.stub.CompileKernel(compile_request(by_digest(add(60)), "up")))
    assert result.origin == pb.ORIGIN_COMPILED


def test_who_uploaded_is_not_told_what_an_earlier_request_found(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``late`` joins a look that began before the upload."""
    looked, joined, find, join = threading.Event(), threading.Event(), Uploads.find, ReplyCache.join

    def joining(self: ReplyCache, *request: Any) -> tuple[InFlightCall[Answer], bool]:
        flight, ours = join(self, *request)
        if not ours:
            joined.set()
        return flight, ours

    def slow(self: Uploads, namespace: str, digest: bytes) -> Program | None:
        upload = find(self, namespace, digest)
        if not looked.is_set():
            looked.set()
            assert joined.wait(60)
        return upload

    monkeypatch.setattr(Uploads, "find", slow)
    monkeypatch.setattr(ReplyCache, "join", joining)
    request = compile_request(by_digest(add(59)), "early")
    early = server.stub.CompileKernel(request)
    assert looked.wait(60)
    assert server.stub.UploadProgram(messages(add(59), "early")).complete
    late = server.stub.CompileKernel(request)
    assert result_of(late).origin == pb.ORIGIN_COMPILED
    with pytest.raises(grpc.RpcError) as raised:
        result_of(early)
    assert info_of(raised.value).reason == "PROGRAM_REQUIRED"


def test_a_large_program_arrives_whole(server: Running) -> None:
    body = add(61) + b"// " + b"x" * (5 << 20) + b"\n"
    assert server.stub.UploadProgram(messages(body, "large", step=1 << 20)).complete
    request = pb.StoreGraphRequest(header=header("large"), graph=by_digest(body))
    assert server.stub.StoreGraph(request).key == 1


def test_a_broken_upload_resumes(server: Running) -> None:
    body = add(62)
    arrived = threading.Event()

    def half() -> Iterator[pb.UploadProgramRequest]:
        sent = messages(body, "broken")
        for _ in range(3):
            yield next(sent)
        arrived.wait()

    call = server.stub.UploadProgram.future(half())
    while (held := progress(server, body, "broken")).committed_size_bytes < 100:
        assert not call.done()  # written parts are seen at once
    call.cancel()
    arrived.set()
    assert (held.complete, held.committed_size_bytes) == (False, 100)
    reply = _again(server, body, held.committed_size_bytes)
    assert (reply.complete, reply.committed_size_bytes) == (True, len(body))


def _again(server: Running, body: bytes, offset: int) -> pb.UploadProgramResponse:
    """Until the server has noticed that the first stream is gone, the program is being written by it."""
    while True:
        call = server.stub.UploadProgram.future(messages(body, "broken", offset))
        if call.exception() is None:
            return call.result()
        assert call.code() is grpc.StatusCode.UNAVAILABLE


def test_a_part_only_is_kept_and_not_complete(server: Running) -> None:
    body = add(63)
    first, second, *_ = messages(body, "part")
    reply = server.stub.UploadProgram(iter([first, second]))
    assert (reply.complete, reply.committed_size_bytes) == (False, 50)
    assert server.stub.UploadProgram(messages(body, "part", 50)).complete


def test_a_finished_upload_is_finished_for_everybody(server: Running) -> None:
    for _ in range(2):
        assert server.stub.UploadProgram(messages(add(64), "twice")).complete


def code_of(server: Running, parts: Iterator[pb.UploadProgramRequest]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        server.stub.UploadProgram(parts)
    return caught.value.code().name, info_of(caught.value).reason


def test_bytes_that_are_not_the_program_are_rejected_and_forgotten(server: Running) -> None:
    body = add(65)
    first, *_ = messages(body, "wrong")
    wrong = pb.UploadProgramRequest(data=bytes(len(body)))
    assert code_of(server, iter([first, wrong])) == ("DATA_LOSS", "INTEGRITY")
    assert progress(server, body, "wrong").committed_size_bytes == 0
    assert server.stub.UploadProgram(messages(body, "wrong")).complete


def test_an_offset_beyond_what_is_there(server: Running) -> None:
    assert code_of(server, messages(add(66), "offset", offset=10)) == ("OUT_OF_RANGE", "ARGUMENT")


def test_more_bytes_than_announced(server: Running) -> None:
    parts = [*messages(add(67), "more"), pb.UploadProgramRequest(data=b"!")]
    assert code_of(server, iter(parts)) == ("INVALID_ARGUMENT", "ARGUMENT")


def test_messages_of_more_than_a_mebibyte(server: Running) -> None:
    first, *_ = messages(add(68), "chunk")
    parts = [first, pb.UploadProgramRequest(data=bytes((1 << 20) + 1))]
    assert code_of(server, iter(parts)) == ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED")


@pytest.mark.issue(number=19, point=28)
def test_an_error_that_somebody_holds_keeps_no_request() -> None:
    """asyncio and gRPC hold the errors of calls for a while: each kept the first message of its upload."""

    class Message:
        """Stands for a message: its end can be observed."""

    async def body() -> None:
        async def abort(*_: object) -> None:
            raise grpc.aio.AbortError("aborted")

        context: Any = SimpleNamespace(abort=abort)
        call = Call(RpcHandlers("", 1.0, RequestLog("text")), "/kcache.v1.KernelCache/UploadProgram", context)
        messages: list[weakref.ref[Message]] = []

        def handler() -> None:
            message = Message()
            messages.append(weakref.ref(message))
            raise ArgumentError("no")

        with pytest.raises(ArgumentError) as caught:
            handler()
        assert messages[0]() is not None
        with pytest.raises(grpc.aio.AbortError):
            await call.fail(caught.value)
        assert messages[0]() is None

    asyncio.run(body())

"""Every error of the tree crosses the wire as the one table says; nothing else leaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

from kcache_grpc import errors
from kcache_grpc.server.request_log import RequestLog
from kcache_grpc.server.rpc_handlers import RpcHandlers
from kcache_grpc.server.startup import wrap_handlers
from kcache_grpc.service.values import ProgramRequired
from kcache_grpc.storage import errors as storage_errors

PUBLIC = list(errors.WIRE_FORMS)


def info_of(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo of a failed call, read as any client would."""
    trailers: Any = dict(error.trailing_metadata())  # pyright: ignore
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]  # pyright: ignore
    info = error_details_pb2.ErrorInfo()
    (detail,) = status.details
    assert detail.Unpack(info)
    assert info.domain == "kcache"
    return info


def call(
    raising: Callable[[], Any],
    streaming: bool = False,
    token: str = "",
    metadata: dict[str, str] | None = None,
) -> Any:
    """What a client gets from an RPC whose servicer does ``raising``, wrapped as in a server."""

    async def unary(request: bytes, context: Any) -> bytes:
        result = raising()
        return await result if asyncio.iscoroutine(result) else result

    async def stream(request: bytes, context: Any) -> Any:
        yield b"first"
        raising()

    async def body() -> Any:
        rpc_handlers = RpcHandlers(token, 0.1, RequestLog("text"))
        server = wrap_handlers(grpc.aio.server(), rpc_handlers)
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(unary),
            "Stream": grpc.unary_stream_rpc_method_handler(stream),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kcache.v1.Test", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                pairs = tuple((metadata or {}).items())
                if streaming:
                    replies = channel.unary_stream("/kcache.v1.Test/Stream")(b"", metadata=pairs)
                    return [reply async for reply in replies]
                return await channel.unary_unary("/kcache.v1.Test/Unary")(b"", metadata=pairs)
        finally:
            await server.stop(None)

    return asyncio.run(body())


def raiser(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error

    return raise_it


@pytest.mark.parametrize("streaming", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("cls", PUBLIC, ids=[cls.__name__ for cls in PUBLIC])
def test_an_error_round_trips(cls: type[errors.KcacheError], streaming: bool) -> None:
    sent = cls("what happened", op="stablehlo.fft", stage="lower", diagnostic="ends ✗ here")
    with pytest.raises(grpc.RpcError) as caught:
        call(raiser(sent), streaming)
    info = info_of(caught.value)
    assert caught.value.code().name == errors.WIRE_FORMS[cls].code
    received = errors.from_reason(info.reason, caught.value.details() or "", dict(info.metadata))
    assert type(received) is cls
    assert (received.message, received.metadata) == (sent.message, sent.metadata)


def test_refinements_keep_their_reason() -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(raiser(ProgramRequired("send it")))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert info_of(caught.value).reason == "PROGRAM_REQUIRED"


def test_storage_errors_are_errors_of_the_tree() -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(raiser(storage_errors.StoreUnavailable("disk full")))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert info_of(caught.value).reason == "UNAVAILABLE"


@pytest.mark.parametrize("streaming", [False, True], ids=["unary", "stream"])
def test_a_bug_gives_an_incident_number_and_no_internals(
    streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "kcache.server"), pytest.raises(grpc.RpcError) as caught:
        call(raiser(ZeroDivisionError("secret path /etc")), streaming)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    incident = info_of(caught.value).metadata["incident"]
    assert incident in (caught.value.details() or "")
    assert "secret" not in str(caught.value)
    (record,) = [record for record in caplog.records if record.name == "kcache.server"]
    assert incident in record.getMessage()
    assert record.exc_info


def test_long_diagnostics_fit_the_transport_and_keep_their_end() -> None:
    sent = errors.CompileFailed(
        "m" * 100_000, stage="lower", diagnostic="x" * 100_000 + "the reason", op="é" * 5000
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(raiser(sent))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    metadata = info_of(caught.value).metadata
    assert metadata["stage"] == "lower"
    assert metadata["diagnostic"].endswith("the reason")


def test_a_call_without_a_deadline_gets_the_default_one() -> None:
    async def forever() -> bytes:
        await asyncio.Event().wait()
        return b""

    with pytest.raises(grpc.RpcError) as caught:
        call(forever)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_the_token_is_asked_for() -> None:
    for metadata in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
        with pytest.raises(grpc.RpcError) as caught:
            call(lambda: b"in", token="secret", metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert info_of(caught.value).reason == "PERMISSION_DENIED"
    assert call(lambda: b"in", token="secret", metadata={"authorization": "Bearer secret"}) == b"in"


@pytest.mark.issue(number=19, point=28)
@pytest.mark.parametrize("metadata", [{}, {"authorization": "Bearer wrong"}])
def test_a_rejected_token_names_the_options_that_give_one(metadata: dict[str, str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=r"--token-file FILE, KCACHE_TOKEN or Client\(token"):
        call(lambda: b"", token="secret", metadata=metadata)

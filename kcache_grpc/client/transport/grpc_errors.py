"""From a gRPC status to an error of kcache: the one place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from kcache_grpc.errors import DOMAIN, KcacheError, Unavailable, from_reason, from_transport

if TYPE_CHECKING:
    import grpc

_DETAILS = "grpc-status-details-bin"
#: What a torn connection looks like when it is not called UNAVAILABLE.
_TORN = ("RST_STREAM", "Stream removed", "stream removed", "GOAWAY", "Connection reset", "Broken pipe")

#: What gRPC says where the machine answers that nothing listens there, after it tried all addresses.
_REFUSED = ("Connection refused", "No such file or directory")


class FailedCall(Protocol):
    """What a sync call's ``RpcError`` and an ``AioRpcError`` have in common."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def from_rpc_error(error: FailedCall, target: str) -> KcacheError:
    """The error that the server at ``target`` meant, or what the transport's code stands for."""
    message = error.details() or "no details"
    for name, value in error.trailing_metadata() or ():
        if name == _DETAILS and isinstance(value, bytes):
            meant = _from_details(value, message)
            if meant is not None:
                return meant
    code = error.code()
    if code.name in ("INTERNAL", "UNKNOWN") and any(x in message for x in _TORN):
        return _unanswered(target, message, code)
    meant = from_transport(code.name, message)
    return _unanswered(target, message, code) if type(meant) is Unavailable else meant


def from_status(data: bytes) -> KcacheError:
    """The error that a server meant by a serialized ``google.rpc.Status`` within a stream."""
    return _from_details(data, "no details") or KcacheError("the server sent a failure that says nothing")


def _unanswered(target: str, message: str, code: grpc.StatusCode) -> Unavailable:
    refused = {"refused": "yes"} if any(text in message for text in _REFUSED) else {}
    return Unavailable(f"{target} does not answer: {message}", code=code.name, **refused)


def _from_details(data: bytes, message: str) -> KcacheError | None:
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

    status = status_pb2.Status()
    try:
        status.ParseFromString(data)
    except DecodeError:
        return None
    for detail in status.details:
        reason = error_details_pb2.ErrorInfo()
        if detail.Unpack(reason) and reason.domain == DOMAIN:
            return from_reason(reason.reason, status.message or message, reason.metadata)
    return None

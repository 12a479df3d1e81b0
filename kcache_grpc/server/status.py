"""Errors at the border of gRPC: requests that cannot be read, and domain errors as statuses.

A status has code, message and ``google.rpc.ErrorInfo`` from the one table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

from kcache_grpc.errors import DOMAIN, ArgumentError, KcacheError, wire_form
from kcache_grpc.service.values import BeyondEnd

Deserializer = Callable[[bytes], Any]
#: What makes the request of a handler, or its stream of them, of what gRPC has read.
Take = Callable[[Any], Any]
#: gRPC's peers accept 8 KiB of trailing metadata in all, and base64 adds a third.
_MAX_MESSAGE = 1000
_MAX_METADATA = 2500
#: Refinements of the table's codes, as the protos promise them.
_REFINED: Mapping[type[KcacheError], grpc.StatusCode] = {BeyondEnd: grpc.StatusCode.OUT_OF_RANGE}
Trailers = tuple[tuple[str, bytes], ...]


class Malformed:
    """In the place of a request: gRPC itself answers UNKNOWN where a deserializer raises."""

    def __init__(self, why: str) -> None:
        self.why = why


def reader(deserialize: Deserializer | None) -> Deserializer | None:
    """A deserializer that gives ``Malformed`` for what is no message."""
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return Malformed(str(error))

    return read


def checked(request: Any) -> Any:
    """The request; raises ``ArgumentError`` where it is ``Malformed``."""
    if type(request) is Malformed:
        raise ArgumentError(f"the request is no message of this method: {request.why}", field="request")
    return request


async def each(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The requests of a stream, each one checked."""
    async for request in requests:
        yield checked(request)


def to_status(error: KcacheError) -> tuple[grpc.StatusCode, str, Trailers]:
    """Code, message and trailing metadata of an error. Long texts are cut."""
    code, message, status = _status(error)
    return code, message, (("grpc-status-details-bin", status),)


def status_bytes(error: KcacheError) -> bytes:
    """The same as a serialized ``google.rpc.Status``."""
    return _status(error)[2]


def _status(error: KcacheError) -> tuple[grpc.StatusCode, str, bytes]:
    code = _REFINED.get(type(error)) or grpc.StatusCode[wire_form(error).code]
    message = error.message[:_MAX_MESSAGE]
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=_fit(error.metadata))
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])
    return code, message, status.SerializeToString()


def _fit(metadata: dict[str, str]) -> dict[str, str]:
    """All entries, the long ones cut to a fair share of the room. The end of a diagnostic tells most."""
    room = _MAX_METADATA - sum(map(len, metadata))
    fitted: dict[str, str] = {}
    by_length = sorted(metadata.items(), key=lambda item: len(item[1]))
    for position, (name, value) in enumerate(by_length):
        share = max(room // (len(by_length) - position), 1)
        text = value.encode("utf-8", "replace")
        fitted[name] = value if len(text) <= share else text[-share:].decode("utf-8", "ignore")
        room -= min(len(text), share)
    return fitted

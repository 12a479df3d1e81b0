"""Requests as they come in: bytes that are no such message are an error of the caller, with a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import DecodeError

from kcache_grpc.errors import ArgumentError

Deserializer = Callable[[bytes], Any]
#: What makes the request of a handler, or its stream of them, of what gRPC has read.
Take = Callable[[Any], Any]


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

"""Connections of the synchronous client: calls of gRPC that block the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, cast

import grpc

from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.transport.grpc_errors import FailedCall, from_rpc_error
from kcache_grpc.client.transport.interface import Method, Reply, Request, call_metadata, channel_options
from kcache_grpc.errors import ArgumentError


class BlockingReplies(Generic[Reply]):
    """See ``interface.Replies``."""

    def __init__(self, call: Any, target: str) -> None:
        self._call = call
        self._target = target

    async def next(self) -> Reply | None:
        try:
            return cast("Reply | None", next(self._call, None))
        except grpc.RpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def cancel(self) -> None:
        self._call.cancel()


class BlockingWire:
    """See ``interface.Wire``."""

    def __init__(self, endpoint: Endpoint) -> None:
        options = channel_options(endpoint)
        self._target = endpoint.target
        self._metadata = call_metadata(endpoint)
        #: By path: making one costs as much as several lookups of what it needs.
        self._callables: dict[str, Callable[..., Any]] = {}
        if endpoint.roots is None:
            self._channel = grpc.insecure_channel(endpoint.target, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(endpoint.roots or None)
            self._channel = grpc.secure_channel(endpoint.target, credentials, options=options)

    async def unary(self, method: Method[Request, Reply], request: Request, timeout: float) -> Reply:
        try:
            return self._call(self._channel.unary_unary, method, request, timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def stream(
        self, method: Method[Request, Reply], request: Request, timeout: float
    ) -> BlockingReplies[Reply]:
        return BlockingReplies(self._call(self._channel.unary_stream, method, request, timeout), self._target)

    async def upload(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> Reply:
        try:
            return self._call(self._channel.stream_unary, method, requests, timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def exchange(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> BlockingReplies[Reply]:
        return BlockingReplies(
            self._call(self._channel.stream_stream, method, requests, timeout), self._target
        )

    async def close(self) -> None:
        self._channel.close()

    def _call(
        self, make: Callable[..., Any], method: Method[Any, Reply], request: object, timeout: float
    ) -> Any:
        """What the callable of the method returns. Raises ``ArgumentError`` where the client was closed."""
        try:
            call = self._callables.get(method.path)
            if call is None:
                call = self._callables[method.path] = make(method.path, _serialize, method.reply.FromString)
            return call(request, timeout=timeout, metadata=self._metadata)
        except ValueError as error:
            raise ArgumentError("the client is closed") from error


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()

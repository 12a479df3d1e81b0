"""The world of the synchronous client: every wait blocks the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Generic, TypeVar, cast

import grpc

from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.transport.grpc_errors import FailedCall, from_rpc_error
from kcache_grpc.client.transport.interface import Method, Reply, Request, call_metadata, channel_options
from kcache_grpc.errors import ArgumentError

T = TypeVar("T")

#: Compiles that one `compile_many` asks for side by side.
_PARALLEL = 8


def run(work: Awaitable[T]) -> T:
    """The result of a coroutine over this module's world, which never suspends."""
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise RuntimeError("a coroutine of the synchronous client suspended")


class BlockingReplies(Generic[Reply]):
    """See ``wire.Replies``."""

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
    """See ``wire.Wire``."""

    def __init__(self, endpoint: Endpoint) -> None:
        options = channel_options(endpoint)
        self._target = endpoint.target
        self._metadata = call_metadata(endpoint)
        if endpoint.roots is None:
            self._channel = grpc.insecure_channel(endpoint.target, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(endpoint.roots or None)
            self._channel = grpc.secure_channel(endpoint.target, credentials, options=options)

    async def unary(self, method: Method[Request, Reply], request: Request, timeout: float) -> Reply:
        call = self._guarded(
            lambda: self._channel.unary_unary(
                method.path, _serialize, cast("Callable[[bytes], Reply]", method.reply.FromString)
            )
        )
        try:
            return call(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def stream(
        self, method: Method[Request, Reply], request: Request, timeout: float
    ) -> BlockingReplies[Reply]:
        call = self._guarded(
            lambda: self._channel.unary_stream(
                method.path, _serialize, cast("Callable[[bytes], Reply]", method.reply.FromString)
            )
        )
        return BlockingReplies(call(request, timeout=timeout, metadata=self._metadata), self._target)

    async def upload(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> Reply:
        call = self._guarded(
            lambda: self._channel.stream_unary(
                method.path, _serialize, cast("Callable[[bytes], Reply]", method.reply.FromString)
            )
        )
        try:
            return call(requests, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def exchange(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> BlockingReplies[Reply]:
        call = self._guarded(
            lambda: self._channel.stream_stream(
                method.path, _serialize, cast("Callable[[bytes], Reply]", method.reply.FromString)
            )
        )
        return BlockingReplies(call(requests, timeout=timeout, metadata=self._metadata), self._target)

    async def close(self) -> None:
        self._channel.close()

    def _guarded(self, make: Callable[[], T]) -> T:
        """Raises ``ArgumentError`` when another thread closed the client."""
        try:
            return make()
        except ValueError as error:
            raise ArgumentError("the client is closed") from error


class BlockingIo:
    """See ``wire.Io``."""

    home: object = None

    def connect(self, endpoint: Endpoint) -> BlockingWire:
        return BlockingWire(endpoint)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  (this world has no event loop)

    async def blocking(self, work: Callable[[], T]) -> T:
        return work()

    async def wait(self, future: Future[T], timeout: float) -> T:
        try:
            return future.result(timeout)
        except FutureTimeout as error:
            if future.done():
                raise
            raise TimeoutError from error

    async def gather(self, works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        if len(works) < 2:
            return [await work() for work in works]
        with ThreadPoolExecutor(min(len(works), _PARALLEL), "kcache-compile") as pool:
            return [future.result() for future in [pool.submit(_run_made, work) for work in works]]

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        threading.Thread(target=lambda: run(work()), name="kcache-refresh", daemon=True).start()


def _run_made(make: Callable[[], Awaitable[T]]) -> T:
    return run(make())


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()

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
        #: By path: making one costs as much as several look-ups of what it needs.
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

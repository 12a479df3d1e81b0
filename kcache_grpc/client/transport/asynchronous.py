"""The world of the asynchronous client: every wait yields to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar, cast

import grpc
import grpc.aio

from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.transport.grpc_errors import FailedCall, from_rpc_error
from kcache_grpc.client.transport.interface import Method, Reply, Request, call_metadata, channel_options

T = TypeVar("T")


class AsyncReplies(Generic[Reply]):
    """See ``interface.Replies``."""

    def __init__(self, call: Any, target: str) -> None:
        self._call = call
        self._target = target
        self._replies = cast("AsyncIterator[Reply]", call.__aiter__())

    async def next(self) -> Reply | None:
        try:
            return await self._replies.__anext__()
        except StopAsyncIteration:
            return None
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def cancel(self) -> None:
        self._call.cancel()


class AsyncWire:
    """See ``interface.Wire``. Bound to the event loop that it was made in."""

    def __init__(self, endpoint: Endpoint) -> None:
        options = channel_options(endpoint)
        self._target = endpoint.target
        self._metadata = call_metadata(endpoint)
        if endpoint.roots is None:
            self._channel = grpc.aio.insecure_channel(endpoint.target, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(endpoint.roots or None)
            self._channel = grpc.aio.secure_channel(endpoint.target, credentials, options=options)

    async def unary(self, method: Method[Request, Reply], request: Request, timeout: float) -> Reply:
        call: Any = self._channel.unary_unary(method.path, _serialize, _deserialize(method))
        try:
            return await call(request, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def stream(self, method: Method[Request, Reply], request: Request, timeout: float) -> AsyncReplies[Reply]:
        call: Any = self._channel.unary_stream(method.path, _serialize, _deserialize(method))
        return AsyncReplies(call(request, timeout=timeout, metadata=self._metadata), self._target)

    async def upload(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> Reply:
        call: Any = self._channel.stream_unary(method.path, _serialize, _deserialize(method))
        try:
            return await call(requests, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(cast("FailedCall", error), self._target) from error

    def exchange(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> AsyncReplies[Reply]:
        call: Any = self._channel.stream_stream(method.path, _serialize, _deserialize(method))
        return AsyncReplies(call(requests, timeout=timeout, metadata=self._metadata), self._target)

    async def close(self) -> None:
        await self._channel.close()


class AsyncIo:
    """See ``interface.Io``."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def home(self) -> object:
        return asyncio.get_running_loop()

    def connect(self, endpoint: Endpoint) -> AsyncWire:
        return AsyncWire(endpoint)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def wait(self, future: Future[T], timeout: float) -> T:
        # Shielded: to wait no longer is not to cancel the work of the one who is waited for.
        shielded = asyncio.shield(asyncio.wrap_future(future))
        try:
            return await asyncio.wait_for(shielded, timeout)
        except asyncio.TimeoutError as error:
            if future.done():
                raise
            raise TimeoutError from error

    async def gather(self, works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        tasks = [asyncio.ensure_future(work()) for work in works]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()


def _deserialize(method: Method[Request, Reply]) -> Callable[[bytes], Reply]:
    return cast("Callable[[bytes], Reply]", method.reply.FromString)

"""I/O implementation of the synchronous client: every wait blocks the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kcache_grpc.client.address import Endpoint

if TYPE_CHECKING:
    from kcache_grpc.client.transport.blocking_wire import BlockingWire

T = TypeVar("T")

#: Compiles that one `compile_many` asks for side by side.
_PARALLEL = 8


def run(work: Awaitable[T]) -> T:
    """The result of a coroutine over ``BlockingIo``, which never suspends."""
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise RuntimeError("a coroutine of the synchronous client suspended")


class BlockingIo:
    """See ``interface.Io``."""

    home: object = None

    def connect(self, endpoint: Endpoint) -> BlockingWire:
        # Imports gRPC, which a client does not need while all is on disk and fresh.
        from kcache_grpc.client.transport.blocking_wire import BlockingWire

        return BlockingWire(endpoint)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  (no event loop runs)

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

"""Calls to one server: channel, retries within one deadline, breaker."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.transport.circuit_breaker import CircuitBreaker
from kcache_grpc.client.transport.endpoint import ServiceLocation
from kcache_grpc.client.transport.interface import (
    Deadline,
    Io,
    Method,
    OutOfTime,
    Replies,
    Reply,
    Request,
    Wire,
)
from kcache_grpc.errors import ArgumentError, KcacheError, Unavailable

T = TypeVar("T")

#: Seconds that a server has for an answer that needs no compiler.
QUICK = 20.0
#: Seconds between attempts: doubled from the first to the last, then jittered.
_FIRST_PAUSE = 0.05
_LAST_PAUSE = 1.0


class Channel:
    """Makes attempts until one succeeds, the breaker opens or time is up. Thread-safe.

    Only ``Unavailable`` is worth another attempt; every method of the service may be repeated.
    """

    def __init__(
        self, location: ServiceLocation, io: Io, breaker: CircuitBreaker, counters: Counters
    ) -> None:
        self.location = location
        self._io = io
        self._breaker = breaker
        self._counters = counters
        self._endpoint: Endpoint | None = None
        #: The start of the embedded service that goes on, of each process: a fork has none.
        self._starts: dict[int, Future[Endpoint]] = {}
        self._wire: Wire | None = None
        self._home: object = None
        self._closed = False
        self._lock = threading.Lock()
        #: Connections of a parent process or of an ended event loop: kept, for they cannot be closed here.
        self._left_behind: list[Wire] = []

    async def endpoint(self, deadline: Deadline) -> Endpoint:
        """Where the server is; starts it when it is the embedded one.

        Raises ``OutOfTime`` where the start takes longer: it goes on, for later calls.
        """
        endpoint = self._endpoint
        if endpoint is None:
            reach = (
                self._started(deadline) if self.location.embedded else self._io.blocking(self.location.reach)
            )
            endpoint = self._endpoint = await reach
        return endpoint

    async def _started(self, deadline: Deadline) -> Endpoint:
        process, own = os.getpid(), Future[Endpoint]()
        start = self._starts.setdefault(process, own)

        def reach() -> None:
            try:
                endpoint = self.location.reach()
            except BaseException as error:  # noqa: BLE001 - raised by the callers
                del self._starts[process]
                own.set_exception(error)
            else:
                del self._starts[process]
                own.set_result(endpoint)

        if start is own:
            try:
                threading.Thread(target=reach, name="kcache-start", daemon=True).start()
            except RuntimeError:  # the process has no room for another thread, or ends
                await self._io.blocking(reach)
        while True:
            with suppress(TimeoutError):
                return await self._io.wait(start, deadline.left())
            if start.done():
                return start.result()

    async def unary(
        self,
        method: Method[Request, Reply],
        request: Request,
        deadline: Deadline,
        most: float = QUICK,
        *,
        single: bool = False,
    ) -> Reply:
        """One request, one reply; an attempt may take ``most`` seconds, ``single`` makes one only."""
        return await self.attempt(
            lambda wire: wire.unary(method, request, deadline.left(most)), deadline, single=single
        )

    async def collect(
        self, method: Method[Request, Reply], request: Request, deadline: Deadline, most: float = QUICK
    ) -> list[Reply]:
        """One request and all of its replies, as ``unary``."""

        async def once(wire: Wire) -> list[Reply]:
            replies: list[Reply] = []
            await self.follow(wire.stream(method, request, deadline.left(most)), replies.append)
            return replies

        return await self.attempt(once, deadline)

    async def follow(self, replies: Replies[Reply], take: Callable[[Reply], None]) -> None:
        """Takes every reply of a stream; ends the call when ``take`` raises."""
        try:
            while (reply := await replies.next()) is not None:
                self._breaker.succeeded()
                take(reply)
        finally:
            replies.cancel()

    async def attempt(
        self, once: Callable[[Wire], Awaitable[T]], deadline: Deadline, *, single: bool = False
    ) -> T:
        """``once``, repeated while the server cannot be reached. Raises what the last attempt raised."""
        pause = _FIRST_PAUSE
        while True:
            deadline.left()
            endpoint = self._endpoint or await self.endpoint(deadline)
            self._breaker.admit()
            try:
                value = await once(self._connected(endpoint))
            except OutOfTime:
                self._breaker.abandoned()
                raise
            except Unavailable as error:
                self._breaker.failed(refused="refused" in error.metadata and not self.location.embedded)
                self._forget_embedded()
                if single or self._breaker.open:
                    raise
            except KcacheError:
                self._breaker.succeeded()
                raise
            except BaseException:
                self._breaker.abandoned()
                raise
            else:
                self._breaker.succeeded()
                return value
            self._counters.add("retries")
            await self._io.sleep(deadline.left(pause * random.uniform(0.5, 1.0)))  # noqa: S311  (spreads callers)
            pause = min(pause * 2, _LAST_PAUSE)

    async def close(self) -> None:
        """Ends the connection; later calls raise ``ArgumentError``."""
        with self._lock:
            self._closed = True
            wire, self._wire = self._wire, None
        if wire is not None and self._home is self._io.home:
            await wire.close()

    def after_fork(self, breaker: CircuitBreaker) -> None:
        """Forgets what belongs to the parent process."""
        self._lock = threading.Lock()
        if self._wire is not None:
            self._left_behind.append(self._wire)
        self._wire = self._endpoint = None
        self._breaker = breaker

    def _forget_embedded(self) -> None:
        """The embedded service may have been killed: the next attempt starts another one if it was."""
        with self._lock:
            if self.location.embedded and self._wire is not None:
                self._left_behind.append(self._wire)
                self._wire = self._endpoint = None

    def _connected(self, endpoint: Endpoint) -> Wire:
        home, wire = self._io.home, self._wire
        if wire is not None and self._home is home and not self._closed:
            return wire
        with self._lock:
            if self._closed:
                raise ArgumentError("the client is closed")
            if self._wire is not None and self._home is not home:
                self._left_behind.append(self._wire)
                self._wire = None
            if self._wire is None:
                # The home first: a wire is read without the lock, and belongs to the home of then.
                self._home = home
                self._wire = self._io.connect(endpoint)
            return self._wire

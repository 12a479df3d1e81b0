"""One server: its channel, its pinned identity, and the state that it reported."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.address import Endpoint
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.config import ClientConfig, package_version
from kcache_grpc.client.transport.channel import Channel
from kcache_grpc.client.transport.circuit_breaker import CircuitBreaker
from kcache_grpc.client.transport.endpoint import ServiceLocation
from kcache_grpc.client.transport.interface import GET_CAPABILITIES, Deadline, Io, OutOfTime
from kcache_grpc.client.trust.pins import Pins
from kcache_grpc.client.trust.server_state import ServerState, Snapshots, now, read_state
from kcache_grpc.client.trust.verification import KernelVerifier, StaleState
from kcache_grpc.errors import IntegrityError, KcacheError, Unavailable
from kcache_grpc.local_files import file_name

T = TypeVar("T")

#: Seconds that a server has to say what it is.
_INTRODUCTION = 10.0


class Connection:
    """What the flows need of one server. Thread-safe.

    ``directory`` holds pins and snapshots; ``None``: they are kept by this object only.
    """

    def __init__(
        self,
        location: ServiceLocation,
        config: ClientConfig,
        io: Io,
        directory: Path | None,
        counters: Counters,
    ) -> None:
        self.location = location
        self._config = config
        self._io = io
        self._counters = counters
        self._pins = Pins(directory / "pins" if directory else None)
        self._snapshots = Snapshots(directory / "servers" if directory else None)
        self._snapshot_name = f"{file_name(location.name)}+{config.namespace}"
        self._state: ServerState | None = None
        self._refreshing = False
        self.channel = Channel(location, io, self._breaker(), counters)

    def header(self) -> common_pb2.RequestHeader:
        """For one logical request, over all its retries."""
        header = common_pb2.RequestHeader()
        header.CopyFrom(self._header)
        header.request_id = os.urandom(16).hex()
        return header

    @functools.cached_property
    def _header(self) -> common_pb2.RequestHeader:
        """What the headers of all requests have in common."""
        return common_pb2.RequestHeader(
            namespace=self._config.namespace,
            client_version=f"kcache-python/{package_version()}",
            actor=self._config.actor,
            job=self._config.job,
        )

    @property
    def namespace(self) -> str:
        """Key space of every request."""
        return self._config.namespace

    @property
    def last_state(self) -> ServerState | None:
        """What the server last said, however old; never waits."""
        return self._state

    @property
    def pinned(self) -> str | None:
        """The identity that the server must have, as far as it is known without asking it. Reads files."""
        try:
            return self.location.server_id() or self._pins.known(self.location.name)
        except IntegrityError:  # a damaged pin: a call to the service says so
            return None

    def remember(self) -> None:
        """Reads what an earlier process heard of the server, where this one did not ask it yet."""
        if self._state is None:
            with contextlib.suppress(IntegrityError):  # a damaged pin: a call to the service says so
                self._recall()

    def is_stale(self, state: ServerState) -> bool:
        """Whether the server should be asked about itself again."""
        return state.age(now()) > self.location.freshness

    async def state(self, deadline: Deadline) -> ServerState:
        """What the server is; asked again when stale, as it was while the server cannot be reached.

        Raises ``Unavailable`` when nothing was ever heard of it, ``IntegrityError`` for a wrong identity.
        """
        if self._state is None:
            await self._io.blocking(self._recall)
        if self._state is not None and not self.is_stale(self._state):
            return self._state
        try:
            return await self.refresh(deadline)
        except Unavailable as error:
            if self._state is None or isinstance(error, OutOfTime):
                raise
            self._counters.add("stale_states")
            return self._state

    async def refresh(self, deadline: Deadline) -> ServerState:
        """Asks the server what it is, checks its identity, remembers the answer."""
        request = pb.GetCapabilitiesRequest(header=self.header())
        single = self._state is not None
        reply = await self.channel.unary(GET_CAPABILITIES, request, deadline, _INTRODUCTION, single=single)
        endpoint = await self.channel.endpoint(deadline)
        state = read_state(reply, now())
        await self._io.blocking(lambda: self._accept(endpoint, state))
        return state

    def refresh_in_background(self) -> None:
        """Refreshes while the caller goes on with what is known; failures are counted."""
        if not self._refreshing:
            self._refreshing = True
            self._io.spawn(self._refresh_quietly)

    async def verifier(self, deadline: Deadline) -> KernelVerifier:
        """A verifier of replies against the state of the server. Raises as ``state`` does."""
        return KernelVerifier(
            await self.state(deadline), self._config.namespace, self._pins.advice(self.location.name)
        )

    async def renewed(self, work: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """``work``; once more with a new state of the server if a reply had another epoch or key."""
        try:
            return await work()
        except StaleState:
            await self.refresh(deadline)
            return await work()

    def forget(self) -> None:
        """The service has another store and another identity from now on."""
        self._state = None
        self.channel.after_fork(self._breaker())

    def after_fork(self) -> None:
        """Forgets what belongs to the parent process."""
        self._refreshing = False
        self.channel.after_fork(self._breaker())

    def _breaker(self) -> CircuitBreaker:
        return CircuitBreaker(self._config.grace_period_new, self._config.grace_period_known, time.monotonic)

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh(Deadline(_INTRODUCTION))
        except KcacheError:
            self._counters.add("failed_refreshes")
            state = self._state
            if state is not None:
                # Asked again when the window has passed once more, not at every call.
                self._state = replace(state, fetched=now())
        finally:
            self._refreshing = False

    def _accept(self, endpoint: Endpoint, state: ServerState) -> None:
        # The embedded service has its own socket in each process; its pin is the key file.
        self._pins.check(endpoint, state.server_id)
        self._state = state
        try:
            self._snapshots.save(self._snapshot_name, state, self.location.tag())
        except OSError:
            self._counters.add("disk_write_failures")

    def _recall(self) -> None:
        """What an earlier process heard, if it was this server."""
        expected = self.location.server_id() or self._pins.known(self.location.name)
        state = self._snapshots.load(self._snapshot_name, self.location.tag())
        if state is not None and state.server_id == expected:
            self._state = state

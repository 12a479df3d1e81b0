"""Chooses between the configured service and the embedded one, used while that is unavailable."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from kcache_grpc.client.address import parse_endpoint
from kcache_grpc.client.cache.disk import DiskTier
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.fetch_kernel import KernelFetcher
from kcache_grpc.client.transport.blocking import BlockingIo, run
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.endpoint import EmbeddedLocation, RemoteLocation, ServiceLocation
from kcache_grpc.client.transport.interface import Deadline, Io, OutOfTime
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import IntegrityError, KcacheError
from kcache_grpc.local_files import KcacheWarning, own_directory
from kcache_grpc.model.bypass import BypassReason, fallback_reason
from kcache_grpc.model.manifest import ArtifactRef

T = TypeVar("T")


class Services:
    """Where kernels come from, and the directory that they share. Thread-safe."""

    def __init__(self, config: ClientConfig, io: Io, counters: Counters) -> None:
        self._config = config
        self._io = io
        self._counters = counters
        location = _configured_location(config)
        self._directory = _trusted_directory(config.cache_dir)
        self._disk = (
            None if self._directory is None else DiskTier(self._directory, config.disk_bytes, counters)
        )
        embedded = EmbeddedLocation(self._directory)
        self._main = self._fetcher(location or embedded, io)
        self._fallback = None if location is None or config.strict else self._fetcher(embedded, io)
        self._readers: dict[str, KernelFetcher] = {}
        self._warned = False
        self._remembered = False

    @property
    def directory(self) -> Path | None:
        """The cache directory; ``None`` where it cannot be used."""
        return self._directory

    @property
    def disk(self) -> DiskTier | None:
        """The tier in that directory."""
        return self._disk

    @property
    def main(self) -> Connection:
        """The service that the client was told to use: the one whose keys count."""
        return self._main.connection

    @property
    def has_fallback(self) -> bool:
        """Whether the embedded service stands in for that service."""
        return self._fallback is not None

    def start_in_background(self) -> bool:
        """Begins to start the embedded service in a thread, if the client uses it and it does not run.

        Returns whether it does: a request would wait for its start. Never waits, raises nothing.
        """
        location = self._main.connection.location
        if not isinstance(location, EmbeddedLocation) or not location.may_start:
            return False
        threading.Thread(target=location.start_quietly, name="kcache-start", daemon=True).start()
        return True

    async def ask(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """``use`` with the service that the client was told to use, and with no other one."""
        connection = self._main.connection
        try:
            return await use(connection)
        except IntegrityError as error:
            await self._renew(connection, error)
        return await use(connection)

    async def serve(self, use: Callable[[KernelFetcher], Awaitable[T]], programs: int = 0) -> T:
        """``use`` with that service; where it cannot help and the client is not strict, the embedded one.

        ``programs``: how many are compiled, and then bypass the cache of that service.

        For what does not depend on the keys of a service: an outage, a full quota, another version or a
        damaged pin never breaks a program. A wrong token and a changed identity do.
        """
        try:
            return await self._with(self._main, use)
        except OutOfTime:
            raise
        except KcacheError as error:
            reason = fallback_reason(error)
            if self._fallback is None or reason is None:
                raise
            self._note_fallback(error, reason, programs)
            return await self._with(self._fallback, use)

    async def _with(self, fetcher: KernelFetcher, use: Callable[[KernelFetcher], Awaitable[T]]) -> T:
        """``use``; once more, with a new store, where that of the embedded service is damaged."""
        try:
            return await use(fetcher)
        except IntegrityError as error:
            await self._renew(fetcher.connection, error)
        return await use(fetcher)

    async def _renew(self, connection: Connection, error: IntegrityError) -> None:
        """Gives the embedded service a new store where its own is damaged; else raises ``error``."""
        location, state = connection.location, connection.last_state
        if not isinstance(location, EmbeddedLocation) or state is None:
            raise error
        # Another identity: the store was replaced after the client read the snapshot that it began with.
        if location.server_id() == state.server_id:
            if "damaged" not in error.metadata:
                raise error
            await self._io.blocking(lambda: location.replace_damaged(state.server_id))
        connection.forget()

    async def on_disk(self, request: KernelRequest, deadline: Deadline) -> bool:
        """Whether a kernel of the service that the client was told to use is on disk."""
        return await self._with(self._main, lambda fetcher: fetcher.holds(request, deadline))

    def holds(self, provenance: Provenance) -> bool:
        """Whether one of the services still is what it was when a kernel came from it.

        Never waits: a stale answer is refreshed in the background, so that a raised epoch takes effect
        afterwards.
        """
        for fetcher in (self._main, self._fallback):
            state = None if fetcher is None else fetcher.connection.last_state
            if fetcher is not None and state is not None and provenance in state.provenances:
                if fetcher.connection.is_stale(state):
                    fetcher.connection.refresh_in_background()
                return True
        return False

    def pinned(self) -> frozenset[str]:
        """Identities that the services must have, as far as they are known. Reads files, asks nobody."""
        connections = [each.connection for each in (self._main, self._fallback) if each is not None]
        return frozenset(filter(None, (connection.pinned for connection in connections)))

    def remember(self) -> None:
        """Reads what earlier processes heard of the services; once. Asks nobody."""
        if self._remembered:
            return
        self._remembered = True
        for fetcher in (self._main, self._fallback):
            if fetcher is not None:
                fetcher.connection.remember()

    def disowned(self, provenance: Provenance) -> bool:
        """Whether the service that signed a kernel of a bundle is known to have another epoch or toolchain.

        Never waits, and asks no service that was not asked before; a stale answer is refreshed in the
        background.
        """
        for fetcher in (self._main, self._fallback):
            state = None if fetcher is None else fetcher.connection.last_state
            if fetcher is None or state is None or state.server_id != provenance[0]:
                continue
            if fetcher.connection.is_stale(state):
                fetcher.connection.refresh_in_background()
            return provenance not in state.provenances
        return False

    def read(self, location: ServiceLocation, ref: ArtifactRef) -> bytes:
        """An artifact that did not come with its kernel. Blocks, in the asynchronous client too."""
        reader = self._readers.get(location.name)
        if reader is None:
            reader = self._readers.setdefault(location.name, self._fetcher(location, BlockingIo()))
        content = run(reader.bytes_of(ref.sha256, ref.size, Deadline(self._config.timeout)))
        if self._disk is not None:
            self._disk.save_blob(ref.sha256, content)
        return content

    async def close(self) -> None:
        """Ends connections; the embedded service ends with the process."""
        for fetcher in (self._main, self._fallback):
            if fetcher is not None:
                await fetcher.connection.channel.close()
        for reader in self._readers.values():
            run(reader.connection.channel.close())

    def after_fork(self) -> None:
        """In a child: connections are made anew."""
        for fetcher in (self._main, self._fallback, *self._readers.values()):
            if fetcher is not None:
                fetcher.connection.after_fork()

    def _fetcher(self, location: ServiceLocation, io: Io) -> KernelFetcher:
        connection = Connection(location, self._config, io, self._directory, self._counters)
        return KernelFetcher(connection, self._disk, io, self._counters)

    def _note_fallback(self, error: KcacheError, reason: BypassReason, programs: int) -> None:
        """Counts why, and of how many programs, and warns once.

        Raises the error where there is no service to embed.
        """
        from kcache_grpc import embedded

        missing = embedded.missing()
        if missing:
            text = f"{error.message}; nor can this process serve itself: {missing}"
            raise type(error)(text, **error.metadata) from error
        self._counters.add("fallbacks")
        self._counters.add(f"fallbacks_{_counted(error, reason)}")
        if programs:
            self._counters.bypass(reason, programs)
        if not self._warned:
            self._warned = True
            text = (
                f"{self._config.address} is not used: {error.message}; an embedded service compiles instead"
            )
            warnings.warn(text, KcacheWarning, stacklevel=2)


def _counted(error: KcacheError, reason: BypassReason) -> str:
    """The reason, as in the fallback counters: for an outage, the status code of the transport."""
    if reason is not BypassReason.SERVICE_UNAVAILABLE:
        return reason.value
    return error.metadata.get("code", "other").lower()


def _configured_location(config: ClientConfig) -> RemoteLocation | None:
    """Where the service is; ``None``: the embedded one. Raises ``ArgumentError`` or ``PermissionDenied``."""
    if config.address is None:
        return None
    endpoint = parse_endpoint(config.address, tls=config.tls, token=config.token, server_id=config.server_id)
    return RemoteLocation(endpoint, config.freshness)


def _trusted_directory(cache_dir: Path) -> Path | None:
    why_not = own_directory(cache_dir)
    if why_not:
        warnings.warn(f"kcache keeps nothing on disk: {why_not}", KcacheWarning, stacklevel=5)
        return None
    return cache_dir

"""The service that a client was told to use, and the one in its own process for when that is away."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from kcache_grpc.client.address import parse_endpoint
from kcache_grpc.client.blocking import BlockingIo, run
from kcache_grpc.client.clock import Deadline, OutOfTime
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.connection import Connection
from kcache_grpc.client.counters import Counters
from kcache_grpc.client.disk import DiskTier, KcacheWarning
from kcache_grpc.client.files import own_directory
from kcache_grpc.client.obtain import Obtainer
from kcache_grpc.client.place import EmbeddedPlace, Place, RemotePlace
from kcache_grpc.client.state import Generation
from kcache_grpc.client.wire import Io
from kcache_grpc.errors import Unavailable
from kcache_grpc.model.manifest import ArtifactRef

T = TypeVar("T")


class Services:
    """Where kernels come from, and the folder that they share. Thread-safe."""

    def __init__(self, config: ClientConfig, io: Io, counters: Counters) -> None:
        self._config = config
        self._io = io
        self._counters = counters
        place = _configured_place(config)
        self._directory = _trusted_directory(config.cache_dir)
        self._disk = (
            None if self._directory is None else DiskTier(self._directory, config.disk_bytes, counters)
        )
        embedded = EmbeddedPlace(self._directory)
        self._main = self._obtainer(place or embedded, io)
        self._fallback = None if place is None or config.strict else self._obtainer(embedded, io)
        self._readers: dict[str, Obtainer] = {}
        self._warned = False

    @property
    def main(self) -> Connection:
        """The service that the client was told to use: the one whose keys count."""
        return self._main.connection

    async def serve(self, use: Callable[[Obtainer], Awaitable[T]]) -> T:
        """``use`` with that service; where it is away and the client is not strict, with the embedded one.

        For what does not depend on the keys of a service: an outage never breaks a program.
        """
        try:
            return await use(self._main)
        except OutOfTime:
            raise
        except Unavailable as error:
            if self._fallback is None:
                raise
            self._note_fallback(error)
            return await use(self._fallback)

    def holds(self, generation: Generation) -> bool:
        """Whether one of the services still is what it was when a kernel came from it.

        Never waits: a stale answer is refreshed beside, so that a raised epoch takes effect afterwards.
        """
        for obtainer in (self._main, self._fallback):
            state = None if obtainer is None else obtainer.connection.last_state
            if obtainer is not None and state is not None and generation in state.generations:
                if obtainer.connection.is_stale(state):
                    obtainer.connection.refresh_beside()
                return True
        return False

    def read(self, place: Place, ref: ArtifactRef) -> bytes:
        """An artifact that did not come with its kernel. Blocks, in the asynchronous client too."""
        reader = self._readers.get(place.name)
        if reader is None:
            reader = self._readers.setdefault(place.name, self._obtainer(place, BlockingIo()))
        content = run(reader.bytes_of(ref.sha256, ref.size, Deadline(self._config.timeout)))
        if self._disk is not None:
            self._disk.save_blob(ref.sha256, content)
        return content

    async def close(self) -> None:
        """Ends connections; the embedded service ends with the process."""
        for obtainer in (self._main, self._fallback):
            if obtainer is not None:
                await obtainer.connection.line.close()
        for reader in self._readers.values():
            run(reader.connection.line.close())

    def after_fork(self) -> None:
        """In a child: connections are made anew."""
        for obtainer in (self._main, self._fallback, *self._readers.values()):
            if obtainer is not None:
                obtainer.connection.after_fork()

    def _obtainer(self, place: Place, io: Io) -> Obtainer:
        connection = Connection(place, self._config, io, self._directory, self._counters)
        return Obtainer(connection, self._disk, io, self._counters)

    def _note_fallback(self, error: Unavailable) -> None:
        """Counts why, and warns once. Raises ``Unavailable`` where there is no service to embed."""
        from kcache_grpc import embedded

        missing = embedded.missing()
        if missing:
            text = f"{error.message}; nor can this process serve itself: {missing}"
            raise Unavailable(text, **error.metadata) from error
        reason = (
            "breaker_open" if "breaker" in error.metadata else error.metadata.get("code", "other").lower()
        )
        self._counters.add("fallbacks")
        self._counters.add(f"fallbacks_{reason}")
        if not self._warned:
            self._warned = True
            text = (
                f"{self._config.address} is not used: {error.message}; an embedded service compiles instead"
            )
            warnings.warn(text, KcacheWarning, stacklevel=2)


def _configured_place(config: ClientConfig) -> RemotePlace | None:
    """Where the service is; ``None``: the embedded one. Raises ``ArgumentError`` or ``PermissionDenied``."""
    if config.address is None:
        return None
    endpoint = parse_endpoint(config.address, tls=config.tls, token=config.token, server_id=config.server_id)
    return RemotePlace(endpoint, config.freshness)


def _trusted_directory(cache_dir: Path) -> Path | None:
    why_not = own_directory(cache_dir)
    if why_not:
        warnings.warn(f"kcache keeps nothing on disk: {why_not}", KcacheWarning, stacklevel=5)
        return None
    return cache_dir

"""Locations of services: an address, or a child of this process. Each has an endpoint once it is reached."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kcache_grpc.client.address import Endpoint
from kcache_grpc.local_files import KcacheWarning

#: The name of the embedded service, where others have an address.
EMBEDDED = "embedded"
#: Seconds for which the embedded service's snapshot holds: nobody else raises its epoch.
_EMBEDDED_FRESHNESS = 3600.0


class ServiceLocation(Protocol):
    """Where one service is. It is reached when needed: the embedded service is started first."""

    @property
    def name(self) -> str:
        """The name under which its snapshot and its pin are stored."""
        ...

    @property
    def embedded(self) -> bool:
        """Whether it is a child of this process."""
        ...

    @property
    def freshness(self) -> float:
        """Seconds for which its reported state is used without asking again."""
        ...

    def tag(self) -> str:
        """A text that a snapshot must have been stored with to be used. May read files."""
        ...

    def server_id(self) -> str | None:
        """The identity that it must have; ``None``: the pinned one. May read files."""
        ...

    def reach(self) -> Endpoint:
        """The endpoint. Blocks while the service starts. Raises ``Unavailable``."""
        ...


@dataclass(frozen=True)
class RemoteLocation:
    """A service at an address."""

    endpoint: Endpoint
    freshness: float
    embedded: bool = False

    @property
    def name(self) -> str:
        return self.endpoint.target

    def tag(self) -> str:
        return ""

    def server_id(self) -> str | None:
        return self.endpoint.server_id

    def reach(self) -> Endpoint:
        return self.endpoint


@dataclass(frozen=True)
class EmbeddedLocation:
    """The service that is a child of this process, with its database in the cache directory."""

    #: ``None``: a directory that goes when the process ends.
    cache_dir: Path | None
    name: str = EMBEDDED
    embedded: bool = True
    freshness: float = _EMBEDDED_FRESHNESS

    def tag(self) -> str:
        """The compiler that is installed now: after an upgrade the old toolchain's kernels do not count."""
        from kcache_grpc import embedded

        return embedded.installation()

    def server_id(self) -> str | None:
        from kcache_grpc import embedded

        return embedded.server_id(self.cache_dir)

    def reach(self) -> Endpoint:
        from kcache_grpc import embedded

        service = embedded.start(self.cache_dir, _warn)
        return Endpoint(f"unix:{service.socket}", True, server_id=service.server_id)

    @property
    def may_start(self) -> bool:
        """Whether this process can start the service and has not, or it ended. Never waits."""
        from kcache_grpc import embedded

        return not embedded.missing() and not embedded.is_running(self.cache_dir)

    def start_quietly(self) -> None:
        """Starts the service. Blocks; raises nothing: the next request starts it again, and tells why not."""
        with suppress(Exception):
            self.reach()

    def replace_damaged(self, server_id: str) -> None:
        """Replace the damaged store of the service with that identity. Blocking."""
        from kcache_grpc import embedded

        embedded.replace_damaged(self.cache_dir, server_id, _warn)


def _warn(message: str) -> None:
    warnings.warn(message, KcacheWarning, stacklevel=2)

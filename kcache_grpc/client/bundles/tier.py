"""Kernels that need no service: preloaded bundles first, then imported ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.trust.pins import TrustedSigners, read_identities
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import PermissionDenied
from kcache_grpc.model.target import parse_target

if TYPE_CHECKING:
    from kcache_grpc.client.bundles.imported import ImportedKernels
    from kcache_grpc.client.bundles.index import BundledKernel
    from kcache_grpc.client.bundles.preload import Preloads
    from kcache_grpc.client.bundles.reports import ImportReport, PreloadReport

#: Identities of signers that a caller trusts.
Trust = str | Iterable[str] | None
#: The directory of imported kernels below the cache directory.
_IMPORTED = "imported"


class BundledKernels:
    """The bundles that one client uses. Thread-safe.

    A kernel that one of the client's own services signed is not used where that service is known to have
    another epoch or toolchain by now. Of other signers nothing newer can be known.
    """

    def __init__(self, config: ClientConfig, services: Services, counters: Counters) -> None:
        self._config = config
        self._services = services
        self._counters = counters
        self._configured = read_identities(config.trust)
        self._lock = threading.Lock()
        self._preloads: Preloads | None = None
        #: Of the kernels that were handed out.
        self._provenances: set[Provenance] = set()

    def trusted(self) -> frozenset[str]:
        """Signers that are trusted without being named in a call. Reads files."""
        signers = self._signers()
        imported = frozenset[str]() if signers is None else signers.identities()
        return self._configured | imported | self._services.pinned()

    def preload(self, path: str | os.PathLike[str], trust: Trust, target: str | None) -> PreloadReport:
        """See ``Client.preload``."""
        return self._opened().load(path, read_identities(trust), _target_name(target))

    def import_bundle(self, path: str | os.PathLike[str], trust: Trust, target: str | None) -> ImportReport:
        """See ``Client.import_bundle``."""
        named = read_identities(trust)
        imported = self._imported()
        if imported is None:
            raise PermissionDenied(
                "the cache directory cannot be used, so nothing can be imported; preload the bundle instead"
            )
        return imported.add(path, self.trusted() | named, _target_name(target))

    def find(self, request: KernelRequest) -> BundledKernel | None:
        """A kernel for ``request`` of a bundle; ``None`` where there is none. May read files."""
        kernel = None
        if self._config.preload or self._preloads is not None:
            kernel = self._opened().find(request, self._disowned)
        if kernel is None and self._has_imported():
            imported = self._imported()
            kernel = None if imported is None else imported.find(request, self._disowned)
        if kernel is not None:
            self._provenances.add(kernel.provenance)
        return kernel

    def _opened(self) -> Preloads:
        """The preloaded bundles. Imports what a client without bundles does not need."""
        from kcache_grpc.client.bundles.preload import Preloads

        with self._lock:
            if self._preloads is None:
                self._preloads = Preloads(self._config.preload, self.trusted, self._counters)
            return self._preloads

    def _has_imported(self) -> bool:
        directory = self._services.directory
        return directory is not None and (directory / _IMPORTED).is_dir()

    def _imported(self) -> ImportedKernels | None:
        """The imported kernels, whose state is in files. Imports as ``_opened``."""
        from kcache_grpc.client.bundles.imported import ImportedKernels

        directory, disk, signers = self._services.directory, self._services.disk, self._signers()
        if directory is None or disk is None or signers is None:
            return None
        return ImportedKernels(directory / _IMPORTED, signers, disk, self._config.disk_bytes, self._counters)

    def _signers(self) -> TrustedSigners | None:
        directory = self._services.directory
        return None if directory is None else TrustedSigners(directory / "signers")

    def holds(self, provenance: Provenance) -> bool:
        """Whether a kernel of a bundle, which has this provenance, may be used on. Never waits."""
        return provenance in self._provenances and not self._services.disowned(provenance)

    def _disowned(self, provenance: Provenance) -> bool:
        """See ``Services.disowned``; also by what earlier processes heard."""
        self._services.remember()
        return self._services.disowned(provenance)

    def close(self) -> None:
        """Closes the bundles."""
        if self._preloads is not None:
            self._preloads.close()

    def after_fork(self) -> None:
        """See ``Core.after_fork``."""
        self._lock = threading.Lock()
        if self._preloads is not None:
            self._preloads.after_fork()


def _target_name(target: str | None) -> str | None:
    """As manifests have it: ``host`` is a target by name."""
    return None if target is None else str(parse_target(target))

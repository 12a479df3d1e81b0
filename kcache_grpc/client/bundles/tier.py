"""Kernels that need no service: preloaded bundles first, then imported ones."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kcache_grpc.client.bundles.imported import ImportedKernels
from kcache_grpc.client.bundles.index import BundledKernel
from kcache_grpc.client.bundles.preload import Preloads
from kcache_grpc.client.bundles.reports import ImportReport, PreloadReport
from kcache_grpc.client.bundles.signers import read_identities
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.counters import Counters
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.trust.server_state import Generation
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import PermissionDenied
from kcache_grpc.model.target import parse_target

#: Identities of signers that a caller trusts.
Trust = str | Iterable[str] | None


class BundledKernels:
    """The bundles that one client uses. Thread-safe.

    A kernel that one of the client's own services signed is not used where that service is known to have
    another epoch or toolchain by now. Of other signers nothing newer can be known.
    """

    def __init__(self, config: ClientConfig, services: Services, counters: Counters) -> None:
        self._services = services
        self._configured = read_identities(config.trust)
        directory, disk = services.directory, services.disk
        self._imported = (
            None
            if directory is None or disk is None
            else ImportedKernels(directory, disk, config.disk_bytes, counters)
        )
        self._preloads = Preloads(config.preload, self.trusted, counters)
        #: Of the kernels that were handed out.
        self._generations: set[Generation] = set()

    def trusted(self) -> frozenset[str]:
        """Signers that are trusted without being named in a call. Reads files."""
        imported = frozenset[str]() if self._imported is None else self._imported.signers.identities()
        return self._configured | imported | self._services.pinned()

    def preload(self, path: str | os.PathLike[str], trust: Trust, target: str | None) -> PreloadReport:
        """See ``Client.preload``."""
        return self._preloads.load(path, read_identities(trust), _target_name(target))

    def import_bundle(self, path: str | os.PathLike[str], trust: Trust, target: str | None) -> ImportReport:
        """See ``Client.import_bundle``."""
        named = read_identities(trust)
        if self._imported is None:
            raise PermissionDenied(
                "the cache directory cannot be used, so nothing can be imported; preload the bundle instead"
            )
        return self._imported.add(path, self.trusted() | named, _target_name(target))

    def find(self, ask: KernelRequest) -> BundledKernel | None:
        """A kernel for ``ask`` of a bundle; ``None`` where there is none. May read files."""
        kernel = self._preloads.find(ask, self._disowned)
        if kernel is None and self._imported is not None:
            kernel = self._imported.find(ask, self._disowned)
        if kernel is not None:
            self._generations.add(kernel.generation)
        return kernel

    def holds(self, generation: Generation) -> bool:
        """Whether a kernel of a bundle, which has this generation, may be used on. Never waits."""
        return generation in self._generations and not self._services.disowned(generation)

    def _disowned(self, generation: Generation) -> bool:
        """See ``Services.disowned``; also by what earlier processes heard."""
        self._services.remember()
        return self._services.disowned(generation)

    def close(self) -> None:
        """Closes the bundles."""
        self._preloads.close()

    def after_fork(self) -> None:
        """See ``Core.after_fork``."""
        self._preloads.after_fork()


def _target_name(target: str | None) -> str | None:
    """As manifests have it: ``host`` is a target by name."""
    return None if target is None else str(parse_target(target))

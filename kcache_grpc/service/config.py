"""The configuration of a service."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kcache_grpc.service.lifecycle.garbage_collection import MIN_AGE
from kcache_grpc.service.values import Limits


@dataclass(frozen=True)
class ServiceConfig:
    """Times in seconds, sizes in bytes."""

    spool_dir: Path
    limits: Limits = field(default_factory=Limits)
    lease_ttl: float = 10.0
    failure_ttl: float = 3600.0
    spool_bytes: int = 4 << 30
    spool_ttl: float = 3600.0
    store_threads: int = 4
    graph_threads: int = 32
    server_version: str = "0"
    evict_min_age: float = MIN_AGE
    #: Stored kernels that are verified an hour at most, while the service is idle; 0: none.
    verify_per_hour: float = 0.0
    #: Targets whose libraries are compiled while the service is idle.
    prepared_targets: tuple[str, ...] = ()
    #: Identities whose bundles may be imported, beside the store's own signer.
    trusted_signers: frozenset[str] = frozenset()

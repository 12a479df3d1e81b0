"""The configuration of a service, and its parts, made from what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kcache_grpc.model.bypass import BypassReason
from kcache_grpc.model.signing import Signer
from kcache_grpc.service.admin.running_service import Admin
from kcache_grpc.service.assertions.source_assertions import SourceAssertions
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.blobs.blob_cache import BlobCache
from kcache_grpc.service.bundles.bundles import Bundles, Spool
from kcache_grpc.service.change_notifications import ChangeNotifications
from kcache_grpc.service.claims import Claims
from kcache_grpc.service.compile.coordinator import CompileCoordinator
from kcache_grpc.service.compile.lease_renewal import LeaseRenewal
from kcache_grpc.service.compile.library_precompilation import LibraryPrecompilation
from kcache_grpc.service.compile.resolver import KernelResolver
from kcache_grpc.service.explain.explain import Explainer
from kcache_grpc.service.failures import Failures
from kcache_grpc.service.graphs.canonicalizer_upgrade import CanonicalizerUpgrade
from kcache_grpc.service.graphs.graphs import Graphs
from kcache_grpc.service.graphs.programs import Programs
from kcache_grpc.service.graphs.uploads import Uploads
from kcache_grpc.service.lifecycle.background_verification import BackgroundVerification
from kcache_grpc.service.lifecycle.garbage_collection import MIN_AGE, QuotaEviction
from kcache_grpc.service.lookup.batch_lookup import BatchLookup
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import CompatibleKernels, Variants
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Limits
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.worker import WorkerPool


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
    precompile_targets: tuple[str, ...] = ()
    #: Identities whose bundles may be imported, in addition to the store's own signer.
    trusted_signers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Shared:
    """What several parts of a service work with."""

    store: Store
    pool: WorkerPool
    signer: Signer
    config: ServiceConfig
    threads: StoreThreads
    #: Of their own: those that wait for the same commit hold up no lookup, and share the next one.
    writers: StoreThreads
    canonicalizer_upgrade: CanonicalizerUpgrade
    quotas: QuotaEviction
    namespaces: Namespaces
    failures: Failures
    change_notifications: ChangeNotifications
    claims: Claims
    kernels: Kernels
    variants: Variants
    compatible: CompatibleKernels
    audit_recorder: AuditRecorder

    @classmethod
    def open(cls, store: Store, pool: WorkerPool, signer: Signer, config: ServiceConfig) -> Shared:
        """Starts the threads; signals of the store reach what keeps its values."""
        toolchains = pool.toolchains
        threads = StoreThreads(config.store_threads)
        canonicalizer_upgrade = CanonicalizerUpgrade(store, pool.canonicalizer)
        namespaces = Namespaces(
            store,
            threads,
            enter=canonicalizer_upgrade.enter,
            toolchains=toolchains.digests,
            most=config.limits.namespaces,
        )
        change_notifications = ChangeNotifications(store)
        kernels = Kernels(store, threads, signer.key_id)
        variants = Variants(store, threads, kernels, toolchains, signer.key_id)
        change_notifications.on_published(variants.published)
        change_notifications.on_changed(namespaces.forget)
        return cls(
            store=store,
            pool=pool,
            signer=signer,
            config=config,
            threads=threads,
            writers=StoreThreads(config.graph_threads),
            canonicalizer_upgrade=canonicalizer_upgrade,
            quotas=QuotaEviction(store, config.evict_min_age),
            namespaces=namespaces,
            failures=Failures(store, threads, config.failure_ttl),
            change_notifications=change_notifications,
            claims=Claims(store, threads, change_notifications),
            kernels=kernels,
            variants=variants,
            compatible=CompatibleKernels(kernels, variants, toolchains),
            audit_recorder=AuditRecorder(store, threads, toolchains),
        )


def graphs(shared: Shared) -> Graphs:
    return Graphs(
        shared.store,
        shared.threads,
        shared.namespaces,
        shared.writers,
        shared.pool,
        shared.signer,
        shared.failures,
        shared.claims,
        shared.canonicalizer_upgrade,
        shared.config.limits,
        shared.quotas,
    )


def lookups(shared: Shared, graphs: Graphs) -> BatchLookup:
    return BatchLookup(
        shared.store,
        shared.threads,
        graphs,
        shared.kernels,
        shared.variants,
        shared.failures,
        shared.pool.toolchains,
        shared.signer.key_id,
        shared.compatible,
    )


def coordinator(shared: Shared, lease_renewal: LeaseRenewal) -> CompileCoordinator:
    """Create the coordinator of compiles from the shared parts of the service."""
    return CompileCoordinator(
        shared.store,
        shared.threads,
        shared.pool,
        shared.signer,
        shared.kernels,
        shared.variants,
        shared.failures,
        lease_renewal,
        shared.change_notifications,
        shared.config.limits.compile_seconds,
        shared.config.server_version,
        shared.quotas,
    )


def resolver(
    shared: Shared, coordinator: CompileCoordinator, on_bypass: Callable[[BypassReason], None]
) -> KernelResolver:
    return KernelResolver(
        shared.kernels,
        shared.variants,
        shared.failures,
        coordinator,
        shared.pool.toolchains,
        on_bypass,
        shared.compatible,
    )


def programs(shared: Shared) -> Programs:
    config = shared.config
    most = config.limits.program_bytes
    uploads = Uploads(config.spool_dir, most, config.spool_bytes, config.spool_ttl)
    return Programs(shared.store, shared.threads, shared.namespaces, shared.audit_recorder, uploads, most)


def blobs(shared: Shared) -> BlobCache:
    return BlobCache(
        shared.store,
        shared.threads,
        shared.writers,
        shared.namespaces,
        shared.audit_recorder,
        shared.quotas,
        shared.config.spool_dir / "blobs",
    )


def assertions(shared: Shared) -> SourceAssertions:
    return SourceAssertions(
        shared.store,
        shared.threads,
        shared.writers,
        shared.namespaces,
        shared.audit_recorder,
        shared.quotas,
        shared.config.limits,
    )


def background(shared: Shared, coordinator: CompileCoordinator) -> BackgroundVerification | None:
    """None where no kernels are to be verified."""
    if not shared.config.verify_per_hour:
        return None
    return BackgroundVerification(
        shared.store,
        shared.pool,
        shared.claims,
        shared.signer.public_key,
        shared.config.verify_per_hour,
        shared.config.limits.compile_seconds,
        coordinator.compiled_here,
    )


def precompilation(shared: Shared) -> LibraryPrecompilation:
    return LibraryPrecompilation(shared.pool, shared.config.precompile_targets)


def admin(shared: Shared) -> Admin:
    return Admin(
        shared.store,
        shared.threads,
        shared.namespaces,
        shared.pool,
        shared.signer.public_key,
        shared.pool.toolchains,
        shared.config.limits.compile_seconds,
    )


def bundles(shared: Shared) -> Bundles:
    """Create the use cases of bundles from the shared parts of the service."""
    config = shared.config
    return Bundles(
        shared.store,
        shared.namespaces,
        shared.audit_recorder,
        shared.signer,
        shared.quotas,
        shared.canonicalizer_upgrade,
        shared.pool.canonicalizer,
        config.server_version,
        Spool(config.spool_dir, config.spool_bytes),
        config.trusted_signers,
        lambda namespace: shared.variants.imported(namespace.id),
    )


def explains(shared: Shared, graphs: Graphs, resolver: KernelResolver) -> Explainer:
    return Explainer(
        shared.store,
        shared.threads,
        shared.pool,
        graphs,
        shared.kernels,
        shared.failures,
        resolver.choose,
        shared.signer.key_id,
        shared.config.limits.normalize_seconds,
    )

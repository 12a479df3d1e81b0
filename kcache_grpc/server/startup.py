"""Starts and stops a server: opens the store, binds addresses, warms workers, serves, drains."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypedDict, cast

import grpc.aio

from kcache_grpc._proto.kcache.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    audit_pb2,
    audit_pb2_grpc,
    autotune_pb2,
    autotune_pb2_grpc,
    blob_cache_pb2,
    blob_cache_pb2_grpc,
    bundles_pb2,
    bundles_pb2_grpc,
    kernel_cache_pb2,
    kernel_cache_pb2_grpc,
    source_assertions_pb2,
    source_assertions_pb2_grpc,
)
from kcache_grpc.errors import ArgumentError, PermissionDenied
from kcache_grpc.model.signing import Signer
from kcache_grpc.server import listen
from kcache_grpc.server.config import ServerConfig
from kcache_grpc.server.health import Health, add_reflection
from kcache_grpc.server.principals import read_principals
from kcache_grpc.server.request_log import RequestLog
from kcache_grpc.server.rpc_handlers import RpcHandlers
from kcache_grpc.server.servicers.admin import AdminServicer
from kcache_grpc.server.servicers.audit import AuditServicer
from kcache_grpc.server.servicers.autotune import AutotuneServicer
from kcache_grpc.server.servicers.blob_cache import BlobCacheServicer
from kcache_grpc.server.servicers.bundles import BundlesServicer
from kcache_grpc.server.servicers.kernel_cache import KernelCacheServicer
from kcache_grpc.server.servicers.source_assertions import SourceAssertionsServicer
from kcache_grpc.service import KernelService, ServiceConfig
from kcache_grpc.service.bundles.preload import preload, read_signers
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.errors import SchemaMismatch, SignerMismatch
from kcache_grpc.storage.opening import require_directory
from kcache_grpc.worker import WorkerPool

if TYPE_CHECKING:
    from kcache_grpc.server.metrics import Metrics

#: Calls that have come in and are not looked at yet.
_MAX_PENDING = 100_000
#: Seconds for which they wait to be: callers have their own deadlines.
_PENDING_SECONDS = 3600
_MAX_MESSAGE_BYTES = 4 << 20
_ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
_AUDIT = audit_pb2.DESCRIPTOR.services_by_name["Audit"].full_name
_AUTOTUNE = autotune_pb2.DESCRIPTOR.services_by_name["Autotune"].full_name
_BLOBS = blob_cache_pb2.DESCRIPTOR.services_by_name["BlobCache"].full_name
_BUNDLES = bundles_pb2.DESCRIPTOR.services_by_name["Bundles"].full_name
_ASSERTIONS = source_assertions_pb2.DESCRIPTOR.services_by_name["SourceAssertions"].full_name
_SERVICE = kernel_cache_pb2.DESCRIPTOR.services_by_name["KernelCache"].full_name


class ServerHandle:
    """A running server. ``addresses``: ``host:port`` with real ports, ``unix:PATH``, then that of metrics."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        service: KernelService,
        server: grpc.aio.Server,
        health: Health,
        resources: AsyncExitStack,
    ) -> None:
        self.addresses = addresses
        self.service = service
        self._server = server
        self._health = health
        self._resources = resources
        self._stopping: asyncio.Task[None] | None = None

    async def stop(self, grace: float) -> None:
        """Drains: health says NOT_SERVING, no new calls; calls and compiles that run have ``grace`` seconds;
        then everything is written down and freed. Idempotent.
        """
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(grace))
        await asyncio.shield(self._stopping)

    async def _stop(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        await self._health.leave()
        await self._server.stop(grace)
        await self.service.close(max(0.0, deadline - time.monotonic()))
        await self._resources.aclose()


async def start_server(config: ServerConfig) -> ServerHandle:
    """Starts a server in the running event loop; it serves when this returns.

    Raises ``PermissionDenied`` for an unsafe address, ``Unavailable`` for a taken one or for workers that do
    not start, and the storage errors of opening ``config.db``. Nothing is left behind then.
    """
    # Before the state directory is created, which may be the parent of the store.
    require_directory(config.db, config.state_dir)
    async with AsyncExitStack() as resources:
        log = RequestLog(config.log_format)
        log.start()
        resources.push_async_callback(log.close)
        metrics = _metrics() if config.metrics else None
        server = _server(config, log, metrics)
        resources.push_async_callback(server.stop, None)
        addresses = listen.bind(server, config)
        if (socket := listen.optional_socket(config)) is not None:
            resources.callback(socket.close)
            addresses.append(socket.bind(server))
        if metrics is not None:  # as all addresses before what takes seconds: a wrong one is told at once
            endpoint = await asyncio.to_thread(metrics.serve, config.metrics)
            resources.push_async_callback(asyncio.to_thread, endpoint.close)
            addresses.append(f"http://{endpoint.address}/metrics")
        service = await _start_service(config)
        resources.push_async_callback(service.close, 0.0)
        await preload(service.bundles, config.preload)
        if metrics is not None:
            metrics.watch(service.counters, server_version(), service.toolchains)
        health = _register(server, service, config)
        await server.start()
        return ServerHandle(tuple(addresses), service, server, health, resources.pop_all())
    raise AssertionError("unreachable")


def _metrics() -> Metrics:
    # Imports Prometheus's client, which only a server with metrics needs.
    from kcache_grpc.server.metrics import Metrics

    return Metrics()


def _server(config: ServerConfig, log: RequestLog, metrics: Metrics | None) -> grpc.aio.Server:
    """Create the gRPC server with its options and handlers; it does not listen yet."""
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),  # else a second server binds a taken port without an error
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            # Clients may ping every 10 s, also between calls: how they notice a dead server while they wait.
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            # A client that vanished is noticed after 40 s and its streams are freed.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            # Beyond its default of 1000 gRPC cancels calls at random: a herd that asks at once has more.
            ("grpc.server.max_pending_requests", _MAX_PENDING),
            ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING),
            # Its default is 30: a server that is busy or stopped for that long would cancel all who wait.
            ("grpc.server_max_unrequested_time_in_server", _PENDING_SECONDS),
        ),
        maximum_concurrent_rpcs=config.max_concurrent,
    )
    handlers = RpcHandlers(
        config.token,
        config.limits.default_deadline_seconds,
        log,
        metrics,
        principals=read_principals(config.principals) if config.principals else {},
    )
    return wrap_handlers(server, handlers)


class _ObjectSettings(TypedDict):
    objects: str | None
    inline_bytes: int


def _open(config: ServerConfig) -> Store:
    """The store. A new database gets its schema; an old one only when ``config.migrate`` says so."""
    settings: _ObjectSettings = {"objects": config.objects, "inline_bytes": config.objects_inline_bytes}
    try:
        return open_store(config.db, **settings)
    except SchemaMismatch as error:
        if error.current and not config.migrate:
            raise
    return open_store(config.db, migrate=True, **settings)


def _reject_default_key(config: ServerConfig) -> None:
    """Raises ``ArgumentError`` where a store would be disowned for a key that nobody named."""
    if config.disown and config.default_key:
        raise ArgumentError(
            f"--disown gives the store to the signing key {config.signing_key}, which is the default of this "
            "user: name the key file that all servers of the store share with --key-file"
        )


def _claim(store: Store, signer: Signer, config: ServerConfig) -> None:
    try:
        store.claim_signer(signer.key_id, disown=config.disown)
    except SignerMismatch as error:
        raise PermissionDenied(
            f"{error.message} in {config.signing_key}: all servers of a store share one key (--key-file); "
            "bring that key file back, or start with --disown to raise the epoch of every namespace, so that "
            "its kernels are compiled anew under this key",
            **error.metadata,
        ) from None


async def _start_service(config: ServerConfig) -> KernelService:
    """Open the store, the signing key and the workers, and start the service."""
    store = await asyncio.to_thread(_open, config)
    try:
        _reject_default_key(config)
        signer = Signer.from_file(config.signing_key)
        _claim(store, signer, config)
        libraries = config.worker.libraries or config.state_dir / "libraries"
        pool = WorkerPool(config.compilers, settings=replace(config.worker, libraries=libraries))
        settings = ServiceConfig(
            spool_dir=config.state_dir / "spool",
            limits=config.limits,
            lease_ttl=config.lease_ttl,
            failure_ttl=config.failure_ttl,
            evict_min_age=config.evict_min_age,
            spool_bytes=config.spool_bytes,
            spool_ttl=config.spool_ttl,
            server_version=server_version(),
            verify_per_hour=config.verify_rate,
            precompile_targets=config.precompile_targets,
            trusted_signers=read_signers(config.trust_signer),
        )
        return await KernelService.start(store, pool, signer, settings)
    except BaseException:
        store.close()
        raise


def wrap_handlers(server: grpc.aio.Server, handlers: RpcHandlers) -> grpc.aio.Server:
    """All handlers that ``server`` gets from here on are added to ``handlers``.

    Not by an interceptor: gRPC makes a chain of coroutines of them for each call. Generated code registers
    each method twice, as a generic handler and by its name: ``grpc.aio`` waits for calls of each method that
    has a name of its own apart, and goes through all that it waits for with every call, some 50 us of CPU
    with our thirty methods.
    """

    def leave_out(service_name: str, method_handlers: object) -> None:
        pass

    server.add_generic_rpc_handlers((handlers,))
    ours = cast("Any", server)
    ours.add_generic_rpc_handlers = handlers.add
    ours.add_registered_method_handlers = leave_out
    return server


def _register(server: grpc.aio.Server, service: KernelService, config: ServerConfig) -> Health:
    kernel_cache_pb2_grpc.add_KernelCacheServicer_to_server(
        KernelCacheServicer(service, config.heartbeat), server
    )
    admin_pb2_grpc.add_AdminServicer_to_server(
        AdminServicer(service.admin, authenticated=config.authenticates), server
    )
    audit_pb2_grpc.add_AuditServicer_to_server(AuditServicer(service), server)
    autotune_pb2_grpc.add_AutotuneServicer_to_server(AutotuneServicer(service), server)
    blob_cache_pb2_grpc.add_BlobCacheServicer_to_server(BlobCacheServicer(service), server)
    source_assertions_pb2_grpc.add_SourceAssertionsServicer_to_server(
        SourceAssertionsServicer(service), server
    )
    bundles_pb2_grpc.add_BundlesServicer_to_server(
        BundlesServicer(service.bundles, authenticated=config.authenticates), server
    )
    add_reflection(server, _SERVICE, _ADMIN, _AUDIT, _AUTOTUNE, _BLOBS, _BUNDLES, _ASSERTIONS)
    return Health(server)


def server_version() -> str:
    """Version of the installed distribution."""
    try:
        return metadata.version("kcache-grpc")
    except metadata.PackageNotFoundError:
        return "0+unknown"

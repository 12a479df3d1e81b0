"""One compile per kernel, however many ask, in however many processes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from kcache_compiler.types import CompiledKernel
from kcache_grpc.errors import KcacheError, NotFound
from kcache_grpc.model.identity import KernelIdentity
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.model.signing import MANIFEST_DOMAIN, Signer
from kcache_grpc.service import manifests
from kcache_grpc.service.audit.events import client_detail
from kcache_grpc.service.change_notifications import Signals
from kcache_grpc.service.compile.lease_renewal import LeaseKeeper
from kcache_grpc.service.compile.lease_waiter import Follower
from kcache_grpc.service.compile.object_inspection import inspect
from kcache_grpc.service.failures import Failures, as_error
from kcache_grpc.service.lifecycle.quotas import Room
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import Variants
from kcache_grpc.service.read_batching import Gathering
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.tasks.single_flight import Flight, Flights
from kcache_grpc.service.values import Caller, KernelWish, KnownGraph, KnownKernel
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import LeaseLost, StorageError, StoreUnavailable
from kcache_grpc.storage.records import (
    ArtifactDraft,
    AuditEvent,
    FailureRecord,
    KernelDraft,
    KernelRecord,
    Lease,
    LeaseState,
    Namespace,
    Published,
    SignedBytes,
)
from kcache_grpc.worker import WorkerPool, codec

logger = logging.getLogger("kcache.service")

#: Seconds for which a compiled kernel waits for a store that is away: a restart throws no work away.
_PATIENCE = 60.0
#: Seconds between two attempts to publish: the first, the last.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
#: Kernels that are remembered as compiled here.
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class Order:
    """One kernel to make, and who asked first."""

    namespace: Namespace
    graph: KnownGraph
    wish: KernelWish
    identity: KernelIdentity
    caller: Caller
    program_digest: bytes
    #: Nobody has looked whether it is stored.
    unseen: bool = False


@dataclass(frozen=True)
class Made:
    """A kernel that is stored now; ``here``: this process compiled it."""

    kernel: KnownKernel
    here: bool


class Compiles:
    """Compiles kernels and publishes them. One event loop."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        pool: WorkerPool,
        signer: Signer,
        kernels: Kernels,
        variants: Variants,
        failures: Failures,
        keeper: LeaseKeeper,
        signals: Signals,
        compile_seconds: float,
        server_version: str,
        room: Room,
    ) -> None:
        self._store = store
        self._threads = threads
        self._pool = pool
        self._signer = signer
        self._kernels = kernels
        self._variants = variants
        self._failures = failures
        self._keeper = keeper
        self._signals = signals
        self._follower = Follower(store, threads, signals)
        self._leases: Gathering[Namespace, bytes, LeaseState] = Gathering(
            lambda namespace, digests: threads(store.find_leases, namespace, digests)
        )
        self._compile_seconds = compile_seconds
        self._server_version = server_version
        self._room = room
        self._flights: Flights[tuple[int, int, bytes], Made] = Flights(abandon=True)
        #: Compiles that this process began.
        self.started = 0
        #: Digests of kernels that it published, the last ones.
        self._published: dict[bytes, None] = {}
        self._host = f"{socket.gethostname()}:{os.getpid()}"

    def make(self, order: Order, known_failure: FailureRecord | None) -> tuple[Flight[Made], bool]:
        """The flight that makes this kernel, and whether this call started it.

        ``known_failure`` is one that the caller wants to be tried again; any other that is recorded while we
        wait is raised.
        """
        key = (order.namespace.id, order.namespace.epoch, order.identity.digest)
        return self._flights.join(key, lambda flight: self._make(flight, order, known_failure))

    def in_flight(self, namespace: Namespace, digest: bytes) -> bool:
        """Whether this process is making or awaiting the kernel."""
        return (namespace.id, namespace.epoch, digest) in self._flights

    def compiled_here(self, digest: bytes) -> bool:
        """Whether this process compiled the kernel, as far as it remembers."""
        return digest in self._published

    @property
    def running(self) -> int:
        """Kernels in the making."""
        return len(self._flights)

    async def drain(self, grace: float) -> None:
        """Lets what runs finish within ``grace`` seconds; gives all leases back."""
        await self._flights.drain(grace)

    async def _make(self, flight: Flight[Made], order: Order, known_failure: FailureRecord | None) -> Made:
        digest = order.identity.digest
        flight.report("queued")
        # Who got the graph from another server finds it compiling as a rule: to look is cheaper than to take.
        looks = order.unseen
        with self._signals.expecting(order.namespace.id, digest, order.graph.key) as news:
            while True:
                lease = await self._held_lease(order) if looks else None
                looks = False
                if lease is None:
                    holder = f"{self._host}:{os.urandom(8).hex()}"
                    lease = await self._take_lease(order.namespace, digest, holder)
                if isinstance(lease, Lease):
                    outcome = await self._make_as_holder(flight, order, lease, known_failure)
                    if isinstance(outcome, FailureRecord):
                        raise as_error(outcome)
                    if outcome is not None:
                        return outcome
                else:
                    await self._follower.follow(order.namespace, lease, news, flight.report)
                news.published = False
                stored = await self._kernels.load(order.namespace, digest)
                if stored is not None:
                    return Made(stored, here=False)
                failure = await self._new_failure(order, known_failure)
                if failure is not None:
                    raise as_error(failure)

    async def _take_lease(self, namespace: Namespace, digest: bytes, holder: str) -> Lease | LeaseState:
        """Acquires a lease; gives it back if nobody waits for the compile any more when it comes."""
        taking = asyncio.get_running_loop().create_task(
            self._threads(self._store.acquire_lease, namespace, digest, holder, self._keeper.ttl)
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(StorageError):
                lease = await taking
                if isinstance(lease, Lease):
                    await self._give_back(lease)
            raise

    async def _held_lease(self, order: Order) -> LeaseState | None:
        """The lease of somebody who makes the kernel."""
        state = await self._leases.look(order.namespace, order.identity.digest)
        return state if state is not None and state.held else None

    async def _make_as_holder(
        self, flight: Flight[Made], order: Order, lease: Lease, known_failure: FailureRecord | None
    ) -> Made | FailureRecord | None:
        """Compiles and publishes, unless somebody did before this lease began, or failed to.

        ``None`` when another process took over meanwhile.
        """
        self._keeper.hold(lease)
        given_back = False
        try:
            # Somebody had it since this request looked, or long ago.
            if lease.fencing_token > 1 or order.unseen:
                stored = await self._kernels.load(order.namespace, order.identity.digest)
                if stored is not None:
                    return Made(stored, here=False)
                failure = await self._new_failure(order, known_failure)
                if failure is not None:
                    return failure
            await self._threads(self._room.require, order.namespace, "kernels")
            kernel = await self._compile(flight, order, lease)
            given_back = True  # by the publishing transaction
            return Made(kernel, here=True)
        except LeaseLost:
            logger.warning("the lease on %s was lost while compiling", order.identity.digest.hex()[:12])
            return None
        except KcacheError as error:
            await self._failed(order, error, lease)
            raise
        finally:
            self._keeper.let_go(lease)
            if not given_back:
                await asyncio.shield(self._give_back(lease))

    async def _give_back(self, lease: Lease) -> None:
        try:
            await self._threads(self._store.release_lease, lease)
        except StorageError as error:
            logger.warning("the lease on %s is left to expire: %s", lease.kernel_digest.hex()[:12], error)

    async def _compile(self, flight: Flight[Made], order: Order, lease: Lease) -> KnownKernel:
        def on_stage(stage: str) -> None:
            flight.report(stage)
            self._keeper.report(lease, stage)

        spec = await self._threads(self._store.get_spec, order.namespace, order.graph.key)
        if spec is None:
            raise NotFound(f"the spec under key {order.graph.key} is gone", key=str(order.graph.key))
        job = codec.compile_job(
            spec.text,
            manifests.compiler_arg_spec(order.identity.arg_spec),
            str(order.wish.target),
            manifests.compiler_options(order.wish.options),
        )
        self.started += 1
        started, began = datetime.now(timezone.utc), time.monotonic()
        reply = await self._pool.compile(job, self._compile_seconds, on_stage, order.caller.turn, flight.keep)
        seconds = time.monotonic() - began
        on_stage("publish")
        kernel = inspect(codec.decode_kernel(reply), order.wish.target)
        draft = self._draft(order, kernel, started, seconds)
        event = self._event(order, "publish", "ok", seconds, sum(len(a.content) for a in draft.artifacts))
        published = await self._publish(order.namespace, draft, lease, event)
        if published.differs:
            logger.error("kernel %s was compiled twice to different bytes", order.identity.digest.hex())
        for artifact in draft.artifacts:
            self._kernels.remember_blob(order.namespace, artifact.digest, artifact.content)
        self._published[order.identity.digest] = None
        if len(self._published) > _MOST_REMEMBERED:
            del self._published[next(iter(self._published))]
        self._variants.forget(order.namespace, order.graph, order.wish)
        known = manifests.known_kernel(published.stored, self._signer.key_id)
        return self._kernels.remember(order.namespace, known)

    async def _publish(
        self, namespace: Namespace, draft: KernelDraft, lease: Lease, event: AuditEvent
    ) -> Published:
        """Publishes, again while the store is away and nobody took the lease over."""
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            try:
                return await self._threads(
                    self._room.making, self._store.publish_kernel, namespace, draft, lease, event
                )
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("kernel %s waits to be published: %s", lease.kernel_digest.hex()[:12], error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    def _draft(self, order: Order, kernel: CompiledKernel, started: datetime, seconds: float) -> KernelDraft:
        artifacts = tuple(
            ArtifactDraft(kind, hashlib.sha256(content).digest(), content)
            for kind, content in kernel.artifacts.items()
        )
        manifest = manifests.manifest(
            kernel,
            order.identity,
            order.graph,
            order.wish,
            order.namespace,
            self._pool.toolchains.of(order.wish.target).ingredients,
            [ArtifactRef(a.kind, a.digest, len(a.content)) for a in artifacts],
            self._server_version,
            started,
            seconds,
        )
        payload = manifest.to_bytes()
        identity = order.identity
        return KernelDraft(
            kernel=KernelRecord(
                kernel_digest=identity.digest,
                key=order.graph.key,
                arg_spec=identity.arg_spec,
                guard=identity.guard,
                target=identity.target,
                options=identity.options,
                toolchain=identity.toolchain_digest,
            ),
            manifest=SignedBytes(payload, self._signer.sign(MANIFEST_DOMAIN, payload).signature),
            artifacts=artifacts,
            ingredients=identity.ingredients
            + tuple((f"toolchain.{name}", value) for name, value in manifest.toolchain),
            compile_us=round(seconds * 1e6),
        )

    async def _failed(self, order: Order, error: KcacheError, lease: Lease) -> None:
        await self._failures.remember(order.namespace, order.identity.digest, error, lease)
        event = self._event(order, "failure", error.reason.lower(), 0.0, 0, error.message)
        try:
            await self._threads(self._store.append_audit, order.namespace, [event])
        except KcacheError as problem:
            logger.warning("a failure was not written to the audit log: %s", problem)

    async def _new_failure(self, order: Order, known: FailureRecord | None) -> FailureRecord | None:
        """A failure that was recorded since ``known`` was looked up."""
        digest = order.identity.digest
        record = await self._failures.find_one(order.namespace, digest)
        return record if record is not None and (known is None or record.count != known.count) else None

    def _event(
        self, order: Order, kind: str, outcome: str, seconds: float, size: int, detail: str = ""
    ) -> AuditEvent:
        return AuditEvent(
            kind=kind,
            outcome=outcome,
            origin="compiled",
            actor=order.caller.actor,
            job=order.caller.job,
            peer=order.caller.peer,
            request_id=order.caller.request_id,
            program_digest=order.program_digest,
            spec_digest=order.graph.spec_digest,
            key=order.graph.key,
            kernel_digest=order.identity.digest,
            target=order.identity.target,
            toolchain=order.identity.toolchain_digest,
            duration_us=round(seconds * 1e6),
            byte_count=size,
            detail=json.dumps({"message": detail}) if detail else client_detail(order.caller.client),
        )

"""Coordinates compiles: one per kernel, however many requests and processes ask for it."""

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
from kcache_grpc.service.change_notifications import ChangeNotifications
from kcache_grpc.service.compile.lease_renewal import LeaseRenewal, LeaseWaiter
from kcache_grpc.service.compile.object_inspection import inspect
from kcache_grpc.service.failures import Failures, as_error
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import Variants
from kcache_grpc.service.store_threads import ReadBatch, StoreThreads
from kcache_grpc.service.tasks.single_flight import InFlightCall, SingleFlight
from kcache_grpc.service.values import Caller, KernelRequirements, KnownGraph, KnownKernel
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

#: Seconds for which a compiled kernel waits for an unavailable store: a restart of it loses no compile.
_PUBLISH_TIMEOUT = 60.0
#: Seconds between two attempts to publish: the first, the last.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
#: Kernels that are remembered as compiled here.
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class CompileJob:
    """One kernel to compile, and the caller that asked first."""

    namespace: Namespace
    graph: KnownGraph
    requirements: KernelRequirements
    identity: KernelIdentity
    caller: Caller
    program_digest: bytes
    #: The kernel may be stored already: this request has not looked it up.
    unseen: bool = False


@dataclass(frozen=True)
class CompileOutcome:
    """A kernel that is stored now; ``here``: this process compiled it."""

    kernel: KnownKernel
    here: bool


class CompileCoordinator:
    """Compiles kernels under leases and publishes them. One event loop."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        pool: WorkerPool,
        signer: Signer,
        kernels: Kernels,
        variants: Variants,
        failures: Failures,
        lease_renewal: LeaseRenewal,
        change_notifications: ChangeNotifications,
        compile_seconds: float,
        server_version: str,
        quotas: QuotaEviction,
    ) -> None:
        self._store = store
        self._threads = threads
        self._pool = pool
        self._signer = signer
        self._kernels = kernels
        self._variants = variants
        self._failures = failures
        self._lease_renewal = lease_renewal
        self._change_notifications = change_notifications
        self._lease_waiter = LeaseWaiter(store, threads, change_notifications)
        self._leases: ReadBatch[Namespace, bytes, LeaseState] = ReadBatch(
            lambda namespace, digests: threads(store.find_leases, namespace, digests)
        )
        self._compile_seconds = compile_seconds
        self._server_version = server_version
        self._quotas = quotas
        self._single_flight: SingleFlight[tuple[int, int, bytes], CompileOutcome] = SingleFlight(abandon=True)
        #: Compiles that this process began.
        self.started = 0
        #: Digests of kernels that it published, the last ones.
        self._published: dict[bytes, None] = {}
        self._host = f"{socket.gethostname()}:{os.getpid()}"

    def join(
        self, job: CompileJob, known_failure: FailureRecord | None
    ) -> tuple[InFlightCall[CompileOutcome], bool]:
        """The call that obtains this kernel, and whether this request started it.

        ``known_failure`` is one that the caller wants to be tried again; any other that is recorded while we
        wait is raised.
        """
        key = (job.namespace.id, job.namespace.epoch, job.identity.digest)
        return self._single_flight.join(key, lambda call: self._run(call, job, known_failure))

    def in_flight(self, namespace: Namespace, digest: bytes) -> bool:
        """Whether this process compiles the kernel or waits for it."""
        return (namespace.id, namespace.epoch, digest) in self._single_flight

    def compiled_here(self, digest: bytes) -> bool:
        """Whether this process compiled the kernel, as far as it remembers."""
        return digest in self._published

    @property
    def running(self) -> int:
        """Kernels that are compiled or waited for."""
        return len(self._single_flight)

    async def drain(self, grace: float) -> None:
        """Lets running compiles end within ``grace`` seconds; gives all leases back."""
        await self._single_flight.drain(grace)

    async def _run(
        self, call: InFlightCall[CompileOutcome], job: CompileJob, known_failure: FailureRecord | None
    ) -> CompileOutcome:
        """Compile as the holder of the lease, or wait for another holder, until there is an outcome.

        Raises the error of a failed compile.
        """
        digest = job.identity.digest
        call.report("queued")
        # If another server stored the graph, it usually compiles the kernel: reading the lease is cheaper
        # than trying to acquire it.
        looks = job.unseen
        with self._change_notifications.subscribe(job.namespace.id, digest, job.graph.key) as subscription:
            while True:
                lease = await self._held_lease(job) if looks else None
                looks = False
                if lease is None:
                    holder = f"{self._host}:{os.urandom(8).hex()}"
                    lease = await self._take_lease(job.namespace, digest, holder)
                if isinstance(lease, Lease):
                    outcome = await self._run_as_holder(call, job, lease, known_failure)
                    if isinstance(outcome, FailureRecord):
                        raise as_error(outcome)
                    if outcome is not None:
                        return outcome
                else:
                    await self._lease_waiter.wait(job.namespace, lease, subscription, call.report)
                subscription.published = False
                stored = await self._kernels.load(job.namespace, digest)
                if stored is not None:
                    return CompileOutcome(stored, here=False)
                failure = await self._new_failure(job, known_failure)
                if failure is not None:
                    raise as_error(failure)

    async def _take_lease(self, namespace: Namespace, digest: bytes, holder: str) -> Lease | LeaseState:
        """Acquires a lease; gives it back if nobody waits for the compile any more when it comes."""
        taking = asyncio.get_running_loop().create_task(
            self._threads(self._store.acquire_lease, namespace, digest, holder, self._lease_renewal.ttl)
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(StorageError):
                lease = await taking
                if isinstance(lease, Lease):
                    await self._give_back(lease)
            raise

    async def _held_lease(self, job: CompileJob) -> LeaseState | None:
        """The lease of another compile of the kernel, if one is held."""
        state = await self._leases.read(job.namespace, job.identity.digest)
        return state if state is not None and state.held else None

    async def _run_as_holder(
        self,
        call: InFlightCall[CompileOutcome],
        job: CompileJob,
        lease: Lease,
        known_failure: FailureRecord | None,
    ) -> CompileOutcome | FailureRecord | None:
        """Compiles and publishes, unless another holder did so, or failed to, before this lease was acquired.

        ``None`` when another process took over meanwhile.
        """
        self._lease_renewal.add(lease)
        given_back = False
        try:
            # The lease had another holder, since this request looked or earlier: it may have published.
            if lease.fencing_token > 1 or job.unseen:
                stored = await self._kernels.load(job.namespace, job.identity.digest)
                if stored is not None:
                    return CompileOutcome(stored, here=False)
                failure = await self._new_failure(job, known_failure)
                if failure is not None:
                    return failure
            await self._threads(self._quotas.require, job.namespace, "kernels")
            kernel = await self._compile(call, job, lease)
            given_back = True  # by the publishing transaction
            return CompileOutcome(kernel, here=True)
        except LeaseLost:
            logger.warning("the lease on %s was lost while compiling", job.identity.digest.hex()[:12])
            return None
        except KcacheError as error:
            await self._failed(job, error, lease)
            raise
        finally:
            self._lease_renewal.remove(lease)
            if not given_back:
                await asyncio.shield(self._give_back(lease))

    async def _give_back(self, lease: Lease) -> None:
        try:
            await self._threads(self._store.release_lease, lease)
        except StorageError as error:
            logger.warning("the lease on %s is left to expire: %s", lease.kernel_digest.hex()[:12], error)

    async def _compile(
        self, call: InFlightCall[CompileOutcome], job: CompileJob, lease: Lease
    ) -> KnownKernel:
        """Compile in a worker, publish kernel and artifacts under the lease, and remember them.

        Raises ``NotFound`` if the spec was removed, and the errors of the compile and of the store.
        """

        def on_stage(stage: str) -> None:
            call.report(stage)
            self._lease_renewal.report(lease, stage)

        spec = await self._threads(self._store.get_spec, job.namespace, job.graph.key)
        if spec is None:
            raise NotFound(f"the spec under key {job.graph.key} is gone", key=str(job.graph.key))
        frame = codec.compile_job(
            spec.text,
            manifests.compiler_arg_spec(job.identity.arg_spec),
            str(job.requirements.target),
            manifests.compiler_options(job.requirements.options),
        )
        self.started += 1
        started, began = datetime.now(timezone.utc), time.monotonic()
        reply = await self._pool.compile(frame, self._compile_seconds, on_stage, job.caller.turn, call.keep)
        seconds = time.monotonic() - began
        on_stage("publish")
        kernel = inspect(codec.decode_kernel(reply), job.requirements.target)
        draft = self._draft(job, kernel, started, seconds)
        event = self._event(job, "publish", "ok", seconds, sum(len(a.content) for a in draft.artifacts))
        published = await self._publish(job.namespace, draft, lease, event)
        if published.differs:
            logger.error("kernel %s was compiled twice to different bytes", job.identity.digest.hex())
        for artifact in draft.artifacts:
            self._kernels.remember_blob(job.namespace, artifact.digest, artifact.content)
        self._published[job.identity.digest] = None
        if len(self._published) > _MOST_REMEMBERED:
            del self._published[next(iter(self._published))]
        self._variants.forget(job.namespace, job.graph, job.requirements)
        known = manifests.known_kernel(published.stored, self._signer.key_id)
        return self._kernels.remember(job.namespace, known)

    async def _publish(
        self, namespace: Namespace, draft: KernelDraft, lease: Lease, event: AuditEvent
    ) -> Published:
        """Publishes, again while the store is away and nobody took the lease over."""
        deadline, pause = time.monotonic() + _PUBLISH_TIMEOUT, _FIRST_PAUSE
        while True:
            try:
                return await self._threads(
                    self._quotas.insert_evicting, self._store.publish_kernel, namespace, draft, lease, event
                )
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("kernel %s waits to be published: %s", lease.kernel_digest.hex()[:12], error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    def _draft(
        self, job: CompileJob, kernel: CompiledKernel, started: datetime, seconds: float
    ) -> KernelDraft:
        """Return the row of a compiled kernel: its signed manifest, artifacts and ingredients."""
        artifacts = tuple(
            ArtifactDraft(kind, hashlib.sha256(content).digest(), content)
            for kind, content in kernel.artifacts.items()
        )
        manifest = manifests.manifest(
            kernel,
            job.identity,
            job.graph,
            job.requirements,
            job.namespace,
            self._pool.toolchains.of(job.requirements.target).ingredients,
            [ArtifactRef(a.kind, a.digest, len(a.content)) for a in artifacts],
            self._server_version,
            started,
            seconds,
        )
        payload = manifest.to_bytes()
        identity = job.identity
        return KernelDraft(
            kernel=KernelRecord(
                kernel_digest=identity.digest,
                key=job.graph.key,
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

    async def _failed(self, job: CompileJob, error: KcacheError, lease: Lease) -> None:
        await self._failures.remember(job.namespace, job.identity.digest, error, lease)
        event = self._event(job, "failure", error.reason.lower(), 0.0, 0, error.message)
        try:
            await self._threads(self._store.append_audit, job.namespace, [event])
        except KcacheError as problem:
            logger.warning("a failure was not written to the audit log: %s", problem)

    async def _new_failure(self, job: CompileJob, known: FailureRecord | None) -> FailureRecord | None:
        """A failure that was recorded since ``known`` was looked up."""
        digest = job.identity.digest
        record = await self._failures.find_one(job.namespace, digest)
        return record if record is not None and (known is None or record.count != known.count) else None

    def _event(
        self, job: CompileJob, kind: str, outcome: str, seconds: float, size: int, detail: str = ""
    ) -> AuditEvent:
        return AuditEvent(
            kind=kind,
            outcome=outcome,
            origin="compiled",
            actor=job.caller.actor,
            job=job.caller.job,
            peer=job.caller.peer,
            request_id=job.caller.request_id,
            program_digest=job.program_digest,
            spec_digest=job.graph.spec_digest,
            key=job.graph.key,
            kernel_digest=job.identity.digest,
            target=job.identity.target,
            toolchain=job.identity.toolchain_digest,
            duration_us=round(seconds * 1e6),
            byte_count=size,
            detail=json.dumps({"message": detail}) if detail else client_detail(job.caller.client),
        )

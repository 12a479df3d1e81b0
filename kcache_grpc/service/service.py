"""The use cases, each a method. Everything that gRPC knows is left outside."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import replace

from kcache_grpc.errors import (
    KcacheError,
    NotFound,
    ResourceExhausted,
)
from kcache_grpc.model.bypass import SERVER_REASONS, BypassReason, counter_of, rejection_reason
from kcache_grpc.model.explanation import Explanation
from kcache_grpc.model.gpu.target import GPU_TARGETS, GpuTarget
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.program import Program
from kcache_grpc.model.signing import Signer
from kcache_grpc.model.target import CPU_NAMES, CPU_TARGETS, CpuTarget
from kcache_grpc.service import manifests, wiring
from kcache_grpc.service.audit.queries import AuditLog
from kcache_grpc.service.audit.requests import Noting
from kcache_grpc.service.audit.sealer import Sealer, SealTask
from kcache_grpc.service.autotune import Autotune
from kcache_grpc.service.compile.estimates import HIT, Estimate, Estimates, Subject
from kcache_grpc.service.compile.lease_renewal import LeaseRenewal
from kcache_grpc.service.compile.progress import SendStage, Waiters
from kcache_grpc.service.compile.reply_cache import ReplyCache
from kcache_grpc.service.explain.explain import checked_most
from kcache_grpc.service.graphs.graphs import parsed_binding
from kcache_grpc.service.graphs.programs import FORMATS
from kcache_grpc.service.graphs.support import Checked, check_program
from kcache_grpc.service.lookup.artifacts import Artifacts, Catalog
from kcache_grpc.service.lookup.batch_lookup import Query, in_parts
from kcache_grpc.service.tasks.single_flight import InFlightCall
from kcache_grpc.service.values import (
    Answer,
    Caller,
    Capabilities,
    Compiled,
    Found,
    GraphSource,
    KernelPage,
    KernelRequirements,
    KnownGraph,
    Missing,
    Normalized,
    Origin,
    ProgramRequired,
    Stored,
    StoredSpec,
    check_digest,
    source_digest,
)
from kcache_grpc.service.wiring import ServiceConfig
from kcache_grpc.storage.contract.saved_time import SavingRecord
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace, Stats
from kcache_grpc.worker import WorkerPool

#: Programs of one call that are looked up together.
_WINDOW = 256
#: Callers of ``savings``.
MOST_SAVINGS = 100


class KernelService:
    """Made by ``start``; used from one event loop; ended by ``close``."""

    def __init__(self, store: Store, pool: WorkerPool, signer: Signer, config: ServiceConfig) -> None:
        shared = wiring.Shared.open(store, pool, signer, config)
        self._store, self._pool, self._signer, self._config = store, pool, signer, config
        self.limits = config.limits
        self._threads, self._writers = shared.threads, shared.writers
        self._toolchains, self._namespaces = pool.toolchains, shared.namespaces
        self._kernels, self._failures, self._audit_recorder = (
            shared.kernels,
            shared.failures,
            shared.audit_recorder,
        )
        self._change_notifications = shared.change_notifications
        self._catalog = Catalog(store)
        self._graphs = wiring.graphs(shared)
        self._lookups = wiring.lookups(shared, self._graphs)
        self._lease_renewal = LeaseRenewal(store, config.lease_ttl)
        self._coordinator = wiring.coordinator(shared, self._lease_renewal)
        self._resolver = wiring.resolver(shared, self._coordinator, self._bypassed)
        self._waiters = Waiters()
        #: What comes in, and what goes out.
        self.programs = wiring.programs(shared)
        self.artifacts = Artifacts(self._namespaces, self._kernels, self._audit_recorder)
        self._seals = SealTask(Sealer(store, signer), shared.threads)
        self.audit = AuditLog(store, shared.threads, self._namespaces, self._audit_recorder.flush)
        self.autotune = Autotune(store, shared.threads, self._namespaces, self._audit_recorder)
        self.blobs = wiring.blobs(shared)
        self.assertions = wiring.assertions(shared)
        self._estimates = Estimates(store, shared.threads, self._toolchains)
        self._background = wiring.background(shared, self._coordinator)
        self._precompilation = wiring.precompilation(shared)
        self._asked = 0
        self._bypasses: Counter[BypassReason] = Counter()
        #: Equal requests are one, from the first to the answer.
        self._reply_cache = ReplyCache()
        self.admin = wiring.admin(shared)
        self.bundles = wiring.bundles(shared)
        self._explainer = wiring.explains(shared, self._graphs, self._resolver)

    @classmethod
    async def start(
        cls, store: Store, pool: WorkerPool, signer: Signer, config: ServiceConfig
    ) -> KernelService:
        """Warms the workers. The service owns ``store`` and ``pool`` from here on. Raises ``Unavailable``."""
        await pool.start()
        try:
            limits = replace(
                config.limits,
                program_bytes=min(config.limits.program_bytes, pool.limits["program_bytes"]),
                operations=min(config.limits.operations, pool.limits["operations"]),
                nesting=min(config.limits.nesting, pool.limits["region_depth"]),
            )
            service = cls(store, pool, signer, replace(config, limits=limits))
        except BaseException:
            await pool.close()
            raise
        service._change_notifications.start()
        try:
            await service._seals.start()
        except BaseException:
            await pool.close()
            raise
        service._audit_recorder.start()
        if service._background is not None:
            service._background.start()
        service._precompilation.start()
        service.blobs.start()
        service.assertions.start()
        return service

    async def close(self, grace: float) -> None:
        """Lets what runs finish within ``grace`` seconds, writes down what waits, frees everything."""
        deadline = time.monotonic() + grace
        if self._background is not None:
            await self._background.close()
        await self._precompilation.close()
        await self._reply_cache.drain(deadline - time.monotonic())
        await self._graphs.drain(deadline - time.monotonic())
        await self._coordinator.drain(deadline - time.monotonic())
        await self._estimates.close()
        await self.blobs.close()
        await self.assertions.close()
        await self._audit_recorder.close()
        await self._seals.close()
        await self._pool.close()
        await asyncio.to_thread(self._lease_renewal.close)
        await asyncio.to_thread(self._change_notifications.close)
        await asyncio.to_thread(self._threads.close)
        await asyncio.to_thread(self._writers.close)
        self._store.close()

    @property
    def public_key(self) -> bytes:
        """The key that signs here: Ed25519, 32 bytes raw."""
        return self._signer.public_key

    async def seal(self) -> None:
        """Seals now what the audit log has of this process."""
        await self._audit_recorder.flush()
        await self._seals.now()

    @property
    def audit_dropped(self) -> int:
        """Requests that were not written to the audit log since the start, as too many waited."""
        return self._audit_recorder.dropped

    async def capabilities(self, caller: Caller) -> Capabilities:
        """What this service is, can do and allows."""
        namespace = await self._namespaces.get(caller.namespace)
        return Capabilities(
            server_version=self._config.server_version,
            public_key=self.public_key,
            epoch=namespace.epoch,
            toolchains=self._toolchains,
            formats=FORMATS,
            targets=(*map(CpuTarget, (*CPU_TARGETS, *CPU_NAMES)), *map(GpuTarget, GPU_TARGETS)),
            limits=self.limits,
            canonicalizer=self._pool.canonicalizer,
            compatible_targets=self._namespaces.allows_compatible_targets(namespace),
            disowned=frozenset(
                each for each in self._toolchains.digests if self._namespaces.disowns(namespace, each)
            ),
        )

    async def normalize(self, caller: Caller, source: GraphSource, numerics: str) -> Normalized:
        """The canonical form of a graph. Stores nothing; parses nothing that is known."""
        namespace = await self._namespaces.get(caller.namespace)
        with self._noting(namespace, caller, source, "normalize") as noted:
            graph = await self._find_graph(namespace, source, numerics)
            if graph is not None:
                spec = await self._threads(self._store.get_spec, namespace, graph.key)
                if spec is not None:
                    noted.graph(graph)
                    return Normalized(spec.text, parsed_binding(graph))
            program = await self.programs.of(namespace, source)
            canonical = await self._graphs.canonicalize(namespace, program, numerics, caller)
            noted.spec(canonical.spec_digest, None)
            version = self._pool.canonicalizer
            binding = manifests.binding(canonical, program, numerics, namespace, key=0, canonicalizer=version)
            return Normalized(canonical.spec_text, binding)

    async def store(self, caller: Caller, source: GraphSource, numerics: str) -> Stored:
        """Gives the key of a graph, a new one if its spec is not known. Idempotent."""
        namespace = await self._namespaces.get(caller.namespace)
        with self._noting(namespace, caller, source, "store") as noted:
            graph = await self._find_graph(namespace, source, numerics)
            if graph is not None:
                noted.graph(graph, "known")
                return Stored(graph, created=False)
            program = await self.programs.of(namespace, source)
            stored = await self._graphs.store(namespace, program, numerics, caller).result()
            noted.elsewhere()
            return stored

    async def lookup(self, caller: Caller, source: GraphSource, numerics: str) -> StoredSpec | None:
        """The spec of a graph if it is stored. Stores nothing."""
        namespace = await self._namespaces.get(caller.namespace)
        with self._noting(namespace, caller, source, "lookup") as noted:
            graph = await self._find_graph(namespace, source, numerics)
            if graph is not None:
                noted.graph(graph, "found")
                return await self._threads(self._catalog.spec, namespace, graph.key)
            program = await self.programs.of(namespace, source)
            canonical = await self._graphs.canonicalize(namespace, program, numerics, caller)
            spec = await self._threads(self._catalog.find_spec, namespace, canonical.spec_digest)
            outcome, key = ("found", spec.record.key) if spec else ("absent", None)
            noted.spec(canonical.spec_digest, key, outcome)
            return spec

    async def get_spec(self, caller: Caller, key: int) -> StoredSpec:
        """A spec by key, and the key that this one stands for now. Raises ``NotFound``."""
        namespace = await self._namespaces.get(caller.namespace)
        spec = await self._threads(self._catalog.spec, namespace, key)
        event = AuditEvent(
            "retrieve",
            outcome="ok",
            spec_digest=spec.record.spec_digest,
            key=key,
            byte_count=len(spec.record.text),
        )
        self._audit_recorder.note(namespace, caller, event)
        return spec

    async def list_kernels(self, caller: Caller, key: int, page_size: int, page_token: str) -> KernelPage:
        """The kernels of a key, youngest first. Raises ``NotFound``, ``ArgumentError``."""
        namespace = await self._namespaces.get(caller.namespace)
        return await self._threads(self._catalog.kernels, namespace, key, page_size, page_token)

    async def count(self, caller: Caller) -> int:
        """How many specs the namespace has."""
        namespace = await self._namespaces.get(caller.namespace)
        return await self._threads(self._store.count_specs, namespace)

    async def stats(self, caller: Caller) -> tuple[Stats, int, int]:
        """Counts of the namespace, programs parsed and memory hits since the start."""
        namespace = await self._namespaces.get(caller.namespace)
        await self._audit_recorder.flush()
        stats = await self._threads(self._store.stats, namespace)
        return stats, self._graphs.programs_parsed, self._kernels.memory_hits

    async def savings(self, caller: Caller) -> tuple[SavingRecord, ...]:
        """What hits saved, by actor and job, most time first, at most ``MOST_SAVINGS``."""
        namespace = await self._namespaces.get(caller.namespace)
        return await self._threads(self._store.list_savings, namespace, MOST_SAVINGS)

    @property
    def toolchains(self) -> Toolchains:
        """What compiles here."""
        return self._toolchains

    @property
    def pace(self) -> float:
        """Seconds between two messages to who waits for several compiles: more where many wait."""
        return self._waiters.pace

    def counters(self) -> dict[str, int]:
        """What this process did since it started, and does now. Asks nobody: for metrics."""
        return {
            **self._pool.counters(),
            "programs_parsed": self._graphs.programs_parsed,
            "memory_hits": self._kernels.memory_hits,
            "compile_requests": self._asked,
            "compiles": self._coordinator.started,
            "compiles_running": self._coordinator.running,
            "audit_dropped": self._audit_recorder.dropped,
            **{counter_of(reason): self._bypasses[reason] for reason in SERVER_REASONS},
            "libraries_prepared": self._precompilation.compiled,
            "library_preparations_preempted": self._precompilation.preempted,
            "verifications": self._background.verified if self._background else 0,
            "verification_faults": self._background.faulty if self._background else 0,
            "verifications_preempted": self._background.preempted if self._background else 0,
            **self.blobs.counters(),
            **self.assertions.counters(),
        }

    def check_queries(self, count: int) -> None:
        """Raises ``ResourceExhausted`` for more queries than one call may have."""
        if count > self.limits.queries:
            raise ResourceExhausted(
                f"{count} queries in one call, above the limit of {self.limits.queries}", limit="max_queries"
            )

    async def get_kernels(
        self,
        caller: Caller,
        program_digests: Sequence[bytes],
        requirements: KernelRequirements,
        kinds: frozenset[str],
        inline_budget: int,
    ) -> AsyncGenerator[list[Found | Missing]]:
        """Looks up many kernels, one answer a digest, in order. Parses and compiles nothing.

        The answers come in parts, each made when it is asked for, of some ``PART_BYTES``.
        """
        self.check_queries(len(program_digests))
        for digest in program_digests:
            check_digest(digest, "program_digest")
        namespace = await self._namespaces.serving(
            caller.namespace, self._toolchains.of(requirements.target).digest
        )
        requirements = requirements.within(self._namespaces.allows_compatible_targets(namespace))
        budget = min(inline_budget, self.limits.inline_artifact_bytes)
        known: KernelRequirements | None = None
        for start in range(0, len(program_digests), _WINDOW):
            if start:
                await asyncio.sleep(0)  # the calls of others come first
            digests = program_digests[start : start + _WINDOW]
            query = Query(namespace, requirements, kinds, budget)
            remembered = self._lookups.remembered(query, digests)
            if remembered is None:
                known = known or await self._with_evidence(namespace, requirements)
                query = replace(query, requirements=known)
            parts = self._lookups.find(query, digests) if remembered is None else in_parts(remembered)
            answered = 0
            async with aclosing(parts):
                async for results in parts:
                    some = digests[answered : answered + len(results)]
                    self._audit_recorder.looked_up(namespace, caller, requirements.target, some, results)
                    answered += len(results)
                    budget -= sum(each.inline_bytes for each in results if isinstance(each, Found))
                    yield results

    async def compile(
        self,
        caller: Caller,
        source: GraphSource,
        requirements: KernelRequirements,
        retry_failed: bool,
        kinds: frozenset[str],
        send: SendStage,
        silence: float,
    ) -> Compiled:
        """Finds or makes one kernel. A started compile continues if callers disconnect; parsing is cancelled.

        ``kinds``: artifacts that the caller gets, for the audit log. ``send`` is told stages as they come,
        and ``None`` after each ``silence``, seconds without a stage.
        """
        self._asked += 1
        namespace = await self._namespaces.serving(
            caller.namespace, self._toolchains.of(requirements.target).digest
        )
        requirements = requirements.within(self._namespaces.allows_compatible_targets(namespace))
        answer, stages = self._reply_cache.get(namespace, source, requirements), ()
        if answer is not None:
            origin = answer.kernel.origin
        else:

            def work(call: InFlightCall[Answer]) -> Awaitable[Answer]:
                return self._answer(call, namespace, caller, source, requirements, retry_failed)

            try:
                with self._waiters.waiter() as waiter:
                    call, ours = self._reply_cache.join(namespace, source, requirements, retry_failed, work)
                    with call.waiter():
                        await waiter.follow(call, send, ours=ours, silence=silence)
                    if not ours and isinstance(call.task.exception(), ProgramRequired):
                        # It began before this request, and may not have seen what was uploaded meanwhile.
                        call, ours = self._reply_cache.join(
                            namespace, source, requirements, retry_failed, work
                        )
                        with call.waiter():
                            await waiter.follow(call, send, ours=ours, silence=silence)
                    answer, stages = await call.result(), waiter.rest(call)
            except KcacheError as error:
                self._noting(namespace, caller, source, "", str(requirements.target)).failed(error)
                reason = rejection_reason(error)
                if reason is not None:
                    self._bypassed(reason)
                raise
            namespace = await self._namespaces.again(namespace)
            origin = Origin.JOINED if answer.origin is Origin.COMPILED and not ours else answer.origin
        if origin is not Origin.COMPILED:
            size = sum(ref.size for ref in answer.kernel.wanted(kinds))
            self._audit_recorder.served(
                namespace, caller, answer.graph, answer.kernel, origin.value, requirements.target, size
            )
        return Compiled(answer, origin, stages)

    async def _answer(
        self,
        call: InFlightCall[Answer],
        namespace: Namespace,
        caller: Caller,
        source: GraphSource,
        requirements: KernelRequirements,
        retry_failed: bool,
    ) -> Answer:
        """For all equal requests that come meanwhile; they cost a look into a dictionary each."""
        numerics = requirements.options.numerics
        graph, stored = None, None
        if not self._graphs.is_storing(namespace, source, numerics):
            graph = await self._graphs.find_joined(namespace, source_digest(source), numerics)
        if graph is None:
            program = await self.programs.of(namespace, source)
            storing = self._graphs.store(namespace, program, numerics, caller, retry_failed)
            storing.add_listener(call.report)
            stored = await storing.result()
            graph = stored.graph
            # It was created when the program was stored, if it had not been.
            namespace = await self._namespaces.again(namespace)
        requirements = await self._with_evidence(namespace, requirements)
        report = self._estimates.follow(call, namespace, graph.key, requirements)
        pending = self._resolver.kernel(
            namespace, graph, requirements, caller, retry_failed, report, stored=stored
        )
        return Answer(graph, *await pending)

    def _bypassed(self, reason: BypassReason) -> None:
        self._bypasses[reason] += 1

    def bypasses(self) -> dict[str, int]:
        """Compile requests that bypassed the cache since the start, by reason: all that a server sees."""
        return {reason.value: self._bypasses[reason] for reason in SERVER_REASONS}

    async def _with_evidence(
        self, namespace: Namespace, requirements: KernelRequirements
    ) -> KernelRequirements:
        """The requirements with what their evidence shows. Raises ``NotFound`` for programs not stored."""
        digests = requirements.shapes.evidence
        if not digests:
            return requirements
        graphs = await self._graphs.find(namespace, digests, requirements.options.numerics)
        for digest in digests:
            if digest not in graphs:
                raise NotFound(
                    f"program {digest.hex()}, which is evidence of the request, is not stored in namespace "
                    f"{namespace.name}: store it first, with StoreGraph and numerics "
                    f"{requirements.options.numerics}",
                    program_digest=digest.hex(),
                )
        return replace(requirements, witnesses=tuple(graphs[digest].witness for digest in digests))

    async def explain(
        self, caller: Caller, source: GraphSource, requirements: KernelRequirements, neighbors: int
    ) -> Explanation:
        """Why a request finds its kernel, or how it differs from the nearest stored ones. Stores nothing."""
        most = checked_most(neighbors)
        namespace = await self._namespaces.get(caller.namespace)
        requirements = requirements.within(self._namespaces.allows_compatible_targets(namespace))
        requirements = await self._with_evidence(namespace, requirements)
        with self._noting(namespace, caller, source, "explain", str(requirements.target)) as noted:
            graph = await self._find_graph(namespace, source, requirements.options.numerics)
            if graph is not None:
                noted.graph(graph)
                return await self._explainer.known(namespace, graph, requirements, most)
            program = await self.programs.of(namespace, source)
            return await self._explainer.new(namespace, caller, program, requirements, most)

    async def estimate(
        self, caller: Caller, source: GraphSource, requirements: KernelRequirements
    ) -> Estimate:
        """How long the compile of a request is expected to take. Stores and compiles nothing."""
        namespace = await self._namespaces.get(caller.namespace)
        requirements = await self._with_evidence(namespace, requirements)
        with self._noting(namespace, caller, source, "estimate", str(requirements.target)) as noted:
            graph = await self._find_graph(namespace, source, requirements.options.numerics)
            if graph is None:
                program = await self.programs.of(namespace, source)
                new = await self._explainer.canonicalize(namespace, caller, program, requirements)
                noted.spec(new.graph.spec_digest, new.graph.key or None)
                graph, text = new.graph, new.text
            else:
                noted.graph(graph)
                text = ""
            if graph.key and await self._resolver.holds(namespace, graph, requirements):
                return HIT
            return await self._estimates.estimate(namespace, Subject(graph.key, text), requirements)

    async def check(self, caller: Caller, source: GraphSource, target: str, numerics: str) -> Checked:
        """What of a program does not compile for a target. Stores nothing."""
        namespace = await self._namespaces.get(caller.namespace)
        with self._noting(namespace, caller, source, "check", target):
            program = await self.programs.of(namespace, source)
            return await check_program(self._pool, program, target, numerics, self.limits, caller)

    def _noting(
        self, namespace: Namespace, caller: Caller, source: GraphSource, kind: str, target: str = ""
    ) -> Noting:
        digest = source.digest if isinstance(source, Program) else source
        event = AuditEvent(kind, "ok", program_digest=digest if len(digest) == 32 else None, target=target)
        return Noting(self._audit_recorder, namespace, caller, event)

    async def _find_graph(
        self, namespace: Namespace, source: GraphSource, numerics: str
    ) -> KnownGraph | None:
        digest = source_digest(source)
        return (await self._graphs.find(namespace, [digest], numerics)).get(digest)

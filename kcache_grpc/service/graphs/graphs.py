"""Programs and their specs: known by digest, or parsed once in a worker and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kcache_compiler.types import Canonical
from kcache_grpc.errors import CompileFailed, CompileTimeout
from kcache_grpc.model.manifest import Binding
from kcache_grpc.model.program import Program
from kcache_grpc.model.signing import BINDING_DOMAIN, Signer
from kcache_grpc.service import manifests
from kcache_grpc.service.audit.events import client_detail
from kcache_grpc.service.claims import Claims, WorkClaim
from kcache_grpc.service.failures import Failures, as_error
from kcache_grpc.service.graphs.canonicalizer_upgrade import CanonicalizerUpgrade
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import ReadBatch, StoreThreads
from kcache_grpc.service.tasks.single_flight import LOOK_WINDOW, InFlightCall, SingleFlight
from kcache_grpc.service.values import Caller, GraphSource, KnownGraph, Limits, Stored
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import (
    AuditEvent,
    FailureRecord,
    GraphDraft,
    MappingRecord,
    Namespace,
    SignedBytes,
    SpecDraft,
)
from kcache_grpc.worker import Needed, WorkerPool, codec

_MEMORY_BYTES = 64 << 20


class Graphs:
    """Mappings in memory, in the store, or made. One event loop."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        namespaces: Namespaces,
        writers: StoreThreads,
        pool: WorkerPool,
        signer: Signer,
        failures: Failures,
        claims: Claims,
        canonicalizer_upgrade: CanonicalizerUpgrade,
        limits: Limits,
        quotas: QuotaEviction,
    ) -> None:
        self._store = store
        self._threads = threads
        self._namespaces = namespaces
        self._writers = writers
        self._pool = pool
        self._signer = signer
        self._failures = failures
        self._claims = claims
        self._canonicalizer_upgrade = canonicalizer_upgrade
        self._limits = limits
        self._quotas = quotas
        self._toolchains = pool.toolchains
        self._known: ByteLru[tuple[int, int, int, bytes, str], KnownGraph] = ByteLru(_MEMORY_BYTES)
        self._parsing: SingleFlight[tuple[bytes, str], Canonical] = SingleFlight(abandon=True)
        self._storing: SingleFlight[tuple[str, int, bytes, str], Stored] = SingleFlight(abandon=True)
        #: Many who ask for a program at once look once.
        self._looking: SingleFlight[tuple[int, int, int, bytes, str], KnownGraph | None] = SingleFlight(
            LOOK_WINDOW
        )
        self._records: ReadBatch[tuple[Namespace, str], bytes, MappingRecord] = ReadBatch(
            lambda group, digests: threads(store.find_mappings, group[0], digests, group[1])
        )
        self.programs_parsed = 0

    def remembered(self, namespace: Namespace, program_digest: bytes, numerics: str) -> KnownGraph | None:
        """The mapping if it is in memory."""
        return self._known.get((namespace.id, namespace.epoch, namespace.removals, program_digest, numerics))

    async def find(
        self, namespace: Namespace, program_digests: Sequence[bytes], numerics: str
    ) -> dict[bytes, KnownGraph]:
        """The mappings that are known, in memory or in the store."""
        graphs: dict[bytes, KnownGraph] = {}
        for digest in program_digests:
            known = self.remembered(namespace, digest, numerics)
            if known is not None:
                graphs[digest] = known
        missing = [digest for digest in dict.fromkeys(program_digests) if digest not in graphs]
        if missing:
            records = await self._threads(self._store.find_mappings, namespace, missing, numerics)
            for digest, record in records.items():
                graph = self._ours(namespace, record, numerics)
                if graph is not None:
                    graphs[digest] = graph
        return graphs

    async def _find_one(
        self, namespace: Namespace, program_digest: bytes, numerics: str
    ) -> KnownGraph | None:
        """As ``find``, together with what others look for meanwhile."""
        known = self.remembered(namespace, program_digest, numerics)
        if known is not None:
            return known
        record = await self._records.read((namespace, numerics), program_digest)
        return None if record is None else self._ours(namespace, record, numerics)

    def _ours(self, namespace: Namespace, record: MappingRecord, numerics: str) -> KnownGraph | None:
        graph = manifests.known_graph(record, self._signer.key_id)
        return self.remember(namespace, graph, numerics) if self.is_ours(graph) else None

    async def find_joined(
        self, namespace: Namespace, program_digest: bytes, numerics: str
    ) -> KnownGraph | None:
        """As ``find``, for who stores what is not found: a look that began before this one will do."""
        known = self.remembered(namespace, program_digest, numerics)
        if known is not None:
            return known

        async def look(_: object) -> KnownGraph | None:
            return await self._find_one(namespace, program_digest, numerics)

        key = (namespace.id, namespace.epoch, namespace.removals, program_digest, numerics)
        return await self._looking.join(key, look)[0].result()

    def is_ours(self, graph: KnownGraph) -> bool:
        """Whether this service's canonicalizer wrote the spec; the compiler reads no others."""
        return graph.canonicalizer == self._pool.canonicalizer

    async def canonicalize(
        self,
        namespace: Namespace,
        program: Program,
        numerics: str,
        caller: Caller,
        retry_failed: bool = False,
    ) -> Canonical:
        """Parses a program in a worker, once for all who ask at the same time.

        Raises what the frontend raises. A program that breaks its parser is remembered for a while.
        """
        name = manifests.unreadable(program.digest, numerics, self._toolchains)
        if not retry_failed:
            await self._failures.check(namespace, name)

        async def parse(_: object) -> Canonical:
            canonical = await self._parse(namespace, program, numerics, name, caller)
            assert canonical is not None
            return canonical

        return await self._parsing.join((program.digest, numerics), parse)[0].result()

    def store(
        self,
        namespace: Namespace,
        program: Program,
        numerics: str,
        caller: Caller,
        retry_failed: bool = False,
    ) -> InFlightCall[Stored]:
        """Parses and stores a program: transaction (a), which stands whatever becomes of a compile.

        A namespace that is not stored is created once the program has been parsed.
        """

        async def work(call: InFlightCall[Stored]) -> Stored:
            call.report("canonicalize")
            claimed = manifests.parsing(namespace, program.digest, numerics, self._pool.canonicalizer)
            async with self._claims.turn(claimed) as turn:
                canonical = await self._parse_unless_stored(
                    namespace, program, numerics, caller, turn, retry_failed
                )
                call.keep()
                if isinstance(canonical, KnownGraph):
                    return Stored(canonical, created=False, elsewhere=True)
                call.report("store")
                space = await self._namespaces.create(namespace)
                return await self._put(space, program, numerics, canonical, caller)

        key = (namespace.name, namespace.epoch, program.digest, numerics)
        return self._storing.join(key, work)[0]

    async def _parse_unless_stored(
        self,
        namespace: Namespace,
        program: Program,
        numerics: str,
        caller: Caller,
        turn: WorkClaim,
        retry_failed: bool,
    ) -> Canonical | KnownGraph:
        """The mapping where another server stores it before it is our turn and there is a worker."""
        name = manifests.unreadable(program.digest, numerics, self._toolchains)
        known: KnownGraph | None = None
        failure: FailureRecord | None = None

        async def needed(waited: bool) -> bool:
            nonlocal known, failure
            if waited or turn.waited:
                # Who was waited for may have created the namespace.
                space = namespace if namespace.is_stored else await self._namespaces.get(namespace.name)
                known = await self._find_one(space, program.digest, numerics)
            if known is not None or not await turn.should_run():
                return False
            if not retry_failed:
                failure = await self._failures.find_one(namespace, name)
            return failure is None

        while True:
            canonical = await self._parse(namespace, program, numerics, name, caller, needed)
            if canonical is not None:
                return canonical
            if failure is not None:
                raise as_error(failure)
            if known is not None:
                return known
            await turn.wait()

    def is_storing(self, namespace: Namespace, source: GraphSource, numerics: str) -> bool:
        """Whether this process is about to store the program."""
        digest = source.digest if isinstance(source, Program) else source
        return (namespace.name, namespace.epoch, digest, numerics) in self._storing

    async def drain(self, grace: float) -> None:
        """Waits for what is being parsed and stored."""
        await self._parsing.drain(grace)
        await self._storing.drain(grace)

    async def _parse(
        self,
        namespace: Namespace,
        program: Program,
        numerics: str,
        name: bytes,
        caller: Caller,
        needed: Needed | None = None,
    ) -> Canonical | None:
        """``None`` only when it is not ``needed`` any more."""
        limits = self._limits
        bounds = {
            "program_bytes": limits.program_bytes,
            "operations": limits.operations,
            "region_depth": limits.nesting,
        }
        job = codec.canonicalize_job(
            program.body, program.format.value, numerics, bounds, limits.normalize_seconds
        )
        given_up = False
        try:
            reply = await self._pool.canonicalize_if(job, limits.normalize_seconds, needed, caller.turn)
            given_up = reply is None
            return None if reply is None else codec.decode_canonical(reply)
        except (CompileFailed, CompileTimeout) as error:
            await self._failures.remember(namespace, name, error)
            raise
        finally:
            self.programs_parsed += not given_up

    async def _put(
        self, namespace: Namespace, program: Program, numerics: str, canonical: Canonical, caller: Caller
    ) -> Stored:
        """Store spec, mapping with a signed binding, and constants in one transaction; evicts for quotas.

        Raises ``ResourceExhausted`` if a quota rejects more.
        """

        def bind(key: int) -> SignedBytes:
            binding = manifests.binding(
                canonical, program, numerics, namespace, key, self._pool.canonicalizer
            )
            payload = binding.to_bytes()
            return SignedBytes(payload, self._signer.sign(BINDING_DOMAIN, payload).signature)

        spec = SpecDraft(
            canonical.spec_digest,
            canonical.spec_text,
            numerics,
            self._pool.canonicalizer,
            "linalg" if program.format.value == "linalg" else "stablehlo",
        )
        event = AuditEvent(
            kind="store",
            outcome="ok",
            actor=caller.actor,
            job=caller.job,
            peer=caller.peer,
            request_id=caller.request_id,
            program_digest=program.digest,
            spec_digest=canonical.spec_digest,
            byte_count=len(program.body),
            detail=client_detail(caller.client),
        )
        draft = GraphDraft(spec, program.digest, bind, manifests.constants(canonical))
        stored = await self._writers(
            self._quotas.insert_evicting, self._store.put_graph, namespace, draft, event
        )
        if stored.new_mapping and namespace.epoch > 1:
            await self._threads(
                self._canonicalizer_upgrade.join, namespace, program.digest, numerics, stored.spec
            )
        graph = manifests.known_graph(stored.mapping, self._signer.key_id)
        if not self.is_ours(graph):
            # Another server's canonicalizer wrote the mapping in this epoch: ours is kept in memory only.
            ours = replace(stored.mapping, key=stored.spec.key, binding=bind(stored.spec.key))
            graph = manifests.known_graph(ours, self._signer.key_id)
        return Stored(self.remember(namespace, graph, numerics), stored.new_spec)

    def remember(self, namespace: Namespace, graph: KnownGraph, numerics: str) -> KnownGraph:
        """Keeps a mapping in memory."""
        key = (namespace.id, namespace.epoch, namespace.removals, graph.program_digest, numerics)
        self._known.put(key, graph, len(graph.binding.payload) + len(graph.arg_spec))
        return graph


def parsed_binding(graph: KnownGraph) -> Binding:
    """The binding of a known graph; our own bytes, signed when they were stored."""
    return Binding.from_bytes(graph.binding.payload)

"""Explains a request: the step at which its lookup ends, and how the nearest kernels differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from kcache_grpc.errors import CompileFailed, CompileTimeout, ResourceExhausted
from kcache_grpc.model.explanation import (
    Difference,
    Explanation,
    MappingOfSpec,
    Neighbor,
    at,
)
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.program import Program
from kcache_grpc.service import manifests
from kcache_grpc.service.explain.explanations import (
    Request,
    explanation,
    failed_before,
    failed_words,
    identity_of,
    neighbor,
    step_of,
    unreadable,
    with_compatible,
)
from kcache_grpc.service.explain.ingredient_differences import Asked, differences
from kcache_grpc.service.failures import Failures
from kcache_grpc.service.graphs.graphs import Graphs
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import Choice, target_of
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller, KernelRequirements, KnownGraph
from kcache_grpc.storage.contract.nearby import WEIGHTS, NearKernel
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import CorruptStore
from kcache_grpc.storage.records import (
    FailureRecord,
    MappingRecord,
    Namespace,
    SignedBytes,
    SpecRecord,
)
from kcache_grpc.worker import WorkerPool, codec

Choose = Callable[[Namespace, KnownGraph, KernelRequirements], Awaitable[Choice]]

#: Neighbors that are compared: unless said otherwise, and at most.
DEFAULT_NEIGHBORS, MAX_NEIGHBORS = 3, 20
#: Specs of about the same size that are looked at, and the bytes of their texts at most.
_CANDIDATES, _CANDIDATE_BYTES = 64, 16 << 20
_MAPPINGS = 10
#: What a kernel of another spec is farther away by: more than all ``WEIGHTS`` together.
_OTHER_SPEC = sum(WEIGHTS.values()) + 1


@dataclass(frozen=True)
class NewGraph:
    """A program without a mapping: its graph, with key 0 unless its spec is stored, and its spec's text."""

    graph: KnownGraph
    text: str


class Explainer:
    """Reads and compares; stores nothing. One event loop. ``choose`` is how lookups and compiles choose."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        pool: WorkerPool,
        graphs: Graphs,
        kernels: Kernels,
        failures: Failures,
        choose: Choose,
        key_id: bytes,
        compare_seconds: float,
    ) -> None:
        self._store = store
        self._threads = threads
        self._pool = pool
        self._graphs = graphs
        self._kernels = kernels
        self._failures = failures
        self._choose = choose
        self._key_id = key_id
        self._seconds = compare_seconds
        self._toolchains = pool.toolchains

    async def known(
        self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements, most: int
    ) -> Explanation:
        """Of a program that has a mapping."""
        return await self._of_graph(namespace, graph, requirements, most, known=True)

    async def new(
        self,
        namespace: Namespace,
        caller: Caller,
        program: Program,
        requirements: KernelRequirements,
        most: int,
    ) -> Explanation:
        """Of a program that has none: it is canonicalized. Raises what its frontend raises."""
        numerics = requirements.options.numerics
        name = manifests.unreadable(program.digest, numerics, self._toolchains)
        broken = (await self._failures.find(namespace, [name])).get(name)
        if broken is not None:
            return unreadable(program.digest, broken)
        new = await self.canonicalize(namespace, caller, program, requirements)
        if new.graph.key:
            return await self._of_graph(namespace, new.graph, requirements, most, known=False)
        identity = manifests.identity(
            new.graph, manifests.shape(new.graph, requirements), requirements, self._toolchains
        )
        request = Request(namespace, new.graph, identity, numerics, known=False, most=most)
        return await self._of_unknown_spec(request, new.text)

    async def canonicalize(
        self, namespace: Namespace, caller: Caller, program: Program, requirements: KernelRequirements
    ) -> NewGraph:
        """A program without a mapping as it would be stored. Raises what its frontend raises."""
        numerics = requirements.options.numerics
        canonical = await self._graphs.canonicalize(namespace, program, numerics, caller)
        spec = await self._threads(self._store.find_spec, namespace, canonical.spec_digest)
        key = 0 if spec is None else spec.key
        binding = manifests.binding(canonical, program, numerics, namespace, key, self._pool.canonicalizer)
        unsigned = SignedBytes(binding.to_bytes(), b"")
        record = MappingRecord(program.digest, numerics, key, unsigned, namespace.epoch, 0)
        return NewGraph(manifests.known_graph(record, self._key_id), canonical.spec_text)

    async def _of_graph(
        self,
        namespace: Namespace,
        graph: KnownGraph,
        requirements: KernelRequirements,
        most: int,
        known: bool,
    ) -> Explanation:
        """Explain a request for a stored graph: hit or miss, and kernels for lower targets that would do."""
        choice = await self._choose(namespace, graph, requirements)
        numerics = requirements.options.numerics
        if choice.kernel is not None:
            identity = identity_of(Manifest.from_bytes(choice.kernel.manifest.payload))
            hit = await self._hit(Request(namespace, graph, identity, numerics, known, most))
            return (
                hit if identity.target == str(requirements.target) else with_compatible(hit, identity.target)
            )
        failure: FailureRecord | None = None
        request: Request | None = None
        for shape in choice.shapes:  # the next one where this one failed
            identity = manifests.identity(graph, shape, requirements, self._toolchains)
            request = Request(namespace, graph, identity, numerics, known, most)
            if await self._kernels.find(namespace, [identity.digest]):
                return await self._hit(request)
            failure = (await self._failures.find(namespace, [identity.digest])).get(identity.digest)
            if failure is None:
                break
        assert request is not None
        missed = await self._miss(request, failure)
        if requirements.compatible:
            return missed
        lower = (await self._choose(namespace, graph, replace(requirements, compatible=True))).kernel
        return missed if lower is None else with_compatible(missed, str(target_of(lower)))

    async def _hit(self, request: Request) -> Explanation:
        """A request whose kernel is stored."""
        mappings = await self._threads(self._mappings, request)
        graph = request.graph
        if request.known:
            since = next((f" on {each.created:%Y-%m-%d}" for each in mappings if each.own), "")
            return explanation(
                request,
                "FOUND_BY_PROGRAM",
                f"this program was stored{since} under key {graph.key}, and its kernel is there",
                mappings,
            )
        others = "another program with the same spec was stored before"
        summary = f"this program is new here, but {others}: the kernel of key {graph.key} serves it"
        return explanation(request, "FOUND_BY_SPEC", summary, mappings)

    async def _miss(self, request: Request, failure: FailureRecord | None) -> Explanation:
        """A request whose spec is stored, and whose kernel is not."""
        mappings = await self._threads(self._mappings, request)
        near = await self._threads(self._near, request)
        compiling = await self._threads(self._store.find_leases, request.namespace, [request.identity.digest])
        asked = self._asked(request)
        neighbors = tuple(
            neighbor(each, request.graph.spec_digest, differences(asked, each))
            for each in near[: request.most]
        )
        if failure is not None:
            step, summary = "FAILED", failed_words(failure)
        elif any(state.held for state in compiling.values()):
            step, summary = "COMPILING", "its kernel is being compiled at this moment"
        else:
            step, summary = step_of(asked, near)
        miss = explanation(request, step, summary, mappings)
        return replace(miss, nearest=neighbors, failure=failed_before(failure) if failure else None)

    async def _of_unknown_spec(self, request: Request, text: str) -> Explanation:
        """A program whose spec, of this text, is not stored: compared with the specs most like it."""
        namespace = request.namespace
        candidates = await self._threads(self._candidates, namespace, len(text.encode()))
        if not candidates:
            summary = f"nothing was ever stored in namespace {namespace.name}"
            return explanation(request, "NAMESPACE_EMPTY", summary, ())
        job = codec.compare_job(text, [spec.text for spec in candidates], request.most)
        summary = "no stored program has the same spec"
        try:
            reply = await self._pool.canonicalize(job, self._seconds)
        except (CompileFailed, CompileTimeout):
            summary = f"{summary}, and comparing it with those of about its size was given up"
            return explanation(request, "SPEC_UNKNOWN", summary, ())
        asked = self._asked(request)
        nearest: list[Neighbor] = []
        for near in codec.decode_neighbors(reply):
            reported = tuple(Difference(d.name, d.yours, d.theirs, d.sentence) for d in near.differences)
            spec = candidates[near.index]
            nearest.append(await self._threads(self._of_spec, asked, spec, near.distance, reported))
        return replace(explanation(request, "SPEC_UNKNOWN", summary, ()), nearest=tuple(nearest))

    def _asked(self, request: Request) -> Asked:
        return Asked(request.namespace, request.kernel, request.graph.sizes, self._toolchains)

    def _mappings(self, request: Request) -> tuple[MappingOfSpec, ...]:
        """The own mapping first; those of other programs after it, oldest first."""
        namespace, graph = request.namespace, request.graph
        records = self._store.list_mappings(namespace, graph.key, _MAPPINGS)
        own: list[MappingRecord] = []
        if request.known:
            record = self._store.find_mapping(namespace, graph.program_digest, request.numerics)
            own = [record] if record is not None else []
        others = [record for record in records if record.program_digest != graph.program_digest]
        return tuple(
            MappingOfSpec(
                record.program_digest, at(record.created_at), record.program_digest == graph.program_digest
            )
            for record in [*own, *others][:_MAPPINGS]
        )

    def _near(self, request: Request) -> tuple[NearKernel, ...]:
        return self._store.list_near_kernels(request.namespace, request.kernel, request.most)

    def _candidates(self, namespace: Namespace, size: int) -> Sequence[SpecRecord]:
        """Specs whose texts are about as long, within a budget of bytes; at least one if there is one."""
        specs: list[SpecRecord] = []
        budget = _CANDIDATE_BYTES
        for each in self._store.list_spec_sizes(namespace, size, _CANDIDATES):
            budget -= each.text_size
            if specs and budget < 0:
                break
            try:
                spec = self._store.get_spec(namespace, each.key)
            except CorruptStore:
                continue
            if spec is not None:
                specs.append(spec)
        return specs

    def _of_spec(
        self, asked: Asked, spec: SpecRecord, distance: int, reasons: tuple[Difference, ...]
    ) -> Neighbor:
        """A near spec, and the nearest of its kernels."""
        far = _OTHER_SPEC + distance
        near = self._store.list_near_kernels(asked.namespace, replace(asked.kernel, key=spec.key), 1)
        if not near:
            return Neighbor(spec.key, spec.spec_digest, b"", at(spec.created_at), far, reasons)
        rest = differences(asked, near[0], sizes=False)
        # The numerics class is part of the spec, which has said so.
        rest = tuple(each for each in rest if each.name != "options.numerics")
        return replace(neighbor(near[0], spec.spec_digest, reasons + rest), distance=far)


def checked_most(most: int) -> int:
    """How many neighbors to compare with. Raises ``ResourceExhausted``."""
    if most > MAX_NEIGHBORS:
        raise ResourceExhausted(
            f"{most} neighbors are above the limit of {MAX_NEIGHBORS}", limit="max_neighbors"
        )
    return most or DEFAULT_NEIGHBORS

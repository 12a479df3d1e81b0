"""Batched lookups of kernels by program digest; those in memory are answered without leaving the loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.service import manifests
from kcache_grpc.service.failures import Failures
from kcache_grpc.service.graphs.graphs import Graphs
from kcache_grpc.service.lookup.kernels import MEMORY_WINDOW, Kernels
from kcache_grpc.service.lookup.variants import CompatibleKernels, Variants, target_of
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Found, KernelRequirements, KnownGraph, KnownKernel, Missing
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.records import LoadedGraph, LoadedKernel, MappingRecord, Namespace, Wanted

#: More than these bytes of artifacts of one kernel are read apart: with manifest and binding they must fit a
#: message of 4 MiB.
_MAX_INLINE = 3 << 20
#: Bytes in one part of the answers to a call.
PART_BYTES = 192 << 10
_MEMORY_BYTES = 128 << 20
#: Programs that the event loop itself looks up in a store that answers from memory.
_MOST_PROMPT = 8


@dataclass(frozen=True)
class Query:
    """What all digests of one call are looked up for; ``budget`` bounds the inline bytes of the call."""

    namespace: Namespace
    requirements: KernelRequirements
    kinds: frozenset[str]
    budget: int


@dataclass
class _Read:
    """What is known of the programs of one call, and which of them are not known yet."""

    graphs: dict[bytes, KnownGraph] = field(default_factory=dict[bytes, KnownGraph])
    names: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    kernels: dict[bytes, KnownKernel] = field(default_factory=dict[bytes, KnownKernel])
    blobs: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    missing: dict[bytes, None] = field(default_factory=dict[bytes, None])

    def add(self, program_digest: bytes, graph: KnownGraph, name: bytes) -> None:
        """A program that is known, and the name of its kernel."""
        self.graphs[program_digest] = graph
        self.names[program_digest] = name


class BatchLookup:
    """Finds kernels; parses and compiles nothing. One event loop."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        graphs: Graphs,
        kernels: Kernels,
        variants: Variants,
        failures: Failures,
        toolchains: Toolchains,
        key_id: bytes,
        compatible: CompatibleKernels,
    ) -> None:
        self._store = store
        self._threads = threads
        self._key_id = key_id
        self._graphs = graphs
        self._kernels = kernels
        self._variants = variants
        self._failures = failures
        self._toolchains = toolchains
        self._compatible = compatible
        self._answers: ByteLru[tuple[int, int, int, bytes, KernelRequirements, frozenset[str]], Found] = (
            ByteLru(_MEMORY_BYTES, MEMORY_WINDOW)
        )

    def remembered(self, query: Query, program_digests: Sequence[bytes]) -> list[Found | Missing] | None:
        """The answers, if all of them are in memory and fit the budget."""
        space = query.namespace
        budget = query.budget
        answers: list[Found | Missing] = []
        for digest in program_digests:
            answer = self._answers.get(
                (space.id, space.epoch, space.removals, digest, query.requirements, query.kinds)
            )
            if answer is None or (answer.inline and (budget := budget - answer.inline_bytes) < 0):
                return None
            answers.append(answer)
        self._kernels.memory_hits += len(answers)
        return answers

    async def find(
        self, query: Query, program_digests: Sequence[bytes]
    ) -> AsyncGenerator[list[Found | Missing]]:
        """One answer a digest, in order, in parts: what a part holds is read when it is asked for."""
        choosing = query.requirements.shapes.mode == AUTO
        read = await (
            self._choose(query, program_digests) if choosing else self._read(query, program_digests)
        )
        answers: dict[bytes, Found | Missing] = {}
        for digest, graph in read.graphs.items():
            kernel = read.kernels.get(read.names[digest])
            answers[digest] = Missing(graph) if kernel is None else Found(graph, kernel)
        if query.requirements.compatible:
            missed = {digest: graph for digest, graph in read.graphs.items() if _is_missing(answers[digest])}
            lower = await self._compatible.find_many(query.namespace, missed, query.requirements)
            answers.update({digest: Found(missed[digest], kernel) for digest, kernel in lower.items()})
        if any(not isinstance(answers.get(digest), Found) for digest in program_digests):
            answers.update(await self._find_failures(query, program_digests, answers, read.names))
        results = [answers.get(digest, Missing(None)) for digest in program_digests]
        async for part in self._inline(query, results, read.blobs):
            yield part

    async def _choose(self, query: Query, program_digests: Sequence[bytes]) -> _Read:
        """The most specific kernels; where there is none, the name of the one that is tried last."""
        space, requirements, read = query.namespace, query.requirements, _Read()
        graphs = await self._graphs.find(space, program_digests, requirements.options.numerics)
        for digest, graph in graphs.items():
            choice = await self._variants.choose(space, graph, requirements)
            if choice.kernel is not None:
                read.add(digest, graph, choice.kernel.digest)
                read.kernels[choice.kernel.digest] = choice.kernel
            else:
                name = manifests.identity(graph, choice.shapes[-1], requirements, self._toolchains).digest
                read.add(digest, graph, name)
        return read

    async def _read(self, query: Query, program_digests: Sequence[bytes]) -> _Read:
        """What is in memory, and the rest from the store at once."""
        space, read = query.namespace, _Read()
        for digest in program_digests:
            graph = self._graphs.remembered(space, digest, query.requirements.options.numerics)
            if graph is None:
                read.missing[digest] = None
                continue
            read.add(digest, graph, self._name(graph, query.requirements))
            kernel = self._kernels.remembered(space, read.names[digest])
            if kernel is not None:
                read.kernels[kernel.digest] = kernel
        if (read.missing or _lacking(read)) and not await self._asked(query, read):
            few = len(program_digests) <= _MOST_PROMPT
            hurry = self._store.short_lock_waits if self._store.answers_from_memory and few else None
            self._remember(query, read, await self._threads.look(hurry, self._load, query, read))
        return read

    async def _asked(self, query: Query, read: _Read) -> bool:
        """Completes ``read`` where one program is missing, and the loop itself may ask for it."""
        if len(read.missing) != 1 or read.graphs:
            return False
        (digest,) = read.missing
        asking = self._store.ask_graph(
            query.namespace, digest, query.requirements.options.numerics, self._wanted(query)
        )
        if asking is None:
            return False
        try:
            loaded = await asking
        except StoreUnavailable:
            return False
        kernels = self._mapped(query, read, loaded)
        if any(name not in kernels for name in read.names.values()):
            return False  # one of several, or none
        self._remember(query, read, self._taken(read, kernels.values()))
        return True

    def _remember(
        self, query: Query, read: _Read, pairs: Iterable[tuple[KnownGraph, KnownKernel | None]]
    ) -> None:
        space = query.namespace
        for graph, kernel in pairs:
            self._graphs.remember(space, graph, query.requirements.options.numerics)
            if kernel is not None:
                self._kernels.remember(space, kernel)
        for blob, content in read.blobs.items():
            self._kernels.remember_blob(space, blob, content)

    def _load(self, query: Query, read: _Read) -> list[tuple[KnownGraph, KnownKernel | None]]:
        """Completes ``read`` from the store; may run in a thread, so it touches no memory of the loop."""
        return self._taken(read, self._loaded(query, read))

    def _taken(
        self, read: _Read, kernels: Iterable[LoadedKernel]
    ) -> list[tuple[KnownGraph, KnownKernel | None]]:
        for loaded in kernels:
            kernel = manifests.known_kernel(loaded.stored, self._key_id)
            read.kernels[kernel.digest] = kernel
            read.blobs.update(loaded.contents)
        return [(graph, read.kernels.get(read.names[d])) for d, graph in read.graphs.items()]

    def _mapped(self, query: Query, read: _Read, loaded: LoadedGraph | None) -> dict[bytes, LoadedKernel]:
        """Adds the graph to ``read``, and gives the kernel that came with it, by its digest."""
        if loaded is None:
            return {}
        self._add(query, read, loaded.mapping)
        return {} if loaded.only is None else {loaded.only.stored.kernel.kernel_digest: loaded.only}

    def _add(self, query: Query, read: _Read, mapping: MappingRecord) -> None:
        graph = manifests.known_graph(mapping, self._key_id)
        if self._graphs.is_ours(graph):
            read.add(mapping.program_digest, graph, self._name(graph, query.requirements))

    def _loaded(self, query: Query, read: _Read) -> Iterable[LoadedKernel]:
        """Adds the graphs that ``read`` lacks, and gives the kernels: all of one program in one statement."""
        space, numerics = query.namespace, query.requirements.options.numerics
        loaded: dict[bytes, LoadedKernel] = {}
        if len(read.missing) == 1:
            (digest,) = read.missing
            loaded = self._mapped(
                query, read, self._store.load_graph(space, digest, numerics, self._wanted(query))
            )
        else:
            for mapping in self._store.find_mappings(space, list(read.missing), numerics).values():
                self._add(query, read, mapping)
        names = _lacking(read)
        others = [name for name in names if name not in loaded]
        if len(others) == 1:
            kernel = self._store.load_kernel(space, others[0], self._wanted(query))
            loaded |= {} if kernel is None else {others[0]: kernel}
        elif others:
            stored = self._store.find_kernels(space, others)
            loaded |= {name: LoadedKernel(kernel, {}) for name, kernel in stored.items()}
        return [loaded[name] for name in names if name in loaded]

    def _wanted(self, query: Query) -> Wanted:
        requirements, most = query.requirements, min(query.budget, _MAX_INLINE)
        toolchain = self._toolchains.of(requirements.target).digest
        return Wanted(str(requirements.target), str(requirements.options), toolchain, query.kinds, most)

    def _name(self, graph: KnownGraph, requirements: KernelRequirements) -> bytes:
        return manifests.identity(
            graph, manifests.shape(graph, requirements), requirements, self._toolchains
        ).digest

    async def _find_failures(
        self,
        query: Query,
        program_digests: Sequence[bytes],
        answers: dict[bytes, Found | Missing],
        names: dict[bytes, bytes],
    ) -> dict[bytes, Missing]:
        """Remembered failures of what was not found, under the kernel's name or the program's."""
        numerics = query.requirements.options.numerics
        name_of: dict[bytes, bytes] = {}
        for digest in program_digests:
            if not isinstance(answers.get(digest), Found):
                name_of[digest] = names.get(digest) or manifests.unreadable(
                    digest, numerics, self._toolchains
                )
        records = await self._failures.find(query.namespace, list(name_of.values()))
        failed: dict[bytes, Missing] = {}
        for digest, name in name_of.items():
            if name in records:
                answer = answers.get(digest)
                failed[digest] = Missing(answer.graph if answer else None, records[name])
        return failed

    async def _inline(
        self, query: Query, results: Sequence[Found | Missing], read: Mapping[bytes, bytes]
    ) -> AsyncGenerator[list[Found | Missing]]:
        """Adds the bytes of wanted artifacts, first come first served, until the budget is used up.

        A part has some ``PART_BYTES``, or one result.
        """
        budget = query.budget
        chosen: list[list[ArtifactRef]] = []
        for result in results:
            refs: list[ArtifactRef] = []
            bytes_left = _MAX_INLINE
            for ref in result.kernel.wanted(query.kinds) if isinstance(result, Found) else ():
                if ref.size <= min(budget, bytes_left):
                    budget -= ref.size
                    bytes_left -= ref.size
                    refs.append(ref)
            chosen.append(refs)
        start = 0
        sizes = [
            _size(each) + sum(ref.size for ref in refs) for each, refs in zip(results, chosen, strict=True)
        ]
        for end in _ends(sizes):
            some = chosen[start:end]
            others = [ref for refs in some for ref in refs if ref.sha256 not in read]
            contents = {**read, **await self._kernels.blobs(query.namespace, others)} if others else read
            yield [
                self._complete(query, result, refs, contents) if isinstance(result, Found) else result
                for result, refs in zip(results[start:end], some, strict=True)
            ]
            start = end

    def _complete(
        self, query: Query, result: Found, refs: Sequence[ArtifactRef], contents: Mapping[bytes, bytes]
    ) -> Found:
        """The answer with its bytes; remembered when it is whole, and no better one may come."""
        inline = tuple((ref, contents[ref.sha256]) for ref in refs if ref.sha256 in contents)
        result = replace(result, inline=inline)
        best = not query.requirements.compatible or target_of(result.kernel) == query.requirements.target
        complete = len(inline) == len(result.kernel.wanted(query.kinds))
        if complete and best and query.requirements.shapes.mode != AUTO:
            space = query.namespace
            name = result.graph.program_digest
            key = (space.id, space.epoch, space.removals, name, query.requirements, query.kinds)
            size = (
                result.inline_bytes + len(result.kernel.manifest.payload) + len(result.graph.binding.payload)
            )
            self._answers.put(key, result, size)
        return result


async def in_parts(results: Sequence[Found | Missing]) -> AsyncGenerator[list[Found | Missing]]:
    """What is in memory, in the parts in which ``BatchLookup.find`` gives what it reads."""
    start = 0
    for end in _ends([_size(r) + (r.inline_bytes if isinstance(r, Found) else 0) for r in results]):
        yield list(results[start:end])
        start = end


def _is_missing(answer: Found | Missing) -> bool:
    return isinstance(answer, Missing)


def _ends(sizes: Sequence[int]) -> Iterator[int]:
    """Where each part ends."""
    part = 0
    for index, size in enumerate(sizes):
        if part and part + size > PART_BYTES:
            yield index
            part = 0
        part += size
    yield len(sizes)


def _size(result: Found | Missing) -> int:
    """Bytes of binding and manifest."""
    binding = 0 if result.graph is None else len(result.graph.binding.payload)
    return binding + (len(result.kernel.manifest.payload) if isinstance(result, Found) else 0)


def _lacking(read: _Read) -> list[bytes]:
    """Names of kernels that are not read yet."""
    return [name for name in read.names.values() if name not in read.kernels]

"""Batched look-ups of kernels by program digest; what is in memory is answered without leaving the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.service import describe
from kcache_grpc.service.failures import Failures
from kcache_grpc.service.graphs import Graphs
from kcache_grpc.service.kernels import MEMORY_WINDOW, Kernels
from kcache_grpc.service.memory import ByteLru
from kcache_grpc.service.values import Found, KernelWish, Missing
from kcache_grpc.storage.records import Namespace

#: Larger artifacts are read apart: with manifest and binding they must fit a message of 4 MiB.
_MAX_INLINE = 3 << 20
_MEMORY_BYTES = 128 << 20


@dataclass(frozen=True)
class Query:
    """What all digests of one call are looked up for; ``budget`` bounds the inline bytes of the call."""

    namespace: Namespace
    wish: KernelWish
    kinds: frozenset[str]
    budget: int


class Lookups:
    """Finds kernels; parses and compiles nothing. One event loop."""

    def __init__(self, graphs: Graphs, kernels: Kernels, failures: Failures, toolchain: bytes) -> None:
        self._graphs = graphs
        self._kernels = kernels
        self._failures = failures
        self._toolchain = toolchain
        self._answers: ByteLru[tuple[int, int, bytes, KernelWish, frozenset[str]], Found] = ByteLru(
            _MEMORY_BYTES, MEMORY_WINDOW
        )

    def remembered(self, query: Query, program_digests: Sequence[bytes]) -> list[Found | Missing] | None:
        """The answers, if all of them are in memory and fit the budget."""
        space = query.namespace
        budget = query.budget
        answers: list[Found | Missing] = []
        for digest in program_digests:
            answer = self._answers.get((space.id, space.epoch, digest, query.wish, query.kinds))
            if answer is None or (answer.inline and (budget := budget - answer.inline_bytes) < 0):
                return None
            answers.append(answer)
        self._kernels.memory_hits += len(answers)
        return answers

    async def find(self, query: Query, program_digests: Sequence[bytes]) -> list[Found | Missing]:
        """One answer a digest, in order."""
        numerics = query.wish.options.numerics
        graphs = await self._graphs.find(query.namespace, program_digests, numerics)
        names = {d: describe.identity(g, query.wish, self._toolchain).digest for d, g in graphs.items()}
        kernels = await self._kernels.find(query.namespace, list(names.values()))
        answers: dict[bytes, Found | Missing] = {}
        for digest, graph in graphs.items():
            kernel = kernels.get(names[digest])
            answers[digest] = Missing(graph) if kernel is None else Found(graph, kernel)
        answers.update(await self._find_failures(query, program_digests, answers, names))
        results = [answers.get(digest, Missing(None)) for digest in program_digests]
        return await self._inline(query, results)

    async def _find_failures(
        self,
        query: Query,
        program_digests: Sequence[bytes],
        answers: dict[bytes, Found | Missing],
        names: dict[bytes, bytes],
    ) -> dict[bytes, Missing]:
        """Remembered failures of what was not found, under the kernel's name or the program's."""
        numerics = query.wish.options.numerics
        wanted: dict[bytes, bytes] = {}
        for digest in program_digests:
            if not isinstance(answers.get(digest), Found):
                wanted[digest] = names.get(digest) or describe.unreadable(digest, numerics, self._toolchain)
        records = await self._failures.find(query.namespace, list(wanted.values()))
        failed: dict[bytes, Missing] = {}
        for digest, name in wanted.items():
            if name in records:
                answer = answers.get(digest)
                failed[digest] = Missing(answer.graph if answer else None, records[name])
        return failed

    async def _inline(self, query: Query, results: Sequence[Found | Missing]) -> list[Found | Missing]:
        """Adds the bytes of wanted artifacts, first come first served, until the budget is used up."""
        budget = query.budget
        chosen: list[list[ArtifactRef]] = []
        for result in results:
            refs: list[ArtifactRef] = []
            for ref in result.kernel.wanted(query.kinds) if isinstance(result, Found) else ():
                if ref.size <= min(budget, _MAX_INLINE):
                    budget -= ref.size
                    refs.append(ref)
            chosen.append(refs)
        contents = await self._kernels.blobs(query.namespace, [ref for refs in chosen for ref in refs])
        return [
            self._complete(query, result, refs, contents) if isinstance(result, Found) else result
            for result, refs in zip(results, chosen, strict=True)
        ]

    def _complete(
        self, query: Query, found: Found, refs: Sequence[ArtifactRef], contents: dict[bytes, bytes]
    ) -> Found:
        """The answer with its bytes; remembered when it has all that was asked for."""
        inline = tuple((ref, contents[ref.sha256]) for ref in refs if ref.sha256 in contents)
        found = replace(found, inline=inline)
        if len(inline) == len(found.kernel.wanted(query.kinds)):
            space = query.namespace
            key = (space.id, space.epoch, found.graph.program_digest, query.wish, query.kinds)
            size = found.inline_bytes + len(found.kernel.manifest.payload) + len(found.graph.binding.payload)
            self._answers.put(key, found, size)
        return found

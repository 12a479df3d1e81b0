"""The stored kernels of a spec: which of them serves a program's sizes, and which a request without a kernel
for its own target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kcache_grpc.model.evidence import auto_shape, evident, is_evident, witness_in
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.model.target import Target, compatible_targets, may_serve
from kcache_grpc.model.variants import Shape, most_specific
from kcache_grpc.service import manifests
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import KernelRequirements, KnownGraph, KnownKernel
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import Namespace

#: Seconds after which kernels that other processes published are seen at the latest.
_WINDOW = 1.0
_MEMORY_BYTES = 32 << 20
#: Programs of a spec, the oldest, whose sizes are evidence.
_PROGRAMS = 64

_Listed = tuple[tuple[int, Shape, KnownKernel], ...]
_Name = tuple[int, int, int, int, str, str]


@dataclass(frozen=True)
class Choice:
    """A stored kernel, or the shapes to compile: the second one when the first cannot be compiled."""

    kernel: KnownKernel | None
    shapes: tuple[Shape, ...]


class Variants:
    """Chooses for callers that leave the choice to the service. One event loop."""

    def __init__(
        self, store: Store, threads: StoreThreads, kernels: Kernels, toolchains: Toolchains, key_id: bytes
    ) -> None:
        self._store = store
        self._threads = threads
        self._kernels = kernels
        self._toolchains = toolchains
        self._key_id = key_id
        self._listed: ByteLru[_Name, _Listed] = ByteLru(_MEMORY_BYTES, _WINDOW)

    async def choose(
        self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements
    ) -> Choice:
        """The most specific stored kernel for the program's sizes, and for other sizes with evidence only.

        If there is none: dynamic in those of the requested symbols that have evidence, which is what stored
        programs of this spec and the request's own evidence show, and static where that cannot be compiled or
        no symbol has evidence. Raises ``ArgumentError``.
        """
        exact = Shape(graph.arg_spec)
        auto_shape(
            graph.sizes, requirements.shapes.axes, frozenset()
        )  # raises for axes that cannot be symbols
        name = manifests.identity(graph, exact, requirements, self._toolchains).digest
        known = self._kernels.remembered(namespace, name)
        if known is not None:  # nothing is more specific
            return Choice(known, ())
        listed = await self._list(namespace, graph, requirements)
        programs = await self._threads(self._store.list_mappings, namespace, graph.key, _PROGRAMS)
        seen = (witness_in(program.binding.payload) for program in programs)
        shown = evident(graph.witness, (*requirements.witnesses, *seen))
        kernel = most_specific(
            graph.sizes, (each for each in listed if is_evident(graph.sizes, each[1], shown))
        )
        if kernel is not None:
            return Choice(self._kernels.remember(namespace, kernel), ())
        shape = auto_shape(graph.sizes, requirements.shapes.axes, shown)
        return Choice(None, (shape,) if shape == exact else (shape, exact))

    def forget(self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements) -> None:
        """A kernel of this spec was published here."""
        self._listed.drop(self._name(namespace, graph, requirements))

    def published(self, namespace_id: int, key: int) -> None:
        """A kernel of this spec was published anywhere."""
        self._listed.drop_all(lambda name: name[0] == namespace_id and name[2] == key)

    def imported(self, namespace_id: int) -> None:
        """Kernels of any specs came to the namespace."""
        self._listed.drop_all(lambda name: name[0] == namespace_id)

    async def _list(
        self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements
    ) -> _Listed:
        name = self._name(namespace, graph, requirements)
        listed = self._listed.get(name)
        if listed is None:
            target, options = str(requirements.target), str(requirements.options)
            toolchain = self._toolchains.of(requirements.target).digest
            records = await self._threads(
                self._store.find_variants, namespace, graph.key, target, options, toolchain
            )
            listed = tuple(
                (
                    record.id,
                    Shape(record.kernel.arg_spec, record.kernel.guard),
                    manifests.known_kernel(record, self._key_id),
                )
                for record in records
            )
            self._listed.put(name, listed, sum(len(kernel.manifest.payload) for _, _, kernel in listed))
        return listed

    def _name(self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements) -> _Name:
        return (
            namespace.id,
            namespace.epoch,
            graph.key,
            namespace.removals,
            str(requirements.target),
            str(requirements.options),
        )


class CompatibleKernels:
    """Looks for kernels of ``compatible_targets``, highest first. Compiles nothing. One event loop.

    A kernel serves if spec, options and toolchain are those of the request, its shape is the one that the
    request would get for its own target, and ``may_serve`` holds for its manifest.
    """

    def __init__(self, kernels: Kernels, variants: Variants, toolchains: Toolchains) -> None:
        self._kernels = kernels
        self._variants = variants
        self._toolchains = toolchains

    async def find(
        self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements
    ) -> KnownKernel | None:
        """The kernel for the highest lower target, if there is one. Raises ``ArgumentError`` as ``shape``."""
        by_digest = await self.find_many(namespace, {graph.program_digest: graph}, requirements)
        return by_digest.get(graph.program_digest)

    async def find_many(
        self, namespace: Namespace, graphs: Mapping[bytes, KnownGraph], requirements: KernelRequirements
    ) -> dict[bytes, KnownKernel]:
        """As ``find`` for several graphs, by the keys of ``graphs``; those without a kernel are left out."""
        lower_requirements = [
            replace(requirements, target=target) for target in compatible_targets(requirements.target)
        ]
        if not lower_requirements or not graphs:
            return {}
        if requirements.shapes.mode == AUTO:
            return await self._choose(namespace, graphs, requirements, lower_requirements)
        names = {
            name: [
                manifests.identity(graph, manifests.shape(graph, lower), lower, self._toolchains).digest
                for lower in lower_requirements
            ]
            for name, graph in graphs.items()
        }
        stored = await self._kernels.find(namespace, [digest for some in names.values() for digest in some])
        served: dict[bytes, KnownKernel] = {}
        for name, digests in names.items():
            for digest in digests:
                if digest in stored and serves(stored[digest], requirements.target):
                    served[name] = stored[digest]
                    break
        return served

    async def _choose(
        self,
        namespace: Namespace,
        graphs: Mapping[bytes, KnownGraph],
        requirements: KernelRequirements,
        lower_requirements: list[KernelRequirements],
    ) -> dict[bytes, KnownKernel]:
        """The most specific kernel of the highest lower target that has any for the sizes of the graph."""
        served: dict[bytes, KnownKernel] = {}
        for name, graph in graphs.items():
            for lower in lower_requirements:
                kernel = (await self._variants.choose(namespace, graph, lower)).kernel
                if kernel is not None and serves(kernel, requirements.target):
                    served[name] = kernel
                    break
        return served


def serves(kernel: KnownKernel, asked: Target) -> bool:
    """Whether a kernel for a lower target runs wherever kernels for ``asked`` do, by its manifest."""
    target, required_isa = _needs(kernel.manifest.payload)
    return may_serve(target, required_isa, asked)


def target_of(kernel: KnownKernel) -> Target:
    """What a kernel was compiled for, by its manifest."""
    return _needs(kernel.manifest.payload)[0]


@lru_cache(maxsize=1024)
def _needs(manifest: bytes) -> tuple[Target, tuple[str, ...]]:
    parsed = Manifest.from_bytes(manifest)
    return parsed.target, parsed.required_isa

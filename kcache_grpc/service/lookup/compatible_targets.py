"""Stored kernels for lower targets: which of them serves a request that has no kernel for its own target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.model.target import Target, compatible_targets, may_serve
from kcache_grpc.service import manifests
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import Variants
from kcache_grpc.service.values import KernelRequirements, KnownGraph, KnownKernel
from kcache_grpc.storage.records import Namespace


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

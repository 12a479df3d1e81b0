"""The kernel for a graph: the stored one, another request's, or a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kcache_grpc.model.bypass import BypassReason
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.model.variants import Shape
from kcache_grpc.service import manifests
from kcache_grpc.service.compile.coordinator import CompileCoordinator, CompileJob
from kcache_grpc.service.failures import Failures, as_error, suppress_lasting
from kcache_grpc.service.lookup.kernels import Kernels
from kcache_grpc.service.lookup.variants import Choice, CompatibleKernels, Variants
from kcache_grpc.service.tasks.single_flight import LOOK_WINDOW, SingleFlight
from kcache_grpc.service.values import Caller, KernelRequirements, KnownGraph, KnownKernel, Origin, Stored
from kcache_grpc.storage.records import FailureRecord, Namespace


@dataclass(frozen=True)
class _Known:
    """What is stored under the name of a kernel: it, or its failure."""

    kernel: KnownKernel | None
    failure: FailureRecord | None


class KernelResolver:
    """Chooses a shape, then finds, joins or starts its compile. One event loop.

    ``bypassed`` is told of remembered failures that a caller has tried again.
    """

    def __init__(
        self,
        kernels: Kernels,
        variants: Variants,
        failures: Failures,
        coordinator: CompileCoordinator,
        toolchains: Toolchains,
        bypassed: Callable[[BypassReason], None],
        compatible: CompatibleKernels,
    ) -> None:
        self._bypassed = bypassed
        self._kernels = kernels
        self._variants = variants
        self._failures = failures
        self._coordinator = coordinator
        self._toolchains = toolchains
        self._compatible = compatible
        #: Many who ask for a kernel at once look once.
        self._looking: SingleFlight[tuple[int, int, int, bytes], _Known] = SingleFlight(LOOK_WINDOW)

    async def choose(
        self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements
    ) -> Choice:
        """A stored kernel, or what to compile. Raises ``ArgumentError`` for requirements that cannot be met.

        Where lower targets will do: a kernel for the target itself first, then for the highest lower one.
        """
        if requirements.shapes.mode == AUTO:
            choice = await self._variants.choose(namespace, graph, requirements)
        else:
            choice = Choice(None, (manifests.shape(graph, requirements),))
        if choice.kernel is not None or not requirements.compatible:
            return choice
        if requirements.shapes.mode != AUTO:
            identity = manifests.identity(graph, choice.shapes[0], requirements, self._toolchains)
            known = await self._look(namespace, identity.digest)
            if known.kernel is not None:
                return Choice(known.kernel, ())
        lower = await self._compatible.find(namespace, graph, requirements)
        return choice if lower is None else Choice(lower, ())

    async def holds(self, namespace: Namespace, graph: KnownGraph, requirements: KernelRequirements) -> bool:
        """Whether a compile would find its kernel. Raises ``ArgumentError`` as ``choose``."""
        choice = await self.choose(namespace, graph, requirements)
        if choice.kernel is not None:
            return True
        name = manifests.identity(graph, choice.shapes[0], requirements, self._toolchains).digest
        return bool(await self._kernels.find(namespace, [name]))

    async def kernel(
        self,
        namespace: Namespace,
        graph: KnownGraph,
        requirements: KernelRequirements,
        caller: Caller,
        retry_failed: bool,
        report: Callable[[str], None],
        *,
        stored: Stored | None = None,
    ) -> tuple[KnownKernel, Origin]:
        """The kernel, and where it came from. Where several shapes would do, the first that compiles.

        ``report`` hears the stages. ``stored``: of the graph, when it was stored for this request. A new spec
        has no kernels yet; if somebody was faster, the lease shows it. One that another server has just
        stored is about to be compiled there, as its lease shows: kernels are looked for by who gets it.
        """
        choice = await self.choose(namespace, graph, requirements)
        if choice.kernel is not None:
            return choice.kernel, choice.kernel.origin
        *preferred, last = choice.shapes
        for shape in preferred:
            with suppress_lasting():
                return await self._obtain(
                    namespace, graph, shape, requirements, caller, retry_failed, report, stored
                )
        return await self._obtain(namespace, graph, last, requirements, caller, retry_failed, report, stored)

    async def _obtain(
        self,
        namespace: Namespace,
        graph: KnownGraph,
        shape: Shape,
        requirements: KernelRequirements,
        caller: Caller,
        retry_failed: bool,
        report: Callable[[str], None],
        stored: Stored | None,
    ) -> tuple[KnownKernel, Origin]:
        """Return the stored kernel for a shape, or compile it.

        Raises a remembered failure unless ``retry_failed``.
        """
        identity = manifests.identity(graph, shape, requirements, self._toolchains)
        failure = None
        new = stored is not None and stored.created
        unseen = stored is not None and stored.elsewhere and not retry_failed
        if not (new or unseen or self._coordinator.in_flight(namespace, identity.digest)):
            known = await self._look(namespace, identity.digest)
            if known.kernel is not None:
                return known.kernel, known.kernel.origin
            failure = known.failure
        if failure is not None and not retry_failed:
            raise as_error(failure)
        if failure is not None:
            self._bypassed(BypassReason.RETRY)
        job = CompileJob(namespace, graph, requirements, identity, caller, graph.program_digest, unseen)
        call, ours = self._coordinator.join(job, failure)
        call.add_listener(report)
        result = await call.result()
        return result.kernel, Origin.COMPILED if ours and result.here else Origin.JOINED

    async def _look(self, namespace: Namespace, digest: bytes) -> _Known:
        """A look that began before this one will do: who finds nothing looks again under the lease."""
        kernel = self._kernels.remembered(namespace, digest)
        if kernel is not None:
            return _Known(kernel, None)

        async def look(_: object) -> _Known:
            stored = await self._kernels.find(namespace, [digest])
            if stored:
                return _Known(stored[digest], None)
            return _Known(None, await self._failures.find_one(namespace, digest))

        key = (namespace.id, namespace.epoch, namespace.removals, digest)
        return await self._looking.join(key, look)[0].result()

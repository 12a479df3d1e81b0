"""Coalesces equal compile requests, and caches their replies for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

from kcache_grpc.model.program import Program
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.service.lookup.kernels import MEMORY_WINDOW
from kcache_grpc.service.lookup.variants import target_of
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.tasks.single_flight import InFlightCall, SingleFlight
from kcache_grpc.service.values import Answer, GraphSource, KernelRequirements
from kcache_grpc.storage.records import Namespace

_MEMORY_BYTES = 128 << 20


class ReplyCache:
    """Replies by namespace, source and requirements. One event loop."""

    def __init__(self) -> None:
        self._single_flight: SingleFlight[Hashable, Answer] = SingleFlight(abandon=True)
        self._known: ByteLru[Hashable, Answer] = ByteLru(_MEMORY_BYTES, MEMORY_WINDOW)

    def get(
        self, namespace: Namespace, source: GraphSource, requirements: KernelRequirements
    ) -> Answer | None:
        """The reply to an equal request, unless rows were removed from the namespace since."""
        return self._known.get(_name(namespace, source, requirements))

    def join(
        self,
        namespace: Namespace,
        source: GraphSource,
        requirements: KernelRequirements,
        retry_failed: bool,
        work: Callable[[InFlightCall[Answer]], Awaitable[Answer]],
    ) -> tuple[InFlightCall[Answer], bool]:
        """The call that serves all equal requests, and whether this one started it with ``work``."""
        name = _name(namespace, source, requirements)

        async def answered(call: InFlightCall[Answer]) -> Answer:
            answer = await work(call)
            # Where a better one may come, the next request looks again.
            best = not requirements.compatible or target_of(answer.kernel) == requirements.target
            if requirements.shapes.mode != AUTO and best:
                self._known.put(name, answer, _size(source, answer))
            return answer

        return self._single_flight.join((name, retry_failed), answered)

    async def drain(self, grace: float) -> None:
        """As ``SingleFlight.drain``."""
        await self._single_flight.drain(grace)


def _name(namespace: Namespace, source: GraphSource, requirements: KernelRequirements) -> Hashable:
    return (namespace.name, namespace.epoch, namespace.removals, source, requirements)


def _size(source: GraphSource, answer: Answer) -> int:
    """Bytes that are kept, with those that the answer's forms on the wire will have."""
    program = len(source.body) if isinstance(source, Program) else 0
    sent = len(answer.graph.binding.payload) + len(answer.kernel.manifest.payload)
    return program + Answer.MOST_ENCODED * (sent + sum(ref.size for ref in answer.kernel.artifacts))

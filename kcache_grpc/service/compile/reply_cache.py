"""Equal compile requests: one while it is in the air, and remembered for a while afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

from kcache_grpc.model.program import Program
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.service.lookup.compatible_targets import target_of
from kcache_grpc.service.lookup.kernels import MEMORY_WINDOW
from kcache_grpc.service.lru_cache import ByteLru
from kcache_grpc.service.tasks.single_flight import Flight, Flights
from kcache_grpc.service.values import Answer, GraphSource, KernelWish
from kcache_grpc.storage.records import Namespace

_MEMORY_BYTES = 128 << 20


class Answers:
    """A request costs a look into a dictionary where another one like it came before. One event loop."""

    def __init__(self) -> None:
        self._flights: Flights[Hashable, Answer] = Flights(abandon=True)
        self._known: ByteLru[Hashable, Answer] = ByteLru(_MEMORY_BYTES, MEMORY_WINDOW)

    def remembered(self, namespace: Namespace, source: GraphSource, wish: KernelWish) -> Answer | None:
        """What an equal request got, unless something was removed from the namespace since."""
        return self._known.get(_name(namespace, source, wish))

    def join(
        self,
        namespace: Namespace,
        source: GraphSource,
        wish: KernelWish,
        retry_failed: bool,
        work: Callable[[Flight[Answer]], Awaitable[Answer]],
    ) -> tuple[Flight[Answer], bool]:
        """The flight for all equal requests, and whether this one started it with ``work``."""
        name = _name(namespace, source, wish)

        async def answered(flight: Flight[Answer]) -> Answer:
            answer = await work(flight)
            # Where a better one may come, the next request looks again.
            best = not wish.compatible or target_of(answer.kernel) == wish.target
            if wish.shapes.mode != AUTO and best:
                self._known.put(name, answer, _size(source, answer))
            return answer

        return self._flights.join((name, retry_failed), answered)

    async def drain(self, grace: float) -> None:
        """As ``Flights.drain``."""
        await self._flights.drain(grace)


def _name(namespace: Namespace, source: GraphSource, wish: KernelWish) -> Hashable:
    return (namespace.name, namespace.epoch, namespace.removals, source, wish)


def _size(source: GraphSource, answer: Answer) -> int:
    """Bytes that are kept, with those that the answer's forms on the wire will have."""
    program = len(source.body) if isinstance(source, Program) else 0
    sent = len(answer.graph.binding.payload) + len(answer.kernel.manifest.payload)
    return program + Answer.MOST_ENCODED * (sent + sum(ref.size for ref in answer.kernel.artifacts))

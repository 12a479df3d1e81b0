"""What ``Options(schedule="recorded")`` stands for, as the service said, and what compilers refuse of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kcache_grpc.client.cache.kernels import AskKey, ask_key
from kcache_grpc.client.cache.memory import Lru
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.transport.deadline import Deadline
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import (
    ArgumentError,
    CompileFailed,
    CompileTimeout,
    KcacheError,
    UnsupportedOp,
)
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.schedule import RECORDED
from kcache_grpc.model.sizes.modes import AUTO

#: Seconds for which a client trusts what it was told the best schedule is.
_WINDOW = 60.0
#: How a service says that it does not make a kernel of that schedule: an older one does not know the choice.
REFUSALS = (CompileFailed, UnsupportedOp, CompileTimeout, ArgumentError)


@dataclass(frozen=True)
class Refusal:
    """An ask with a recorded schedule, and why it has no kernel."""

    ask: KernelRequest
    error: KcacheError


class RecordedSchedules:
    """Of the asks of one client."""

    def __init__(self, services: Services, most: int) -> None:
        self._services = services
        self._schedules: Lru[AskKey, tuple[float, str]] = Lru(most)

    async def applied(self, ask: KernelRequest, deadline: Deadline) -> KernelRequest:
        """The ask with the choices that ``"recorded"`` stands for, as the service said within the window."""
        if ask.options.schedule != RECORDED:
            return ask
        if ask.shapes.mode == AUTO:
            return _scheduled(ask, "")
        key = ask_key(ask)
        until, schedule = self._schedules.get(key) or (0.0, "")
        if time.monotonic() > until:
            from kcache_grpc.client.tuning import timings

            schedule = await self._services.serve(
                lambda obtainer: timings.recorded(obtainer.connection, ask, deadline)
            )
            self._keep(key, schedule)
        return _scheduled(ask, schedule)

    async def refused(
        self,
        wished: Sequence[KernelRequest],
        asks: Sequence[KernelRequest],
        make: Callable[[KernelRequest], Awaitable[object]],
    ) -> dict[AskKey, Refusal]:
        """Of what was ``wished``, that whose ``applied`` ask has a schedule that no kernel can be made of."""
        refused: dict[AskKey, Refusal] = {}
        for wish, ask in zip(wished, asks, strict=True):
            if wish.options.schedule == RECORDED and ask.options.schedule:
                try:
                    await make(ask)
                except REFUSALS as error:
                    refused[ask_key(wish)] = Refusal(ask, error)
        return refused

    def give_up(self, refused: Mapping[AskKey, Refusal]) -> None:
        """Takes the default for a while, of which there is a kernel, and says so."""
        for key, refusal in refused.items():
            self._keep(key, "")
            text = (
                f"the recorded schedule {refusal.ask.options.schedule} of program "
                f"{refusal.ask.program.digest.hex()} is not used, as no kernel can be made of it: "
                f"{refusal.error.message}; the default is taken (kcache autotune finds what is best now)"
            )
            warnings.warn(text, KcacheWarning, stacklevel=2)

    def clear(self) -> None:
        """Ask the service again."""
        self._schedules.clear()

    def _keep(self, key: AskKey, schedule: str) -> None:
        self._schedules.put(key, (time.monotonic() + _WINDOW, schedule))


def plain(ask: KernelRequest) -> KernelRequest:
    """The ask with the default schedule."""
    return _scheduled(ask, "")


def _scheduled(ask: KernelRequest, schedule: str) -> KernelRequest:
    return replace(ask, options=replace(ask.options, schedule=schedule))

"""Resolves ``Options(schedule="recorded")`` by the service's timings; drops schedules that do not compile."""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kcache_grpc.client.cache.memory import Lru, RequestKey, request_key
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.transport.interface import Deadline
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
REJECTION_ERRORS = (CompileFailed, UnsupportedOp, CompileTimeout, ArgumentError)


@dataclass(frozen=True)
class RejectedSchedule:
    """A request with a recorded schedule, and why it has no kernel."""

    request: KernelRequest
    error: KcacheError


class RecordedSchedules:
    """Of the requests of one client."""

    def __init__(self, services: Services, most: int) -> None:
        self._services = services
        self._schedules: Lru[RequestKey, tuple[float, str]] = Lru(most)

    async def applied(self, request: KernelRequest, deadline: Deadline) -> KernelRequest:
        """The request with the schedule that ``"recorded"`` stands for, as recorded by the service."""
        if request.options.schedule != RECORDED:
            return request
        if request.shapes.mode == AUTO:
            return _scheduled(request, "")
        key = request_key(request)
        until, schedule = self._schedules.get(key) or (0.0, "")
        if time.monotonic() > until:
            from kcache_grpc.client.tuning import timings

            schedule = await self._services.serve(
                lambda fetcher: timings.recorded(fetcher.connection, request, deadline)
            )
            self._keep(key, schedule)
        return _scheduled(request, schedule)

    async def rejected(
        self,
        requested: Sequence[KernelRequest],
        requests: Sequence[KernelRequest],
        make: Callable[[KernelRequest], Awaitable[object]],
    ) -> dict[RequestKey, RejectedSchedule]:
        """The requests of ``requested`` whose ``applied`` request has a schedule that cannot be compiled."""
        rejected: dict[RequestKey, RejectedSchedule] = {}
        for original, request in zip(requested, requests, strict=True):
            if original.options.schedule == RECORDED and request.options.schedule:
                try:
                    await make(request)
                except REJECTION_ERRORS as error:
                    rejected[request_key(original)] = RejectedSchedule(request, error)
        return rejected

    def give_up(self, rejected: Mapping[RequestKey, RejectedSchedule]) -> None:
        """Takes the default for a while, of which there is a kernel, and says so."""
        for key, rejection in rejected.items():
            self._keep(key, "")
            text = (
                f"the recorded schedule {rejection.request.options.schedule} of program "
                f"{rejection.request.program.digest.hex()} is not used, as no kernel can be made of it: "
                f"{rejection.error.message}; the default is taken (kcache autotune finds what is best now)"
            )
            warnings.warn(text, KcacheWarning, stacklevel=2)

    def clear(self) -> None:
        """Ask the service again."""
        self._schedules.clear()

    def _keep(self, key: RequestKey, schedule: str) -> None:
        self._schedules.put(key, (time.monotonic() + _WINDOW, schedule))


def plain(request: KernelRequest) -> KernelRequest:
    """The request with the default schedule."""
    return _scheduled(request, "")


def _scheduled(request: KernelRequest, schedule: str) -> KernelRequest:
    return replace(request, options=replace(request.options, schedule=schedule))

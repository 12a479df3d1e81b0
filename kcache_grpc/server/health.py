"""Health and reflection: the typed wrapper of packages that have no types."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc.aio
from grpc_health.v1 import health as _health
from grpc_health.v1 import health_pb2_grpc as _stubs
from grpc_reflection.v1alpha import reflection as _reflection

_untyped_health = cast("Any", _health)
_untyped_stubs = cast("Any", _stubs)
_untyped_reflection = cast("Any", _reflection)

HEALTH_SERVICE = "grpc.health.v1.Health"
REFLECTION_SERVICE = "grpc.reflection.v1alpha.ServerReflection"


#: Seconds in which those who watch hear that the server leaves, before their streams end.
_FAREWELL = 0.2


class Health:
    """``grpc.health.v1.Health``: SERVING from the start until ``leave``."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._left = asyncio.Event()
        self._servicer = _untyped_health.aio.HealthServicer()
        self._watch = self._servicer.Watch
        self._servicer.Watch = self._watch_until_left
        _untyped_stubs.add_HealthServicer_to_server(self._servicer, server)

    async def leave(self) -> None:
        """NOT_SERVING from here on, for those who watch too."""
        await self._servicer.enter_graceful_shutdown()
        self._left.set()

    async def _watch_until_left(self, request: Any, context: Any) -> None:
        """Streams of ``Watch`` end when the server leaves: they must not hold up its drain."""
        watching: asyncio.Future[None] = asyncio.ensure_future(self._watch(request, context))
        leaving = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait({watching, leaving}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({watching}, timeout=_FAREWELL)
        finally:
            watching.cancel()
            leaving.cancel()


def add_reflection(server: grpc.aio.Server, *services: str) -> None:
    """Lets tools ask which services there are."""
    names = (*services, HEALTH_SERVICE, REFLECTION_SERVICE)
    _untyped_reflection.enable_server_reflection(names, server)

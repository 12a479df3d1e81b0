"""Caches of plain values: in memory, on disk, on a server, and in tiers of these. See docs/guide/caches.md.

Each is imported when it is first used; only ``RemoteCache`` loads gRPC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcache_grpc.errors import CacheError

if TYPE_CHECKING:
    from kcache_grpc.caches.base import AsyncCache, Cache
    from kcache_grpc.caches.disk import OnDiskCache
    from kcache_grpc.caches.inductor import InductorOnDiskCache
    from kcache_grpc.caches.memory import InMemoryCache
    from kcache_grpc.caches.remote import RemoteCache
    from kcache_grpc.caches.tiered import TieredCache

__all__ = [
    "AsyncCache",
    "Cache",
    "CacheError",
    "InMemoryCache",
    "InductorOnDiskCache",
    "OnDiskCache",
    "RemoteCache",
    "TieredCache",
]

_HOMES = {
    "AsyncCache": "base",
    "Cache": "base",
    "InMemoryCache": "memory",
    "InductorOnDiskCache": "inductor",
    "OnDiskCache": "disk",
    "RemoteCache": "remote",
    "TieredCache": "tiered",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

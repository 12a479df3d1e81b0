"""Caches of plain values: in memory, on disk, on a server, and in tiers of these. See docs/guide/caches.md.

``RemoteCache`` is imported when it is first used: the other caches load no gRPC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcache_grpc.caches.asynchronous import AsyncCache
from kcache_grpc.caches.base import Cache
from kcache_grpc.caches.disk import OnDiskCache
from kcache_grpc.caches.inductor import InductorOnDiskCache
from kcache_grpc.caches.memory import InMemoryCache
from kcache_grpc.caches.tiered import TieredCache
from kcache_grpc.errors import CacheError

if TYPE_CHECKING:
    from kcache_grpc.caches.remote import RemoteCache

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


def __getattr__(name: str) -> Any:
    if name != "RemoteCache":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("kcache_grpc.caches.remote").RemoteCache


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

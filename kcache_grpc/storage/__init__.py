"""Storage of specs, keys, kernels and their history.

``open_store(url)`` gives a ``Store``; ``contract`` says what it promises, ``records`` what goes in and out,
``errors`` what it raises.
"""

from __future__ import annotations

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.store import CHUNK_BYTES, Store
from kcache_grpc.storage.objects import INLINE_BYTES
from kcache_grpc.storage.opening import migrate, open_store

__all__ = ["CHUNK_BYTES", "INLINE_BYTES", "Clock", "Store", "migrate", "open_store"]

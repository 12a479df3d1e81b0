"""The store in memory: the contract in its plainest form, and the oracle of the others."""

from __future__ import annotations

from kcache_grpc.storage.memory.store import MemoryStore

__all__ = ["MemoryStore"]

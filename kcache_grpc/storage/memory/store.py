"""The whole store in memory."""

from __future__ import annotations

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.memory.assertions import MemoryAssertions
from kcache_grpc.storage.memory.audit import MemoryAudit
from kcache_grpc.storage.memory.autotune import MemoryAutotune
from kcache_grpc.storage.memory.blob_cache import MemoryBlobCache
from kcache_grpc.storage.memory.blobs import MemoryBlobs
from kcache_grpc.storage.memory.collection import MemoryLifecycle
from kcache_grpc.storage.memory.graphs import MemoryGraphs, MemoryNamespaces, MemoryNearby
from kcache_grpc.storage.memory.kernels import MemoryHits, MemoryKernels
from kcache_grpc.storage.memory.leases import MemoryLeases
from kcache_grpc.storage.memory.state import State
from kcache_grpc.storage.memory.usage_audit import MemoryUsageAudit


class MemoryStore(
    MemoryNamespaces,
    MemoryHits,
    MemoryGraphs,
    MemoryBlobs,
    MemoryKernels,
    MemoryLeases,
    MemoryUsageAudit,
    MemoryAudit,
    MemoryAutotune,
    MemoryBlobCache,
    MemoryAssertions,
    MemoryNearby,
    MemoryLifecycle,
    Store,
):
    """``Store`` in this process's memory. Durable for as long as the process; not shared with others."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(State(clock or Clock.system()))

    @property
    def url(self) -> str:
        return "memory:"

    @property
    def objects_url(self) -> str | None:
        return None

    @property
    def id(self) -> str:
        return self._state.store_id

    def check(self) -> None:
        with self._state:
            pass

    def close(self) -> None:
        self._state.closed = True

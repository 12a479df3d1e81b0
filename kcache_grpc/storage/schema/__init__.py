"""The tables, as statements are built from them. ``kcache_migrations`` makes them; a test compares both.

Times are UTC microseconds, durations microseconds, sizes bytes, digests 32 bytes.
"""

from __future__ import annotations

from kcache_grpc.storage.schema.assertions import (
    assertion_conflicts,
    assertion_disputes,
    assertion_usage,
    assertions,
)
from kcache_grpc.storage.schema.blobs import (
    artifact_chunks,
    artifacts,
    constants,
    dead_objects,
    programs,
    quarantine,
)
from kcache_grpc.storage.schema.cache_values import (
    cache_chunks,
    cache_conflicts,
    cache_totals,
    cache_usage,
    cache_values,
)
from kcache_grpc.storage.schema.columns import METADATA
from kcache_grpc.storage.schema.graphs import graph_mappings, key_aliases, mapping_constants, specs
from kcache_grpc.storage.schema.immutable import IMMUTABLE, PERMANENT, triggers
from kcache_grpc.storage.schema.kernels import (
    autotune_timings,
    failures,
    kernel_artifacts,
    kernel_ingredients,
    kernels,
    leases,
    quarantined_blobs,
    quarantined_rows,
)
from kcache_grpc.storage.schema.namespaces import (
    disowned_toolchains,
    key_counters,
    namespaces,
    pins,
    quotas,
    store_meta,
)
from kcache_grpc.storage.schema.usage_audit import (
    audit_checkpoints,
    audit_days,
    audit_events,
    audit_misses,
    audit_seals,
    audit_writers,
    conflicts,
    gc_permits,
    transfers,
    usage,
)

#: The Alembic revision that this version reads and writes.
SCHEMA_REVISION = "0007"

#: ``PRAGMA application_id`` of our SQLite files: "KCCH".
APPLICATION_ID = 0x4B434348

__all__ = [
    "APPLICATION_ID",
    "IMMUTABLE",
    "METADATA",
    "PERMANENT",
    "SCHEMA_REVISION",
    "artifact_chunks",
    "artifacts",
    "assertion_conflicts",
    "assertion_disputes",
    "assertion_usage",
    "assertions",
    "audit_checkpoints",
    "audit_days",
    "audit_events",
    "audit_misses",
    "audit_seals",
    "audit_writers",
    "autotune_timings",
    "cache_chunks",
    "cache_conflicts",
    "cache_totals",
    "cache_usage",
    "cache_values",
    "conflicts",
    "constants",
    "dead_objects",
    "disowned_toolchains",
    "failures",
    "gc_permits",
    "graph_mappings",
    "kernel_artifacts",
    "kernel_ingredients",
    "kernels",
    "key_aliases",
    "key_counters",
    "leases",
    "mapping_constants",
    "namespaces",
    "pins",
    "programs",
    "quarantine",
    "quarantined_blobs",
    "quarantined_rows",
    "quotas",
    "specs",
    "store_meta",
    "transfers",
    "triggers",
    "usage",
]

"""Tables of ``BlobCache``: opaque values by key. They share no table with kernels."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)

from kcache_grpc.storage.schema.columns import (
    METADATA,
    bytes_column,
    id_column,
    int_column,
    is_digest,
    namespace_column,
    text_column,
)

#: A value: ``digest`` is its SHA-256, ``saved_us`` the microseconds that producing it took.
cache_values = Table(
    "cache_values",
    METADATA,
    id_column(),
    namespace_column(),
    bytes_column("key"),
    bytes_column("digest"),
    int_column("size"),
    text_column("label"),
    int_column("saved_us"),
    int_column("created_at"),
    UniqueConstraint("namespace_id", "key"),
    CheckConstraint("size >= 0", name="size"),
    *is_digest("key", "digest"),
    sqlite_autoincrement=True,
)

#: Bytes of a value from ``seq`` MiB on, and their SHA-256.
cache_chunks = Table(
    "cache_chunks",
    METADATA,
    Column("value_id", BigInteger, ForeignKey("cache_values.id"), nullable=False),
    int_column("seq"),
    bytes_column("digest"),
    bytes_column("content"),
    PrimaryKeyConstraint("value_id", "seq"),
    *is_digest("digest"),
)

#: A value that was offered under a key that had another one; the first offer of each is recorded.
cache_conflicts = Table(
    "cache_conflicts",
    METADATA,
    id_column(),
    namespace_column(),
    bytes_column("key"),
    bytes_column("kept"),
    bytes_column("offered"),
    text_column("actor"),
    int_column("created_at"),
    UniqueConstraint("namespace_id", "key", "offered"),
    *is_digest("key", "kept", "offered"),
    sqlite_autoincrement=True,
)

#: How often a value was read, and when last. Counters: not immutable.
cache_usage = Table(
    "cache_usage",
    METADATA,
    Column("value_id", BigInteger, ForeignKey("cache_values.id"), primary_key=True, autoincrement=False),
    int_column("hits"),
    int_column("last_used_at"),
    Index("ix_cache_usage_last_used_at", "last_used_at", "value_id"),
)

#: Hits of values that were removed, and the time that these saved: totals never fall.
cache_totals = Table(
    "cache_totals",
    METADATA,
    Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), primary_key=True, autoincrement=False),
    int_column("hits"),
    int_column("saved_us"),
)

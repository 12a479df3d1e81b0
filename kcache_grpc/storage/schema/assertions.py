"""Tables of ``SourceAssertions``: what actors say that source graphs lower to."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
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

#: ``programs``: digests of 32 bytes, one after the other. ``size``: bytes that count against the quota.
assertions = Table(
    "assertions",
    METADATA,
    id_column(),
    namespace_column(),
    int_column("epoch"),
    bytes_column("source_digest"),
    text_column("actor"),
    text_column("role"),
    bytes_column("record_digest"),
    int_column("record_size"),
    int_column("size"),
    text_column("toolchain"),
    int_column("created_at"),
    bytes_column("programs"),
    bytes_column("record"),
    UniqueConstraint("namespace_id", "epoch", "source_digest", "actor"),
    CheckConstraint("size >= 0", name="size"),
    *is_digest("source_digest", "record_digest"),
    sqlite_autoincrement=True,
)

#: A record that an actor offered after another one; the first offer of each is recorded.
assertion_conflicts = Table(
    "assertion_conflicts",
    METADATA,
    id_column(),
    namespace_column(),
    int_column("epoch"),
    bytes_column("source_digest"),
    text_column("actor"),
    bytes_column("kept"),
    bytes_column("offered"),
    int_column("created_at"),
    UniqueConstraint("namespace_id", "epoch", "source_digest", "actor", "offered"),
    *is_digest("source_digest", "kept", "offered"),
    sqlite_autoincrement=True,
)

#: Assertions in quarantine: an assertion of this name is returned to nobody. Outlives its assertion.
assertion_disputes = Table(
    "assertion_disputes",
    METADATA,
    id_column(),
    namespace_column(),
    int_column("epoch"),
    bytes_column("source_digest"),
    text_column("actor"),
    bytes_column("record_digest"),
    bytes_column("observed"),
    text_column("disputed_by"),
    text_column("reason"),
    int_column("created_at"),
    UniqueConstraint("namespace_id", "epoch", "source_digest", "actor", "record_digest"),
    *is_digest("source_digest", "record_digest", "observed"),
    sqlite_autoincrement=True,
)

#: How often an assertion was returned, and when last. Counters: not immutable.
assertion_usage = Table(
    "assertion_usage",
    METADATA,
    Column("assertion_id", BigInteger, ForeignKey("assertions.id"), primary_key=True, autoincrement=False),
    int_column("hits"),
    int_column("last_used_at"),
    Index("ix_assertion_usage_last_used_at", "last_used_at", "assertion_id"),
)

"""Tables of usage, conflicts and the audit log."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, PrimaryKeyConstraint, Table, Text, UniqueConstraint

from kcache_grpc.storage.schema.columns import (
    METADATA,
    Hexadecimal,
    bytes_column,
    id_column,
    int_column,
    is_digest,
    namespace_column,
    text_column,
)

usage = Table(
    "usage",
    METADATA,
    namespace_column(),
    text_column("subject"),
    bytes_column("digest"),
    int_column("hits"),
    int_column("saved_us"),
    int_column("last_used_at"),
    PrimaryKeyConstraint("namespace_id", "subject", "digest"),
    # Oldest first: what eviction asks for.
    Index("ix_usage_last_used_at", "namespace_id", "subject", "last_used_at"),
    *is_digest("digest"),
    # A use of something else is on its own page: the fewer structures, the fewer pages are written.
    sqlite_with_rowid=False,
)

conflicts = Table(
    "conflicts",
    METADATA,
    id_column(),
    namespace_column(),
    text_column("kind"),
    bytes_column("name"),
    bytes_column("stored"),
    bytes_column("offered"),
    int_column("created_at"),
    Index("ix_conflicts_namespace_id", "namespace_id", "id"),
    sqlite_autoincrement=True,
)

#: No foreign keys: events outlive what they tell of. ``writer`` is the process that appended, for sealing.
audit_events = Table(
    "audit_events",
    METADATA,
    id_column(),
    int_column("namespace_id"),
    int_column("epoch"),
    int_column("at"),
    text_column("writer"),
    text_column("kind"),
    text_column("outcome"),
    text_column("origin"),
    text_column("actor"),
    text_column("peer"),
    text_column("request_id"),
    bytes_column("program_digest", nullable=True),
    bytes_column("spec_digest", nullable=True),
    Column("key", BigInteger),
    bytes_column("kernel_digest", nullable=True),
    text_column("target"),
    bytes_column("toolchain", nullable=True),
    int_column("duration_us"),
    int_column("byte_count"),
    int_column("saved_us"),
    text_column("detail"),
    text_column("job", "''"),
    int_column("request_count", "1"),
    Index("ix_audit_events_namespace_id", "namespace_id", "id"),
    Index("ix_audit_events_at", "namespace_id", "at"),
    Index("ix_audit_events_writer", "writer", "id"),
    Index("ix_audit_events_job", "namespace_id", "job", "id"),
    sqlite_autoincrement=True,
)
#: In hex, as people ask views for it.
Index(
    "ix_audit_events_kernel",
    audit_events.c.namespace_id,
    Hexadecimal(audit_events.c.kernel_digest),
    audit_events.c.id,
)

#: Sums over ``audit_events``, by triggers in the transaction that appends (``kcache_migrations.summaries``);
#: they outlive events that are pruned. ``day`` counts from 1970; each ``slot`` of writers has a row of it.
audit_days = Table(
    "audit_days",
    METADATA,
    text_column("namespace"),
    int_column("day"),
    int_column("slot"),
    int_column("served"),
    int_column("saved_us"),
    int_column("compiled"),
    int_column("compile_us"),
    PrimaryKeyConstraint("namespace", "day", "slot"),
    sqlite_with_rowid=False,
)

#: Likewise. ``program_digest`` is empty where the request named none.
audit_misses = Table(
    "audit_misses",
    METADATA,
    text_column("namespace"),
    bytes_column("program_digest"),
    text_column("target"),
    text_column("reason"),
    Column("key", BigInteger),
    int_column("misses"),
    int_column("first_at"),
    int_column("last_at"),
    text_column("last_actor"),
    text_column("last_job"),
    PrimaryKeyConstraint("namespace", "program_digest", "target", "reason"),
    Index("ix_audit_misses_misses", "namespace", "misses"),
    sqlite_with_rowid=False,
)

#: ``event_ids`` lists the sealed rows: big-endian u64 each.
audit_seals = Table(
    "audit_seals",
    METADATA,
    id_column(),
    text_column("writer"),
    int_column("sequence"),
    bytes_column("previous_root"),
    bytes_column("root"),
    bytes_column("event_ids"),
    bytes_column("signature"),
    int_column("created_at"),
    # The first bytes of each event's hash: they tell which one was changed.
    bytes_column("leaf_marks", nullable=True),
    UniqueConstraint("writer", "sequence"),
    *is_digest("previous_root", "root"),
    sqlite_autoincrement=True,
)


#: Who appends: the process, and the key that signs its seals.
audit_writers = Table(
    "audit_writers",
    METADATA,
    Column("writer", Text, primary_key=True),
    bytes_column("public_key"),
    text_column("host"),
    int_column("started_at"),
)

#: What retention removed: ``events`` rows of ``writer``, up to the seal ``sequence`` whose root is ``root``.
audit_checkpoints = Table(
    "audit_checkpoints",
    METADATA,
    id_column(),
    text_column("writer"),
    int_column("sequence"),
    bytes_column("root"),
    int_column("events"),
    int_column("first_at"),
    int_column("last_at"),
    bytes_column("signature"),
    int_column("created_at"),
    UniqueConstraint("writer", "sequence"),
    *is_digest("root"),
    sqlite_autoincrement=True,
)

#: On SQLite rows may be deleted while a row is here: within a transaction of garbage collection.
gc_permits = Table("gc_permits", METADATA, id_column(), text_column("reason"), int_column("created_at"))


#: How far a store was moved into this one: ``position`` is the last row that arrived.
transfers = Table(
    "transfers",
    METADATA,
    text_column("source_id"),
    text_column("table_name"),
    text_column("position"),
    int_column("row_count"),
    int_column("finished_at", "0"),
    int_column("updated_at"),
    PrimaryKeyConstraint("source_id", "table_name"),
)

"""The tables, as statements are built from them. ``kcache_migrations`` makes them; a test compares both.

Times are UTC microseconds, durations microseconds, sizes bytes, digests 32 bytes.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from kcache_migrations.naming import NAMING_CONVENTION

#: The Alembic revision that this version reads and writes.
SCHEMA_REVISION = "0002"

#: ``PRAGMA application_id`` of our SQLite files: "KCCH".
APPLICATION_ID = 0x4B434348

METADATA = MetaData(naming_convention=NAMING_CONVENTION)

#: SQLite numbers rows by itself only in a column that is exactly INTEGER.
_RowId = BigInteger().with_variant(Integer(), "sqlite")


def _id() -> Column[int]:
    return Column("id", _RowId, primary_key=True, autoincrement=True)


def _namespace() -> Column[int]:
    return Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False)


def _int(name: str, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=default)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _bytes(name: str, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)


def _is_digest(*columns: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"length({name}) = 32", name=name) for name in columns]


store_meta = Table("store_meta", METADATA, Column("name", Text, primary_key=True), _text("value"))

namespaces = Table(
    "namespaces",
    METADATA,
    _id(),
    _text("name"),
    _int("epoch", "1"),
    _int("created_at"),
    UniqueConstraint("name"),
    CheckConstraint("epoch >= 1", name="epoch"),
    sqlite_autoincrement=True,
)

key_counters = Table(
    "key_counters",
    METADATA,
    Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), primary_key=True, autoincrement=False),
    _int("last_key", "0"),
    CheckConstraint("last_key >= 0", name="last_key"),
)

specs = Table(
    "specs",
    METADATA,
    _namespace(),
    _int("key"),
    _bytes("spec_digest"),
    _text("numerics"),
    _int("canonicalizer"),
    _text("family"),
    _int("text_size"),
    _int("created_at"),
    _text("text"),
    PrimaryKeyConstraint("namespace_id", "key"),
    UniqueConstraint("namespace_id", "spec_digest"),
    CheckConstraint("key >= 1", name="key"),
    # Specs of about the same size, without touching the pages that hold texts.
    Index("ix_specs_text_size", "namespace_id", "text_size"),
    *_is_digest("spec_digest"),
)

key_aliases = Table(
    "key_aliases",
    METADATA,
    _namespace(),
    _int("alias"),
    _int("key"),
    _int("created_at"),
    PrimaryKeyConstraint("namespace_id", "alias"),
    ForeignKeyConstraint(["namespace_id", "key"], ["specs.namespace_id", "specs.key"], name="fk_aliases_key"),
    ForeignKeyConstraint(
        ["namespace_id", "alias"], ["specs.namespace_id", "specs.key"], name="fk_aliases_alias"
    ),
    CheckConstraint("key < alias", name="order"),
)

#: A blob of bytes: an artifact, a lifted constant or a program. Where the bytes are: ``artifact_chunks``.
artifacts = Table(
    "artifacts",
    METADATA,
    _id(),
    _namespace(),
    _bytes("digest"),
    _int("size"),
    _int("created_at"),
    UniqueConstraint("namespace_id", "digest"),
    CheckConstraint("size >= 0", name="size"),
    *_is_digest("digest"),
    sqlite_autoincrement=True,
)

#: One row holds ``size`` bytes from ``seq`` MiB on, here (``content``) or in an object store (``location``).
artifact_chunks = Table(
    "artifact_chunks",
    METADATA,
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    _int("generation"),
    _int("seq"),
    _int("size"),
    Column("location", Text),
    _bytes("content", nullable=True),
    PrimaryKeyConstraint("artifact_id", "generation", "seq"),
    CheckConstraint("(content IS NULL) <> (location IS NULL)", name="place"),
    # Covers "is it whole?": the sum of sizes without touching the pages that hold bytes.
    Index("ix_artifact_chunks_whole", "artifact_id", "generation", "size"),
)

programs = Table(
    "programs",
    METADATA,
    _namespace(),
    _bytes("program_digest"),
    _text("format"),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    _int("created_at"),
    PrimaryKeyConstraint("namespace_id", "program_digest"),
    Index("ix_programs_artifact_id", "artifact_id"),
    *_is_digest("program_digest"),
)

constants = Table(
    "constants",
    METADATA,
    _namespace(),
    _bytes("digest"),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    _int("created_at"),
    PrimaryKeyConstraint("namespace_id", "digest"),
    Index("ix_constants_artifact_id", "artifact_id"),
)

graph_mappings = Table(
    "graph_mappings",
    METADATA,
    _id(),
    _namespace(),
    _int("epoch"),
    _bytes("program_digest"),
    _text("numerics"),
    _int("key"),
    _int("created_at"),
    _bytes("binding"),
    _bytes("signature"),
    UniqueConstraint("namespace_id", "epoch", "program_digest", "numerics"),
    ForeignKeyConstraint(["namespace_id", "key"], ["specs.namespace_id", "specs.key"]),
    Index("ix_graph_mappings_key", "namespace_id", "key"),
    *_is_digest("program_digest"),
    sqlite_autoincrement=True,
)

#: Which constants a mapping lifts: what collection must keep.
mapping_constants = Table(
    "mapping_constants",
    METADATA,
    Column("mapping_id", BigInteger, ForeignKey("graph_mappings.id"), nullable=False),
    _int("position"),
    _namespace(),
    _bytes("digest"),
    PrimaryKeyConstraint("mapping_id", "position"),
    ForeignKeyConstraint(["namespace_id", "digest"], ["constants.namespace_id", "constants.digest"]),
    Index("ix_mapping_constants_digest", "namespace_id", "digest"),
)

kernels = Table(
    "kernels",
    METADATA,
    _id(),
    _namespace(),
    _int("epoch"),
    _bytes("kernel_digest"),
    _int("key"),
    _text("target"),
    _text("options"),
    _bytes("toolchain"),
    _int("compile_us"),
    _int("fencing_token"),
    _int("created_at"),
    _text("arg_spec"),
    _text("guard"),
    _bytes("manifest"),
    _bytes("signature"),
    UniqueConstraint("namespace_id", "epoch", "kernel_digest"),
    ForeignKeyConstraint(["namespace_id", "key"], ["specs.namespace_id", "specs.key"]),
    Index("ix_kernels_variants", "namespace_id", "epoch", "key", "target", "options", "toolchain"),
    Index("ix_kernels_toolchain", "namespace_id", "toolchain"),
    Index("ix_kernels_key", "namespace_id", "key"),
    # Covers counts and sums, which would read every manifest else.
    Index("ix_kernels_compile_us", "namespace_id", "epoch", "compile_us"),
    *_is_digest("kernel_digest", "toolchain"),
    sqlite_autoincrement=True,
)

kernel_ingredients = Table(
    "kernel_ingredients",
    METADATA,
    Column("kernel_id", BigInteger, ForeignKey("kernels.id"), nullable=False),
    _int("position"),
    _text("name"),
    _text("value"),
    PrimaryKeyConstraint("kernel_id", "position"),
)

kernel_artifacts = Table(
    "kernel_artifacts",
    METADATA,
    Column("kernel_id", BigInteger, ForeignKey("kernels.id"), nullable=False),
    _int("position"),
    _text("kind"),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    PrimaryKeyConstraint("kernel_id", "position"),
    UniqueConstraint("kernel_id", "kind"),
    Index("ix_kernel_artifacts_artifact_id", "artifact_id"),
)

#: ``expires_at`` and ``renewed_at`` are on the steady clock of ``boot`` (SQLite) or the database's clock.
leases = Table(
    "leases",
    METADATA,
    _namespace(),
    _int("epoch"),
    _bytes("kernel_digest"),
    _text("holder"),
    _int("fencing_token"),
    _text("boot"),
    _int("renewed_at"),
    _int("expires_at"),
    _int("acquired_at"),
    _text("stages"),
    PrimaryKeyConstraint("namespace_id", "epoch", "kernel_digest"),
    *_is_digest("kernel_digest"),
)

failures = Table(
    "failures",
    METADATA,
    _namespace(),
    _int("epoch"),
    _bytes("kernel_digest"),
    _text("reason"),
    _text("stage"),
    _text("diagnostic"),
    _text("detail"),
    _int("count"),
    _int("first_at"),
    _int("last_at"),
    _int("expires_at"),
    PrimaryKeyConstraint("namespace_id", "epoch", "kernel_digest"),
    *_is_digest("kernel_digest"),
)

#: Generations that are never served again.
quarantine = Table(
    "quarantine",
    METADATA,
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    _int("generation"),
    _text("reason"),
    _int("created_at"),
    PrimaryKeyConstraint("artifact_id", "generation"),
)

conflicts = Table(
    "conflicts",
    METADATA,
    _id(),
    _namespace(),
    _text("kind"),
    _bytes("name"),
    _bytes("stored"),
    _bytes("offered"),
    _int("created_at"),
    Index("ix_conflicts_namespace_id", "namespace_id", "id"),
    sqlite_autoincrement=True,
)

autotune_timings = Table(
    "autotune_timings",
    METADATA,
    _id(),
    _namespace(),
    _bytes("kernel_digest"),
    _text("shape"),
    _text("config"),
    _text("device"),
    _int("nanoseconds"),
    _int("samples", "1"),
    _int("created_at"),
    UniqueConstraint("namespace_id", "kernel_digest", "shape", "config", "device"),
    *_is_digest("kernel_digest"),
    sqlite_autoincrement=True,
)

usage = Table(
    "usage",
    METADATA,
    _namespace(),
    _text("subject"),
    _bytes("digest"),
    _int("hits"),
    _int("saved_us"),
    _int("last_used_at"),
    PrimaryKeyConstraint("namespace_id", "subject", "digest"),
    # Oldest first: what eviction asks for.
    Index("ix_usage_last_used_at", "namespace_id", "subject", "last_used_at"),
    *_is_digest("digest"),
)

#: No foreign keys: events outlive what they tell of. ``writer`` is the process that appended, for sealing.
audit_events = Table(
    "audit_events",
    METADATA,
    _id(),
    _int("namespace_id"),
    _int("epoch"),
    _int("at"),
    _text("writer"),
    _text("kind"),
    _text("outcome"),
    _text("origin"),
    _text("actor"),
    _text("peer"),
    _text("request_id"),
    _bytes("program_digest", nullable=True),
    _bytes("spec_digest", nullable=True),
    Column("key", BigInteger),
    _bytes("kernel_digest", nullable=True),
    _text("target"),
    _bytes("toolchain", nullable=True),
    _int("duration_us"),
    _int("byte_count"),
    _int("saved_us"),
    _text("detail"),
    Index("ix_audit_events_namespace_id", "namespace_id", "id"),
    Index("ix_audit_events_at", "namespace_id", "at"),
    Index("ix_audit_events_writer", "writer", "id"),
    sqlite_autoincrement=True,
)

#: ``event_ids`` lists the sealed rows: big-endian u64 each.
audit_seals = Table(
    "audit_seals",
    METADATA,
    _id(),
    _text("writer"),
    _int("sequence"),
    _bytes("previous_root"),
    _bytes("root"),
    _bytes("event_ids"),
    _bytes("signature"),
    _int("created_at"),
    UniqueConstraint("writer", "sequence"),
    *_is_digest("previous_root", "root"),
    sqlite_autoincrement=True,
)

#: On SQLite rows may be deleted while a row is here: within a transaction of garbage collection.
gc_permits = Table("gc_permits", METADATA, _id(), _text("reason"), _int("created_at"))

#: Rows that are written once. The columns that name a row: a second insert under them is refused, so that
#: REPLACE finds nothing to replace on any connection, whatever its pragmas.
IMMUTABLE: dict[str, tuple[tuple[str, ...], ...]] = {
    "specs": (("namespace_id", "key"), ("namespace_id", "spec_digest")),
    "key_aliases": (("namespace_id", "alias"),),
    "programs": (("namespace_id", "program_digest"),),
    "constants": (("namespace_id", "digest"),),
    "graph_mappings": (("id",), ("namespace_id", "epoch", "program_digest", "numerics")),
    "mapping_constants": (("mapping_id", "position"),),
    "kernels": (("id",), ("namespace_id", "epoch", "kernel_digest")),
    "kernel_ingredients": (("kernel_id", "position"),),
    "kernel_artifacts": (("kernel_id", "position"), ("kernel_id", "kind")),
    "artifacts": (("id",), ("namespace_id", "digest")),
    "artifact_chunks": (("artifact_id", "generation", "seq"),),
    "audit_events": (("id",),),
    "audit_seals": (("id",), ("writer", "sequence")),
    "conflicts": (("id",),),
}

#: Never deleted, not even by collection.
PERMANENT = frozenset({"specs", "key_aliases"})

#: (trigger, table) as they must be found after every migration and at every opening.
TRIGGERS = frozenset(
    (f"{table}_refuse_{verb}", table) for table in IMMUTABLE for verb in ("insert", "update", "delete")
)

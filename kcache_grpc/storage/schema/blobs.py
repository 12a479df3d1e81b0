"""Bytes by digest: artifacts, lifted constants, programs."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
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

#: A blob of bytes: an artifact, a lifted constant or a program. Where the bytes are: ``artifact_chunks``.
artifacts = Table(
    "artifacts",
    METADATA,
    id_column(),
    namespace_column(),
    bytes_column("digest"),
    int_column("size"),
    int_column("created_at"),
    UniqueConstraint("namespace_id", "digest"),
    CheckConstraint("size >= 0", name="size"),
    *is_digest("digest"),
    sqlite_autoincrement=True,
)

#: One row holds ``size`` bytes from ``seq`` MiB on, here (``content``) or in an object that holds the whole
#: generation (``location``). ``digest`` is theirs; rows of schemas before 0003 have none.
artifact_chunks = Table(
    "artifact_chunks",
    METADATA,
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    int_column("generation"),
    int_column("seq"),
    int_column("size"),
    Column("location", Text),
    bytes_column("content", nullable=True),
    bytes_column("digest", nullable=True),
    PrimaryKeyConstraint("artifact_id", "generation", "seq"),
    CheckConstraint("(content IS NULL) <> (location IS NULL)", name="place"),
    # Covers "is it whole?": the sum of sizes without touching the pages that hold bytes.
    Index("ix_artifact_chunks_whole", "artifact_id", "generation", "size"),
    # Whether a row names an object, which a sweep asks of every one.
    Index(
        "ix_artifact_chunks_location",
        "location",
        sqlite_where=text("location IS NOT NULL"),
        postgresql_where=text("location IS NOT NULL"),
    ),
)

programs = Table(
    "programs",
    METADATA,
    namespace_column(),
    bytes_column("program_digest"),
    text_column("format"),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    int_column("created_at"),
    PrimaryKeyConstraint("namespace_id", "program_digest"),
    Index("ix_programs_artifact_id", "artifact_id"),
    *is_digest("program_digest"),
)

constants = Table(
    "constants",
    METADATA,
    namespace_column(),
    bytes_column("digest"),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    int_column("created_at"),
    PrimaryKeyConstraint("namespace_id", "digest"),
    Index("ix_constants_artifact_id", "artifact_id"),
)

#: Generations that are never served again.
quarantine = Table(
    "quarantine",
    METADATA,
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    int_column("generation"),
    text_column("reason"),
    int_column("created_at"),
    PrimaryKeyConstraint("artifact_id", "generation"),
)


#: Objects whose rows were collected: deleted after a grace period and a second look.
dead_objects = Table(
    "dead_objects",
    METADATA,
    Column("location", Text, primary_key=True),
    int_column("size"),
    int_column("dead_at"),
    Index("ix_dead_objects_dead_at", "dead_at"),
)

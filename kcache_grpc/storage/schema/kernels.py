"""Kernels, the right to compile them, what became of compiles, and rows out of service.

Verification takes rows out of service with all that is needed to put them back.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)

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

kernels = Table(
    "kernels",
    METADATA,
    id_column(),
    namespace_column(),
    int_column("epoch"),
    bytes_column("kernel_digest"),
    int_column("key"),
    text_column("target"),
    text_column("options"),
    bytes_column("toolchain"),
    int_column("compile_us"),
    int_column("fencing_token"),
    int_column("created_at"),
    text_column("arg_spec"),
    text_column("guard"),
    bytes_column("manifest"),
    bytes_column("signature"),
    UniqueConstraint("namespace_id", "epoch", "kernel_digest"),
    ForeignKeyConstraint(["namespace_id", "key"], ["specs.namespace_id", "specs.key"]),
    Index("ix_kernels_variants", "namespace_id", "epoch", "key", "target", "options", "toolchain"),
    # Kernels of a disowned toolchain, in the order in which they are collected.
    Index("ix_kernels_toolchain", "namespace_id", "toolchain", "epoch", "id"),
    Index("ix_kernels_key", "namespace_id", "key"),
    # Covers counts and sums, which would read every manifest else.
    Index("ix_kernels_compile_us", "namespace_id", "epoch", "compile_us"),
    *is_digest("kernel_digest", "toolchain"),
    sqlite_autoincrement=True,
)
#: As people ask views for it.
Index("ix_kernels_toolchain_hex", Hexadecimal(kernels.c.toolchain))

kernel_ingredients = Table(
    "kernel_ingredients",
    METADATA,
    Column("kernel_id", BigInteger, ForeignKey("kernels.id"), nullable=False),
    int_column("position"),
    text_column("name"),
    text_column("value"),
    PrimaryKeyConstraint("kernel_id", "position"),
)

kernel_artifacts = Table(
    "kernel_artifacts",
    METADATA,
    Column("kernel_id", BigInteger, ForeignKey("kernels.id"), nullable=False),
    int_column("position"),
    text_column("kind"),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    PrimaryKeyConstraint("kernel_id", "position"),
    UniqueConstraint("kernel_id", "kind"),
    Index("ix_kernel_artifacts_artifact_id", "artifact_id"),
)

#: ``expires_at`` and ``renewed_at`` are on the steady clock of ``boot`` (SQLite) or the database's clock.
leases = Table(
    "leases",
    METADATA,
    namespace_column(),
    int_column("epoch"),
    bytes_column("kernel_digest"),
    text_column("holder"),
    int_column("fencing_token"),
    text_column("boot"),
    int_column("renewed_at"),
    int_column("expires_at"),
    int_column("acquired_at"),
    text_column("stages"),
    PrimaryKeyConstraint("namespace_id", "epoch", "kernel_digest"),
    *is_digest("kernel_digest"),
)

failures = Table(
    "failures",
    METADATA,
    namespace_column(),
    int_column("epoch"),
    bytes_column("kernel_digest"),
    text_column("reason"),
    text_column("stage"),
    text_column("diagnostic"),
    text_column("detail"),
    int_column("count"),
    int_column("first_at"),
    int_column("last_at"),
    int_column("expires_at"),
    PrimaryKeyConstraint("namespace_id", "epoch", "kernel_digest"),
    *is_digest("kernel_digest"),
)

autotune_timings = Table(
    "autotune_timings",
    METADATA,
    id_column(),
    namespace_column(),
    bytes_column("kernel_digest"),
    text_column("shape"),
    text_column("config"),
    text_column("device"),
    int_column("nanoseconds"),
    int_column("samples", "1"),
    int_column("created_at"),
    UniqueConstraint("namespace_id", "kernel_digest", "shape", "config", "device"),
    *is_digest("kernel_digest"),
    sqlite_autoincrement=True,
)


#: A kernel or a mapping. ``content``: its rows, as JSON.
quarantined_rows = Table(
    "quarantined_rows",
    METADATA,
    id_column(),
    namespace_column(),
    text_column("subject"),
    bytes_column("digest"),
    text_column("problem"),
    int_column("created_at"),
    text_column("content"),
    Index("ix_quarantined_rows_namespace_id", "namespace_id", "id"),
    *is_digest("digest"),
    sqlite_autoincrement=True,
)

#: The blobs that such a row refers to, which stay for as long.
quarantined_blobs = Table(
    "quarantined_blobs",
    METADATA,
    Column("row_id", BigInteger, ForeignKey("quarantined_rows.id"), nullable=False),
    Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
    PrimaryKeyConstraint("row_id", "artifact_id"),
    Index("ix_quarantined_blobs_artifact_id", "artifact_id"),
)

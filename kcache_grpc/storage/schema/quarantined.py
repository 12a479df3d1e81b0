"""Tables of rows that verification took out of service, with all that is needed to put them back."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, PrimaryKeyConstraint, Table

from kcache_grpc.storage.schema.columns import (
    METADATA,
    bytes_column,
    id_column,
    int_column,
    is_digest,
    namespace_column,
    text_column,
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

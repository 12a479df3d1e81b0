"""Specs, aliases of their keys, and the programs that map to them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
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
    bytes_column,
    id_column,
    int_column,
    is_digest,
    namespace_column,
    text_column,
)

specs = Table(
    "specs",
    METADATA,
    namespace_column(),
    int_column("key"),
    bytes_column("spec_digest"),
    text_column("numerics"),
    int_column("canonicalizer"),
    text_column("family"),
    int_column("text_size"),
    int_column("created_at"),
    text_column("text"),
    PrimaryKeyConstraint("namespace_id", "key"),
    UniqueConstraint("namespace_id", "spec_digest"),
    CheckConstraint("key >= 1", name="key"),
    # Specs of about the same size, youngest first, without touching the pages that hold texts.
    Index("ix_specs_text_size", "namespace_id", "text_size", "key"),
    *is_digest("spec_digest"),
)

key_aliases = Table(
    "key_aliases",
    METADATA,
    namespace_column(),
    int_column("alias"),
    int_column("key"),
    int_column("created_at"),
    PrimaryKeyConstraint("namespace_id", "alias"),
    ForeignKeyConstraint(["namespace_id", "key"], ["specs.namespace_id", "specs.key"], name="fk_aliases_key"),
    ForeignKeyConstraint(
        ["namespace_id", "alias"], ["specs.namespace_id", "specs.key"], name="fk_aliases_alias"
    ),
    CheckConstraint("key < alias", name="order"),
)

graph_mappings = Table(
    "graph_mappings",
    METADATA,
    id_column(),
    namespace_column(),
    int_column("epoch"),
    bytes_column("program_digest"),
    text_column("numerics"),
    int_column("key"),
    int_column("created_at"),
    bytes_column("binding"),
    bytes_column("signature"),
    UniqueConstraint("namespace_id", "epoch", "program_digest", "numerics"),
    ForeignKeyConstraint(["namespace_id", "key"], ["specs.namespace_id", "specs.key"]),
    Index("ix_graph_mappings_key", "namespace_id", "key"),
    *is_digest("program_digest"),
    sqlite_autoincrement=True,
)

#: Which constants a mapping lifts: what collection must keep.
mapping_constants = Table(
    "mapping_constants",
    METADATA,
    Column("mapping_id", BigInteger, ForeignKey("graph_mappings.id"), nullable=False),
    int_column("position"),
    namespace_column(),
    bytes_column("digest"),
    PrimaryKeyConstraint("mapping_id", "position"),
    ForeignKeyConstraint(["namespace_id", "digest"], ["constants.namespace_id", "constants.digest"]),
    Index("ix_mapping_constants_digest", "namespace_id", "digest"),
)

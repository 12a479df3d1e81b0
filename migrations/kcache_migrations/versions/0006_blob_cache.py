"""Values of ``BlobCache``: five tables of their own, whose rows are written once and collected like others.

Revision ID: 0006
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
)

from kcache_migrations.collector import (
    JOIN,
    QUARANTINED,
    collector_statements,
    release_statement,
    replacing,
)
from kcache_migrations.immutability_triggers import immutability_triggers

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_IMMUTABLE = {
    "cache_values": (("id",), ("namespace_id", "key")),
    "cache_chunks": (("value_id", "seq"),),
    "cache_conflicts": (("id",), ("namespace_id", "key", "offered")),
}
_TABLES = (*_IMMUTABLE, "cache_usage", "cache_totals")

#: What the function of Postgres may delete before this revision, and from it on.
_BEFORE = {
    "graph_mappings": ("id",),
    "mapping_constants": ("mapping_id",),
    "kernels": ("id",),
    "kernel_ingredients": ("kernel_id",),
    "kernel_artifacts": ("kernel_id",),
    "programs": ("artifact_id",),
    "constants": ("artifact_id",),
    "artifacts": ("id",),
    "artifact_chunks": ("artifact_id", QUARANTINED),
    "quarantine": ("artifact_id",),
    "audit_events": ("id",),
    "audit_seals": ("id",),
}
_SINCE = {**_BEFORE, "cache_values": ("id",), "cache_chunks": ("value_id",)}


def upgrade() -> None:
    """Add the tables; let the function that deletes collect values."""
    _values()
    op.create_table(
        "cache_conflicts",
        Column("id", _row_id(), primary_key=True, autoincrement=True),
        Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False),
        Column("key", LargeBinary, nullable=False),
        Column("kept", LargeBinary, nullable=False),
        Column("offered", LargeBinary, nullable=False),
        Column("actor", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        UniqueConstraint("namespace_id", "key", "offered"),
        *(CheckConstraint(f"length({name}) = 32", name=name) for name in ("key", "kept", "offered")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cache_usage",
        Column("value_id", BigInteger, ForeignKey("cache_values.id"), primary_key=True, autoincrement=False),
        Column("hits", BigInteger, nullable=False),
        Column("last_used_at", BigInteger, nullable=False),
        Index("ix_cache_usage_last_used_at", "last_used_at", "value_id"),
    )
    op.create_table(
        "cache_totals",
        Column(
            "namespace_id", BigInteger, ForeignKey("namespaces.id"), primary_key=True, autoincrement=False
        ),
        Column("hits", BigInteger, nullable=False),
        Column("saved_us", BigInteger, nullable=False),
    )
    dialect = op.get_bind().dialect.name
    for table, names in _IMMUTABLE.items():
        for statement in immutability_triggers(dialect, table, names, permanent=False):
            op.execute(statement)
    if dialect == "postgresql":
        op.execute("ALTER TABLE cache_chunks ALTER COLUMN content SET STORAGE EXTERNAL")
        _postgres(_SINCE)


def downgrade() -> None:
    """Forget the values."""
    if op.get_bind().dialect.name == "postgresql":
        _postgres(_BEFORE)
    for table in ("cache_totals", "cache_usage", "cache_conflicts", "cache_chunks", "cache_values"):
        op.drop_table(table)


def _values() -> None:
    op.create_table(
        "cache_values",
        Column("id", _row_id(), primary_key=True, autoincrement=True),
        Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False),
        Column("key", LargeBinary, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("label", Text, nullable=False),
        Column("saved_us", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        UniqueConstraint("namespace_id", "key"),
        CheckConstraint("size >= 0", name="size"),
        *(CheckConstraint(f"length({name}) = 32", name=name) for name in ("key", "digest")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cache_chunks",
        Column("value_id", BigInteger, ForeignKey("cache_values.id"), nullable=False),
        Column("seq", BigInteger, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("content", LargeBinary, nullable=False),
        PrimaryKeyConstraint("value_id", "seq"),
        CheckConstraint("length(digest) = 32", name="digest"),
    )


def _row_id() -> BigInteger:
    return BigInteger().with_variant(Integer(), "sqlite")  # type: ignore[return-value]


def _postgres(columns: dict[str, tuple[str, ...]]) -> None:
    """The function with other tables: its owner and its grants stay. Then nobody is a member of its owner."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    op.execute(JOIN)
    for statement in replacing(collector_statements(schema, columns)):
        op.execute(statement)
    for table in _TABLES:
        op.execute(_GIVE.format(table=table))
    op.execute(release_statement())


#: An administrator may migrate the tables of the servers' role: the new ones belong to it too.
_GIVE = """
DO $$
DECLARE
    owner regrole := (SELECT relowner FROM pg_class WHERE oid = 'kernels'::regclass);
BEGIN
    EXECUTE format('ALTER TABLE {table} OWNER TO %s', owner);
END $$
"""

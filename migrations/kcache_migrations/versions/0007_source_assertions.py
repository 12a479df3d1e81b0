"""Assertions of ``SourceAssertions``: four tables, whose rows are written once and collected like mappings.

Revision ID: 0007
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

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_IMMUTABLE = {
    "assertions": (("id",), ("namespace_id", "epoch", "source_digest", "actor")),
    "assertion_conflicts": (
        ("id",),
        ("namespace_id", "epoch", "source_digest", "actor", "offered"),
    ),
    "assertion_disputes": (
        ("id",),
        ("namespace_id", "epoch", "source_digest", "actor", "record_digest"),
    ),
}
_TABLES = (*_IMMUTABLE, "assertion_usage")

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
    "cache_values": ("id",),
    "cache_chunks": ("value_id",),
}
_SINCE = {**_BEFORE, "assertions": ("id",)}


def upgrade() -> None:
    """Add the tables; let the function that deletes collect assertions."""
    _assertions()
    _conflicts()
    _disputes()
    op.create_table(
        "assertion_usage",
        Column(
            "assertion_id", BigInteger, ForeignKey("assertions.id"), primary_key=True, autoincrement=False
        ),
        _int("hits"),
        _int("last_used_at"),
        Index("ix_assertion_usage_last_used_at", "last_used_at", "assertion_id"),
    )
    dialect = op.get_bind().dialect.name
    for table, names in _IMMUTABLE.items():
        for statement in immutability_triggers(dialect, table, names, permanent=False):
            op.execute(statement)
    if dialect == "postgresql":
        _postgres(_SINCE)


def downgrade() -> None:
    """Forget the assertions."""
    if op.get_bind().dialect.name == "postgresql":
        _postgres(_BEFORE)
    for table in reversed(_TABLES):
        op.drop_table(table)


def _assertions() -> None:
    op.create_table(
        "assertions",
        _id(),
        _namespace(),
        _int("epoch"),
        _bytes("source_digest"),
        _text("actor"),
        _text("role"),
        _bytes("record_digest"),
        _int("record_size"),
        _int("size"),
        _text("toolchain"),
        _int("created_at"),
        _bytes("programs"),
        _bytes("record"),
        UniqueConstraint("namespace_id", "epoch", "source_digest", "actor"),
        CheckConstraint("size >= 0", name="size"),
        *_digests("source_digest", "record_digest"),
        sqlite_autoincrement=True,
    )


def _conflicts() -> None:
    op.create_table(
        "assertion_conflicts",
        _id(),
        _namespace(),
        _int("epoch"),
        _bytes("source_digest"),
        _text("actor"),
        _bytes("kept"),
        _bytes("offered"),
        _int("created_at"),
        UniqueConstraint("namespace_id", "epoch", "source_digest", "actor", "offered"),
        *_digests("source_digest", "kept", "offered"),
        sqlite_autoincrement=True,
    )


def _disputes() -> None:
    op.create_table(
        "assertion_disputes",
        _id(),
        _namespace(),
        _int("epoch"),
        _bytes("source_digest"),
        _text("actor"),
        _bytes("record_digest"),
        _bytes("observed"),
        _text("disputed_by"),
        _text("reason"),
        _int("created_at"),
        UniqueConstraint("namespace_id", "epoch", "source_digest", "actor", "record_digest"),
        *_digests("source_digest", "record_digest", "observed"),
        sqlite_autoincrement=True,
    )


def _id() -> Column[int]:
    number = BigInteger().with_variant(Integer(), "sqlite")
    return Column("id", number, primary_key=True, autoincrement=True)


def _namespace() -> Column[int]:
    return Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False)


def _int(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _digests(*names: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"length({name}) = 32", name=name) for name in names]


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

"""What a fleet asks for: quotas, pins, disowned toolchains, dead objects, audit writers and checkpoints.

Revision ID: 0003
"""

# ruff: noqa: S608 (the statements are put together from our own names)
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
    text,
)

from kcache_migrations.audit_views import audit_views
from kcache_migrations.change_notifications import notification_removal, notification_statements
from kcache_migrations.collector import QUARANTINED, collector_removal, collector_statements
from kcache_migrations.immutability_triggers import immutability_triggers
from kcache_migrations.views import hexadecimal, iso_time

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_IMMUTABLE = {
    "audit_writers": (("writer",),),
    "audit_checkpoints": (("id",), ("writer", "sequence")),
}

#: What collection may delete on Postgres, and by which column of ids.
_COLLECTABLE = {
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

#: Indexes of earlier revisions that get more columns: those before, and those since.
_LONGER = {
    "ix_kernels_toolchain": ("kernels", ["namespace_id", "toolchain"], ["epoch", "id"]),
    "ix_specs_text_size": ("specs", ["namespace_id", "text_size"], ["key"]),
}

_RowId = BigInteger().with_variant(Integer(), "sqlite")


def _namespace() -> Column[int]:
    return Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False)


def _int(name: str, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=default)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _is_digest(name: str) -> CheckConstraint:
    return CheckConstraint(f"length({name}) = 32", name=name)


def upgrade() -> None:
    """Add tables, a column and indexes; no table is rebuilt, so that all triggers stay."""
    dialect = op.get_bind().dialect.name
    _limits()
    _collection()
    _bytes_beside()
    _ledger()
    for name, (table, columns, more) in _LONGER.items():
        op.drop_index(name, table)
        op.create_index(name, table, [*columns, *more])
    for table, names in _IMMUTABLE.items():
        for statement in immutability_triggers(dialect, table, names, permanent=False):
            op.execute(statement)
    op.execute("DROP VIEW v_audit")
    for name, select in _views(dialect).items():
        op.execute(f"CREATE VIEW {name} AS {select}")
    if dialect == "postgresql":
        _postgres()


def downgrade() -> None:
    """Take it all away again, with what these tables say."""
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        for statement in (*collector_removal(_COLLECTABLE), *notification_removal()):
            op.execute(statement)
        op.execute("ALTER TABLE artifact_chunks ALTER COLUMN content SET STORAGE EXTENDED")
    for name in _views(dialect):
        op.execute(f"DROP VIEW {name}")
    for table in ("audit_checkpoints", "audit_writers", "transfers", "dead_objects"):
        op.drop_table(table)
    for table in ("disowned_toolchains", "pins", "quotas"):
        op.drop_table(table)
    for name, (table, columns, _) in _LONGER.items():
        op.drop_index(name, table)
        op.create_index(name, table, columns)
    op.drop_column("namespaces", "removals")
    op.execute("DELETE FROM usage WHERE hits = 0 AND saved_us = 0")
    op.drop_index("ix_artifact_chunks_location", "artifact_chunks")
    op.drop_column("artifact_chunks", "digest")
    op.drop_index("ix_audit_events_kernel", "audit_events")
    op.drop_index("ix_audit_events_job", "audit_events")
    op.drop_column("audit_events", "job")
    op.drop_column("audit_events", "request_count")
    op.drop_column("audit_seals", "leaf_marks")
    before = _views(dialect)["v_audit"].replace("t.job, ", "").replace("t.request_count, ", "")
    op.execute(f"CREATE VIEW v_audit AS {before}")


def _postgres() -> None:
    # Slices of a chunk are read without decompressing the whole.
    op.execute("ALTER TABLE artifact_chunks ALTER COLUMN content SET STORAGE EXTERNAL")
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in (*collector_statements(schema, _COLLECTABLE), *notification_statements()):
        op.execute(statement)


def _limits() -> None:
    op.create_table(
        "quotas",
        _namespace(),
        _text("resource"),
        _int("most"),
        _int("updated_at"),
        Column("policy", Text, nullable=False, server_default=text("'evict'")),
        _int("used", "0"),
        PrimaryKeyConstraint("namespace_id", "resource"),
        CheckConstraint("most >= 0", name="most"),
    )
    op.create_table(
        "pins",
        _namespace(),
        _text("subject"),
        _bytes("digest"),
        _text("reason"),
        _int("created_at"),
        PrimaryKeyConstraint("namespace_id", "subject", "digest"),
        _is_digest("digest"),
    )
    op.create_table(
        "disowned_toolchains",
        _namespace(),
        _bytes("toolchain"),
        _text("reason"),
        _int("created_at"),
        PrimaryKeyConstraint("namespace_id", "toolchain"),
        _is_digest("toolchain"),
    )
    op.create_table(
        "dead_objects",
        Column("location", Text, primary_key=True),
        _int("size"),
        _int("dead_at"),
        Index("ix_dead_objects_dead_at", "dead_at"),
    )
    op.create_table(
        "transfers",
        _text("source_id"),
        _text("table_name"),
        _text("position"),
        _int("row_count"),
        _int("finished_at", "0"),
        _int("updated_at"),
        PrimaryKeyConstraint("source_id", "table_name"),
    )


def _collection() -> None:
    """What eviction asks for: removals that memories of a namespace notice, a use of all that is stored."""
    op.add_column("namespaces", _int("removals", "0"))
    for table, subject, digest in (
        ("kernels", "kernel", "kernel_digest"),
        ("graph_mappings", "mapping", "program_digest"),
    ):
        op.execute(
            "INSERT INTO usage (namespace_id, subject, digest, hits, saved_us, last_used_at) "
            f"SELECT namespace_id, '{subject}', {digest}, 0, 0, max(created_at) FROM {table} "
            f"WHERE true GROUP BY namespace_id, {digest} ON CONFLICT DO NOTHING"
        )


def _bytes_beside() -> None:
    """What objects need: digests of chunks, so that ranges are checked, and who names an object."""
    op.add_column("artifact_chunks", Column("digest", LargeBinary, nullable=True))
    named = text("location IS NOT NULL")
    op.create_index(
        "ix_artifact_chunks_location",
        "artifact_chunks",
        ["location"],
        sqlite_where=named,
        postgresql_where=named,
    )


def _ledger() -> None:
    op.add_column("audit_events", Column("job", Text, nullable=False, server_default=text("''")))
    op.add_column("audit_events", _int("request_count", "1"))
    op.add_column("audit_seals", Column("leaf_marks", LargeBinary))
    op.create_index("ix_audit_events_job", "audit_events", ["namespace_id", "job", "id"])
    op.create_index("ix_audit_events_kernel", "audit_events", ["namespace_id", "kernel_digest", "id"])
    op.create_table(
        "audit_writers",
        Column("writer", Text, primary_key=True),
        _bytes("public_key"),
        _text("host"),
        _int("started_at"),
    )
    op.create_table(
        "audit_checkpoints",
        Column("id", _RowId, primary_key=True, autoincrement=True),
        _text("writer"),
        _int("sequence"),
        _bytes("root"),
        _int("events"),
        _int("first_at"),
        _int("last_at"),
        _bytes("signature"),
        _int("created_at"),
        UniqueConstraint("writer", "sequence"),
        _is_digest("root"),
        sqlite_autoincrement=True,
    )


def _views(dialect: str) -> dict[str, str]:
    def hexa(column: str) -> str:
        return f"{hexadecimal(dialect, column)} AS {column.split('.')[-1]}"

    def time(column: str) -> str:
        return f"{iso_time(dialect, column)} AS {column.split('.')[-1]}"

    asked = f"{hexa('t.program_digest')}, {hexa('t.spec_digest')}, t.key"
    return {
        "v_audit": f"""
            SELECT t.id, n.name AS namespace, t.epoch, {time("t.at")}, t.kind, t.outcome, t.origin, t.actor,
                   t.job, t.peer, t.request_id, t.request_count, {asked},
                   {hexa("t.kernel_digest")}, t.target, {hexa("t.toolchain")}, t.duration_us, t.byte_count,
                   t.saved_us, t.detail
            FROM audit_events t LEFT JOIN namespaces n ON n.id = t.namespace_id""",
        **audit_views(dialect),
    }

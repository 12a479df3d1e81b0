"""The first schema: namespaces, specs and keys, bytes, mappings, kernels, leases, audit.

Revision ID: 0001
"""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
)

from kcache_migrations.immutability_triggers import REFUSE_FUNCTION, immutability_triggers
from kcache_migrations.views import hexadecimal, iso_time

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_IMMUTABLE = {
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
_PERMANENT = ("specs", "key_aliases")

#: SQLite numbers rows automatically only in a column that is exactly INTEGER.
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


def upgrade() -> None:
    """Make everything."""
    _namespaces_and_specs()
    _bytes_and_mappings()
    _kernels_and_leases()
    _ledger()
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        op.execute(REFUSE_FUNCTION)
    for table, names in _IMMUTABLE.items():
        for statement in immutability_triggers(dialect, table, names, table in _PERMANENT):
            op.execute(statement)
    for name, select in _views(dialect).items():
        op.execute(f"CREATE VIEW {name} AS {select}")


def _namespaces_and_specs() -> None:
    op.create_table("store_meta", Column("name", Text, primary_key=True), _text("value"))
    op.create_table(
        "namespaces",
        _id(),
        _text("name"),
        _int("epoch", "1"),
        _int("created_at"),
        UniqueConstraint("name"),
        CheckConstraint("epoch >= 1", name="epoch"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "key_counters",
        Column(
            "namespace_id", BigInteger, ForeignKey("namespaces.id"), primary_key=True, autoincrement=False
        ),
        _int("last_key", "0"),
        CheckConstraint("last_key >= 0", name="last_key"),
    )
    op.create_table(
        "specs",
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
        *_is_digest("spec_digest"),
    )
    op.create_table(
        "key_aliases",
        _namespace(),
        _int("alias"),
        _int("key"),
        _int("created_at"),
        PrimaryKeyConstraint("namespace_id", "alias"),
        ForeignKeyConstraint(
            ["namespace_id", "key"], ["specs.namespace_id", "specs.key"], name="fk_aliases_key"
        ),
        ForeignKeyConstraint(
            ["namespace_id", "alias"], ["specs.namespace_id", "specs.key"], name="fk_aliases_alias"
        ),
        CheckConstraint("key < alias", name="order"),
    )


def _bytes_and_mappings() -> None:
    op.create_table(
        "artifacts",
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
    op.create_table(
        "artifact_chunks",
        Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
        _int("generation"),
        _int("seq"),
        _int("size"),
        Column("location", Text),
        _bytes("content", nullable=True),
        PrimaryKeyConstraint("artifact_id", "generation", "seq"),
        CheckConstraint("(content IS NULL) <> (location IS NULL)", name="place"),
        Index("ix_artifact_chunks_whole", "artifact_id", "generation", "size"),
    )
    op.create_table(
        "programs",
        _namespace(),
        _bytes("program_digest"),
        _text("format"),
        Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
        _int("created_at"),
        PrimaryKeyConstraint("namespace_id", "program_digest"),
        Index("ix_programs_artifact_id", "artifact_id"),
        *_is_digest("program_digest"),
    )
    op.create_table(
        "constants",
        _namespace(),
        _bytes("digest"),
        Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
        _int("created_at"),
        PrimaryKeyConstraint("namespace_id", "digest"),
        Index("ix_constants_artifact_id", "artifact_id"),
    )
    op.create_table(
        "graph_mappings",
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
    op.create_table(
        "mapping_constants",
        Column("mapping_id", BigInteger, ForeignKey("graph_mappings.id"), nullable=False),
        _int("position"),
        _namespace(),
        _bytes("digest"),
        PrimaryKeyConstraint("mapping_id", "position"),
        ForeignKeyConstraint(["namespace_id", "digest"], ["constants.namespace_id", "constants.digest"]),
        Index("ix_mapping_constants_digest", "namespace_id", "digest"),
    )


def _kernels_and_leases() -> None:
    op.create_table(
        "kernels",
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
        Index("ix_kernels_compile_us", "namespace_id", "epoch", "compile_us"),
        *_is_digest("kernel_digest", "toolchain"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "kernel_ingredients",
        Column("kernel_id", BigInteger, ForeignKey("kernels.id"), nullable=False),
        _int("position"),
        _text("name"),
        _text("value"),
        PrimaryKeyConstraint("kernel_id", "position"),
    )
    op.create_table(
        "kernel_artifacts",
        Column("kernel_id", BigInteger, ForeignKey("kernels.id"), nullable=False),
        _int("position"),
        _text("kind"),
        Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
        PrimaryKeyConstraint("kernel_id", "position"),
        UniqueConstraint("kernel_id", "kind"),
        Index("ix_kernel_artifacts_artifact_id", "artifact_id"),
    )
    op.create_table(
        "leases",
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
    op.create_table(
        "failures",
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
    op.create_table(
        "quarantine",
        Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
        _int("generation"),
        _text("reason"),
        _int("created_at"),
        PrimaryKeyConstraint("artifact_id", "generation"),
    )
    op.create_table(
        "autotune_timings",
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


def _ledger() -> None:
    op.create_table(
        "conflicts",
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
    op.create_table(
        "usage",
        _namespace(),
        _text("subject"),
        _bytes("digest"),
        _int("hits"),
        _int("saved_us"),
        _int("last_used_at"),
        PrimaryKeyConstraint("namespace_id", "subject", "digest"),
        Index("ix_usage_last_used_at", "namespace_id", "subject", "last_used_at"),
        *_is_digest("digest"),
    )
    op.create_table(
        "audit_events",
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
    op.create_table(
        "audit_seals",
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
    op.create_table("gc_permits", _id(), _text("reason"), _int("created_at"))


def _views(dialect: str) -> dict[str, str]:
    def hexa(column: str) -> str:
        return f"{hexadecimal(dialect, column)} AS {column.split('.')[-1]}"

    def time(column: str) -> str:
        return f"{iso_time(dialect, column)} AS {column.split('.')[-1]}"

    return {
        "v_specs": f"""
            SELECT n.name AS namespace, t.key, {hexa("t.spec_digest")}, t.numerics, t.canonicalizer, t.family,
                   t.text_size, {time("t.created_at")}
            FROM specs t JOIN namespaces n ON n.id = t.namespace_id""",
        "v_graph_mappings": f"""
            SELECT n.name AS namespace, t.epoch, {hexa("t.program_digest")}, t.numerics, t.key,
                   {time("t.created_at")}
            FROM graph_mappings t JOIN namespaces n ON n.id = t.namespace_id""",
        "v_kernels": f"""
            SELECT t.id, n.name AS namespace, t.epoch, {hexa("t.kernel_digest")}, t.key, t.arg_spec, t.guard,
                   t.target, t.options, {hexa("t.toolchain")}, t.compile_us, {time("t.created_at")}
            FROM kernels t JOIN namespaces n ON n.id = t.namespace_id""",
        "v_audit": f"""
            SELECT t.id, n.name AS namespace, t.epoch, {time("t.at")}, t.kind, t.outcome, t.origin, t.actor,
                   t.peer, t.request_id, {hexa("t.program_digest")}, {hexa("t.spec_digest")}, t.key,
                   {hexa("t.kernel_digest")}, t.target, {hexa("t.toolchain")}, t.duration_us, t.byte_count,
                   t.saved_us, t.detail
            FROM audit_events t LEFT JOIN namespaces n ON n.id = t.namespace_id""",
    }

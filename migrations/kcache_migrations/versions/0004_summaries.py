"""Questions to the audit log that do not grow with it: summaries, and indexes of digests in hex.

On SQLite rows of ``usage`` move into its primary key: a use writes two pages instead of three.

Revision ID: 0004
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
)

from kcache_migrations.audit_questions import audit_questions
from kcache_migrations.audit_views import audit_views
from kcache_migrations.summaries import summaries_of_what_is_there, summary_removal, summary_statements
from kcache_migrations.views import hexadecimal

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _int(name: str, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def upgrade() -> None:
    """Add summaries of what is there, and the triggers that keep them; change an index and four views."""
    dialect = op.get_bind().dialect.name
    schema = ""
    if dialect == "postgresql":
        schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
        # Servers of the revision before may run: what they append waits, or nobody would sum it. In the order
        # in which a server that publishes takes them.
        op.execute("LOCK TABLE kernels, audit_events IN SHARE ROW EXCLUSIVE MODE")
    else:
        _rebuild_usage(with_rowid=False)
    _tables()
    for statement in (*summaries_of_what_is_there(dialect), *summary_statements(dialect, schema)):
        op.execute(statement)
    op.drop_index("ix_audit_events_kernel", "audit_events")
    of_kernel, of_toolchain = (hexadecimal(dialect, name) for name in ("kernel_digest", "toolchain"))
    op.execute(f"CREATE INDEX ix_audit_events_kernel ON audit_events (namespace_id, {of_kernel}, id)")
    op.execute(f"CREATE INDEX ix_kernels_toolchain_hex ON kernels ({of_toolchain})")
    for name, select in audit_questions(dialect).items():
        op.execute(f"DROP VIEW {name}")
        op.execute(f"CREATE VIEW {name} AS {select}")


def downgrade() -> None:
    """Take it all away again: the log itself has what the summaries say, but for what was pruned."""
    dialect = op.get_bind().dialect.name
    before = audit_views(dialect)
    for name in audit_questions(dialect):
        op.execute(f"DROP VIEW {name}")
        op.execute(f"CREATE VIEW {name} AS {before[name]}")
    op.drop_index("ix_kernels_toolchain_hex", "kernels")
    op.drop_index("ix_audit_events_kernel", "audit_events")
    op.create_index("ix_audit_events_kernel", "audit_events", ["namespace_id", "kernel_digest", "id"])
    for statement in summary_removal(dialect):
        op.execute(statement)
    op.drop_table("audit_misses")
    op.drop_table("audit_days")
    if dialect == "sqlite":
        _rebuild_usage(with_rowid=True)


def _tables() -> None:
    op.create_table(
        "audit_days",
        _text("namespace"),
        _int("day"),
        _int("slot"),
        _int("served"),
        _int("saved_us"),
        _int("compiled"),
        _int("compile_us"),
        PrimaryKeyConstraint("namespace", "day", "slot"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit_misses",
        _text("namespace"),
        Column("program_digest", LargeBinary, nullable=False),
        _text("target"),
        _text("reason"),
        _int("key", nullable=True),
        _int("misses"),
        _int("first_at"),
        _int("last_at"),
        _text("last_actor"),
        _text("last_job"),
        PrimaryKeyConstraint("namespace", "program_digest", "target", "reason"),
        Index("ix_audit_misses_misses", "namespace", "misses"),
        sqlite_with_rowid=False,
    )


def _rebuild_usage(*, with_rowid: bool) -> None:
    """The same rows in a table of another form; it has no triggers, and nothing refers to it."""
    op.execute("CREATE TEMP TABLE usage_before AS SELECT * FROM usage")
    op.drop_table("usage")
    op.create_table(
        "usage",
        Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False),
        _text("subject"),
        Column("digest", LargeBinary, nullable=False),
        _int("hits"),
        _int("saved_us"),
        _int("last_used_at"),
        PrimaryKeyConstraint("namespace_id", "subject", "digest"),
        CheckConstraint("length(digest) = 32", name="digest"),
        sqlite_with_rowid=with_rowid,
    )
    columns = "namespace_id, subject, digest, hits, saved_us, last_used_at"
    ordered = "SELECT * FROM temp.usage_before ORDER BY namespace_id, subject, digest"
    op.execute(f"INSERT INTO usage ({columns}) {ordered}")
    op.execute("DROP TABLE temp.usage_before")
    op.create_index("ix_usage_last_used_at", "usage", ["namespace_id", "subject", "last_used_at"])

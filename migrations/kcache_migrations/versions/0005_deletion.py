"""Nothing is deleted silently: rows in quarantine, and on Postgres deletion only through the function.

Nobody is a member of the role that owns the function any more.

Revision ID: 0005
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
)

from kcache_migrations.collector import JOIN, release_statement

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

#: An administrator may migrate the tables of the servers' role: the new ones belong to it too.
_GIVE = """
DO $$
DECLARE
    owner regrole := (SELECT relowner FROM pg_class WHERE oid = 'kernels'::regclass);
BEGIN
    EXECUTE format('ALTER TABLE quarantined_rows OWNER TO %s', owner);
    EXECUTE format('ALTER TABLE quarantined_blobs OWNER TO %s', owner);
END $$
"""


def upgrade() -> None:
    """Add two tables; let the servers call the function that deletes, and end their membership."""
    op.create_table(
        "quarantined_rows",
        Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
        Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False),
        Column("subject", Text, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("problem", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("content", Text, nullable=False),
        CheckConstraint("length(digest) = 32", name="digest"),
        Index("ix_quarantined_rows_namespace_id", "namespace_id", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "quarantined_blobs",
        Column("row_id", BigInteger, ForeignKey("quarantined_rows.id"), nullable=False),
        Column("artifact_id", BigInteger, ForeignKey("artifacts.id"), nullable=False),
        PrimaryKeyConstraint("row_id", "artifact_id"),
        Index("ix_quarantined_blobs_artifact_id", "artifact_id"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_GIVE)
        op.execute(release_statement())


def downgrade() -> None:
    """Forget the quarantine; make the user who migrates a member: servers of the revision before are."""
    op.drop_table("quarantined_blobs")
    op.drop_table("quarantined_rows")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(JOIN)

"""What explaining a miss asks for: specs by size, kernels by key, and ingredients and failures for people.

Revision ID: 0002
"""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from alembic import op

from kcache_migrations.views import hexadecimal, iso_time

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

#: No table is rebuilt: its triggers stay.
_INDEXES = {
    "ix_specs_text_size": ("specs", ["namespace_id", "text_size"]),
    "ix_kernels_key": ("kernels", ["namespace_id", "key"]),
}


def upgrade() -> None:
    """Add indexes and views; rows stay as they are."""
    for name, (table, columns) in _INDEXES.items():
        op.create_index(name, table, columns)
    for name, select in _views(op.get_bind().dialect.name).items():
        op.execute(f"CREATE VIEW {name} AS {select}")


def downgrade() -> None:
    """Take them away again."""
    for name in _views(op.get_bind().dialect.name):
        op.execute(f"DROP VIEW {name}")
    for name, (table, _) in _INDEXES.items():
        op.drop_index(name, table)


def _views(dialect: str) -> dict[str, str]:
    def hexa(column: str, name: str = "") -> str:
        return f"{hexadecimal(dialect, column)} AS {name or column.split('.')[-1]}"

    def time(column: str) -> str:
        return f"{iso_time(dialect, column)} AS {column.split('.')[-1]}"

    return {
        "v_key_ingredients": f"""
            SELECT n.name AS namespace, k.epoch, k.key, k.id AS kernel_id, {hexa("k.kernel_digest")},
                   i.position, i.name, i.value, {time("k.created_at")}
            FROM kernel_ingredients i
            JOIN kernels k ON k.id = i.kernel_id
            JOIN namespaces n ON n.id = k.namespace_id""",
        "v_key_differences": f"""
            SELECT n.name AS namespace, a.key, a.id AS kernel_id, b.id AS other_id,
                   {hexa("a.kernel_digest")}, {hexa("b.kernel_digest", "other_digest")},
                   a.epoch, b.epoch AS other_epoch, i.position, i.name, i.value, j.value AS other_value
            FROM kernels a
            JOIN namespaces n ON n.id = a.namespace_id
            JOIN kernels b ON b.namespace_id = a.namespace_id AND b.key = a.key AND b.id <> a.id
            JOIN kernel_ingredients i ON i.kernel_id = a.id
            LEFT JOIN kernel_ingredients j ON j.kernel_id = b.id AND j.name = i.name
            WHERE j.value IS NULL OR j.value <> i.value""",
        "v_failures": f"""
            SELECT n.name AS namespace, t.epoch, {hexa("t.kernel_digest")}, t.reason, t.stage, t.diagnostic,
                   t.count, {time("t.first_at")}, {time("t.last_at")}, {time("t.expires_at")}
            FROM failures t JOIN namespaces n ON n.id = t.namespace_id""",
    }

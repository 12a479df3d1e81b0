"""Alembic's environment: runs on the connection that it is given, inside the caller's transaction.

The caller has begun that transaction and commits it: a migration is applied whole or not at all.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, MetaData

from kcache_migrations.naming import NAMING_CONVENTION


def _run() -> None:
    attributes = context.config.attributes
    connection: Connection = attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=MetaData(naming_convention=NAMING_CONVENTION),
        render_as_batch=True,
        transactional_ddl=False,
    )
    context.run_migrations()


_run()

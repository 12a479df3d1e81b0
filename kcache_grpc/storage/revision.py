"""The schema revision that a store must have, and the command to run when it has another."""

from __future__ import annotations

import shlex

from kcache_grpc.storage.errors import SchemaMismatch
from kcache_grpc.storage.schema import SCHEMA_REVISION

#: For a schema from the future.
UPGRADE_COMMAND = "pip install --upgrade kcache-grpc"


def migrate_command(url: str) -> str:
    """What to type to migrate ``url``."""
    return f"kcache migrate --db {shlex.quote(url)}"


def reject_other_revision(current: str, url: str) -> None:
    """Raises ``SchemaMismatch`` unless ``current`` is this version's revision. Revisions sort by age."""
    if current != SCHEMA_REVISION:
        newer = current > SCHEMA_REVISION
        raise SchemaMismatch(current, SCHEMA_REVISION, UPGRADE_COMMAND if newer else migrate_command(url))

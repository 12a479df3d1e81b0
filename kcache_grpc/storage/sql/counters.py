"""Keys: a spec's row and its namespace's counter advance together, or neither does.

Keys are never given twice and leave no gap: the counter's row is locked from the moment it is read until the
commit, and who loses the race for a digest leaves it untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from kcache_grpc.storage.schema import key_counters, specs
from kcache_grpc.storage.sql.part import insert_once

_HERE = key_counters.c.namespace_id == bindparam("ns")
_LAST = select(key_counters.c.last_key).where(_HERE)
_TAKEN = select(specs.c.key).where(
    specs.c.namespace_id == bindparam("ns"), specs.c.spec_digest == bindparam("digest")
)
_INSERT = insert_once(specs)
_ADVANCE = update(key_counters).where(_HERE).values(last_key=bindparam("advanced"))


def add_alone(connection: Connection, values: Mapping[str, Any]) -> int | None:
    """``Database.add_spec`` for a database that has one writer at a time, which the caller is."""
    name = {"ns": values["namespace_id"]}
    last = connection.execute(_LAST, name).scalar()
    if last is None or connection.execute(_TAKEN, {**name, "digest": values["spec_digest"]}).first():
        return None
    key = int(last) + 1
    connection.execute(_INSERT, {**values, "key": key})
    connection.execute(_ADVANCE, {**name, "advanced": key})
    return key

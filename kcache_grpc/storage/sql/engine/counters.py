"""Keys: the rows of specs and their namespace's counter advance together, or none of them does.

Keys are never given twice and leave no gap: the counter's row is locked from the moment it is read until the
commit, and who loses the race for a digest leaves it untouched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from kcache_grpc.storage.schema import key_counters, specs
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, Probe

_HERE = key_counters.c.namespace_id == bindparam("ns")
#: On SQLite, which has one writer at a time, the transaction is the lock.
_LAST = select(key_counters.c.last_key).where(_HERE).with_for_update()
_TAKEN = Probe(
    select(specs.c.spec_digest).where(specs.c.namespace_id == bindparam("ns")), specs.c.spec_digest
)
_INSERT = BulkInsert(specs, specs.columns.keys())
_ADVANCE = update(key_counters).where(_HERE).values(last_key=bindparam("advanced"))


def add_together(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[bytes, int]:
    """``Database.add_specs``: lock, look again, insert, advance."""
    name = {"ns": rows[0]["namespace_id"]}
    last = connection.execute(_LAST, name).scalar()
    if last is None:
        return {}
    digests = [row["spec_digest"] for row in rows]
    numbered = {row.spec_digest for row in _TAKEN.rows(connection, name, digests)}
    keys = count(last + 1)
    added = [{**row, "key": next(keys)} for row in rows if row["spec_digest"] not in numbered]
    if added:
        _INSERT.execute(connection, added)
        connection.execute(_ADVANCE, {**name, "advanced": last + len(added)})
    return {row["spec_digest"]: row["key"] for row in added}

"""``sql.counters`` for one spec in one statement, which Postgres has.

The lock does not last for ways to the database and back. Who had to wait for it sees the counter as it is
then; specs that the statement does not see yet are conflicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert

from kcache_grpc.storage.schema import key_counters, specs

#: All of a row but its key.
_COLUMNS = [column for column in specs.columns if column.name != "key"]

_COUNTER = (
    select(key_counters.c.last_key)
    .where(key_counters.c.namespace_id == bindparam("ns"))
    .with_for_update()
    .cte("counter")
    .prefix_with("MATERIALIZED", dialect="postgresql")
)
_ADDED = (
    insert(specs)
    .from_select(
        [specs.c.key, *_COLUMNS],
        select(
            _COUNTER.c.last_key + literal_column("1"),
            *(bindparam(f"new_{column.name}", type_=column.type) for column in _COLUMNS),
        ),
        include_defaults=False,
    )
    .on_conflict_do_nothing(index_elements=[specs.c.namespace_id, specs.c.spec_digest])
    .returning(specs.c.namespace_id, specs.c.key)
    .cte("added")
)
_ADD = (
    update(key_counters)
    .where(key_counters.c.namespace_id == _ADDED.c.namespace_id)
    .values(last_key=_ADDED.c.key)
    .returning(_ADDED.c.key)
)


def add_at_once(connection: Connection, row: Mapping[str, Any]) -> dict[bytes, int]:
    """``Database.add_specs`` for one row."""
    named = {f"new_{name}": value for name, value in row.items()}
    key = connection.execute(_ADD, {**named, "ns": row["namespace_id"]}).scalar()
    return {} if key is None else {row["spec_digest"]: int(key)}

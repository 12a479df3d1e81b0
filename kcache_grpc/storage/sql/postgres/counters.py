"""``engine/counters.py`` in one statement, which uses a data-modifying CTE of Postgres.

The lock of the counter is not held across round trips. A transaction that waited for it reads the current
counter; specs that the statement does not see yet are conflicts. A conflict of one among several specs would
leave a gap: the statement is then rolled back, and ``add_together`` runs instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, literal_column, select, text, true, update
from sqlalchemy.dialects.postgresql import insert

from kcache_grpc.storage.schema import key_counters, specs
from kcache_grpc.storage.sql.engine.bulk import as_json, cells, rows_of_json
from kcache_grpc.storage.sql.engine.counters import add_together

#: All of a row but its key.
_COLUMNS = [column.name for column in specs.columns if column.name != "key"]

_COUNTER = (
    select(key_counters.c.last_key)
    .where(key_counters.c.namespace_id == bindparam("ns"))
    .with_for_update()
    .cte("counter")
    .prefix_with("MATERIALIZED", dialect="postgresql")
)


def _add(rows: Any) -> Select[int, bytes]:
    """Insert what ``rows`` selects, the key first, and advance the counter to the last one."""
    added = (
        insert(specs)
        .from_select(["key", *_COLUMNS], rows, include_defaults=False)
        .on_conflict_do_nothing(index_elements=[specs.c.namespace_id, specs.c.spec_digest])
        .returning(specs.c.namespace_id, specs.c.key, specs.c.spec_digest)
        .cte("added")
    )
    last = select(added.c.namespace_id, func.max(added.c.key).label("key")).group_by(added.c.namespace_id)
    latest = last.subquery("latest")
    advanced = (
        update(key_counters)
        .where(key_counters.c.namespace_id == latest.c.namespace_id)
        .values(last_key=latest.c.key)
        .cte("advanced")
    )
    return select(added.c.key, added.c.spec_digest).add_cte(advanced)


_GIVEN = [bindparam(f"new_{name}", type_=specs.c[name].type) for name in _COLUMNS]
_ADD_ONE = _add(select(_COUNTER.c.last_key + literal_column("1"), *_GIVEN))
_ADD_ALL = _add(
    select(_COUNTER.c.last_key + literal_column("given.ordinality"), *(cells("given", _COLUMNS)))
    .select_from(_COUNTER.join(rows_of_json(specs, "given"), true()))
    .order_by(text("given.ordinality"))
)


def add_at_once(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[bytes, int]:
    """``Database.add_specs``."""
    name = {"ns": rows[0]["namespace_id"]}
    if len(rows) == 1:
        values = {f"new_{column}": value for column, value in rows[0].items()}
        return _keys(connection.execute(_ADD_ONE, {**name, **values}))
    connection.exec_driver_sql("SAVEPOINT before_specs")
    added = _keys(connection.execute(_ADD_ALL, {**name, "rows": as_json(rows)}))
    if len(added) == len(rows):
        return added
    connection.exec_driver_sql("ROLLBACK TO before_specs")
    return add_together(connection, rows)


def _keys(added: Any) -> dict[bytes, int]:
    return {row.spec_digest: row.key for row in added}

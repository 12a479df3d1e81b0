"""Plans in a large store: whatever is asked, no statement reads a table from end to end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event

from benchmarks.scale import fill, questions
from kcache_grpc.storage import Store, open_store
from tests.postgres import PostgresServer
from tests.storage.inside import hurry

#: Specs; five times as many mappings. The benchmark (``python -m benchmarks.scale``) does 200,000.
SIZES = [2000, pytest.param(200_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
#: Tables of a few rows, whatever the store holds; tables that are empty here; what a limit cut off before.
SMALL = (
    "CONSTANT",
    "looked_at",
    "mapping_constants",
    "constants",
    "quarantine",
    "failures",
    "leases",
    "programs",
    "key_aliases",
    "namespaces",
    "store_meta",
    "key_counters",
    "quotas",
    "pins",
    "disowned_toolchains",
    "gc_permits",
)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path, postgres_server: PostgresServer) -> Iterator[Store]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/store.sqlite" if sqlite else postgres_server.create()
    with open_store(url, migrate=True) as opened:
        if sqlite:
            hurry(opened)
        yield opened
    if not sqlite:
        postgres_server.drop(url)


@pytest.mark.parametrize("count", SIZES)
def test_no_statement_scans_a_large_table(store, count):
    ns = fill(store, count)
    engine = store._db._engine
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    # In a small table Postgres scans even where an index would do.
    costs = ["SET enable_seqscan = off"] if engine.dialect.name == "postgresql" and count < 100_000 else []
    plans: dict[tuple[str, str], str] = {}
    asking = [""]

    def look(connection, cursor, statement, parameters, context, many) -> None:
        planned = statement.split(None, 1)[0].upper() in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
        if many or not planned or (asking[0], statement) in plans:
            return
        plans[asking[0], statement] = ""
        other = connection.connection.cursor()
        for setting in costs:
            other.execute(setting)
        other.execute(explain + statement, parameters)
        plans[asking[0], statement] = "\n".join(str(row[-1]) for row in other.fetchall())
        for setting in costs:
            other.execute(setting.replace("off", "on"))
        other.close()

    event.listen(engine, "before_cursor_execute", look)
    for name, ask in questions(store, ns, count).items():
        asking[0] = name
        ask(3)
    event.remove(engine, "before_cursor_execute", look)
    assert len(plans) > 40
    bad = {}
    for (name, statement), plan in plans.items():
        steps = [step.strip() for step in plan.splitlines()]
        scans = [step for step in steps if step.startswith("SCAN") or "Seq Scan on" in step]
        scans = [
            step
            for step in scans
            if not any(f" {table}" in step for table in (*SMALL, "CONSTANT", "looked_at"))
        ]
        if scans:
            bad[name] = (scans, statement)
    assert not bad

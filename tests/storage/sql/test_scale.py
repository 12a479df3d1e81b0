"""Plans in a large store: whatever is asked, no statement reads a table from end to end, or sorts much."""

from __future__ import annotations

import faulthandler
import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from benchmarks.services.filling import fill, vacuum
from benchmarks.services.questions import questions
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.audit.contract import SPAN
from kcache_grpc.storage.sql.engine.database import Database
from kcache_grpc.storage.sql.sqlite.engine import driver
from tests.postgres import PostgresServer
from tests.storage.inside import database, hurry, writer

#: Specs; five times as many mappings and audit events.
SIZES = [2000, pytest.param(200_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
#: Tables of a few rows, whatever the store holds; tables that are empty here; what a limit cut off before.
SMALL = (
    "CONSTANT",
    "looked_at",
    "candidates",
    "matching",
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
    "audit_writers",
    "audit_seals",
    "audit_checkpoints",
    "audit_days",
    "names",
    "subjects",
    "v_",
)
#: Rows that a step of a plan may come across: what a page of the audit log looks at, and a little.
MOST_ROWS = SPAN + 100
#: Rows that are sorted for a page or a step.
MOST_SORTED = 200
_FOR_SMALL = ("seqscan", "bitmapscan", "sort")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path, postgres_server: PostgresServer) -> Iterator[Store]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/store.sqlite" if sqlite else postgres_server.create_migrated()
    with open_store(url, migrate=True) as opened:
        if sqlite:
            hurry(opened)
        yield opened
    if not sqlite:
        postgres_server.drop(url)


class Plans:
    """Looks at the plan of each statement just before it runs."""

    def __init__(self, store: Store, count: int) -> None:
        engine = store._db._engine  # pyright: ignore[reportAttributeAccessIssue]
        self._engine = engine
        self._sqlite = engine.dialect.name == "sqlite"
        self._small = not self._sqlite and count < 100_000
        self._seen: set[tuple[str, str]] = set()
        self.bad: dict[str, Any] = {}
        self.asking = ""
        event.listen(engine, "before_cursor_execute", self._look)
        # What is prepared goes past SQLAlchemy's events.
        opened: Database = store._db  # pyright: ignore[reportAttributeAccessIssue]
        opened.read = lambda statement, values: opened.fetch(statement.select, values)
        self._ask = opened.ask
        opened.ask = self._look_and_ask

    def __len__(self) -> int:
        return len(self._seen)

    def _look(self, connection, cursor, statement, parameters, context, many) -> None:
        verb = statement.split(None, 1)[0].upper()
        name = (self.asking, statement)
        if many or name in self._seen or verb not in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
            return
        self._seen.add(name)
        other = connection.connection.cursor()
        bad = (
            self._sqlite_plan(other, statement, parameters)
            if self._sqlite
            else self._postgres_plan(other, verb, statement, parameters)
        )
        other.close()
        if bad:
            self.bad.setdefault(self.asking, []).append((bad, statement))

    def _look_and_ask(self, statement, values):
        """The statement of an event loop, which is planned once for all values."""
        text, _, _ = statement.numbered(PGDialect_asyncpg())
        if (self.asking, text) not in self._seen:
            self._seen.add((self.asking, text))
            with self._engine.connect() as connection:
                cursor = connection.connection.cursor()
                bad = self._plan_of(cursor, f"EXPLAIN (FORMAT JSON, GENERIC_PLAN) {text}", None)
                cursor.close()
            if bad:
                self.bad.setdefault(self.asking, []).append((bad, text))
        return self._ask(statement, values)

    def _sqlite_plan(self, cursor, statement, parameters) -> list[str]:
        steps = cursor.execute("EXPLAIN QUERY PLAN " + statement, parameters).fetchall()
        return [
            step
            for *_, step in steps
            if (step.startswith("SCAN") and not any(f" {table}" in step for table in SMALL))
            or (step.endswith("FOR ORDER BY") and self._is_ordered and "looked_at" not in statement)
        ]

    def _postgres_plan(self, cursor, verb, statement, parameters) -> list[Any]:
        explain = "EXPLAIN (FORMAT JSON, ANALYZE) " if verb == "SELECT" else "EXPLAIN (FORMAT JSON) "
        return self._plan_of(cursor, explain + statement, parameters)

    def _plan_of(self, cursor, explain: str, parameters) -> list[Any]:
        # In a small table Postgres scans and sorts even where an index would do.
        for node in _FOR_SMALL if self._small else ():
            cursor.execute(f"SET enable_{node} = off")
        cursor.execute(explain, parameters)
        plan_json = cursor.fetchall()[0][0]
        for node in _FOR_SMALL if self._small else ():
            cursor.execute(f"SET enable_{node} = on")
        plan = (json.loads(plan_json) if isinstance(plan_json, str) else plan_json)[0]["Plan"]
        return [node for node in _nodes(plan) if self._is_bad(node)]

    def _is_bad(self, node: dict[str, Any]) -> bool:
        if node["Node Type"] == "Seq Scan":
            return node["Relation Name"] not in SMALL
        rows = sum(
            node.get(name, 0)
            for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        sorts = node["Node Type"] == "Sort" and self._is_ordered
        return rows > MOST_ROWS or (sorts and node["Rows Below"] > MOST_SORTED)

    @property
    def _is_ordered(self) -> bool:
        """Questions whose answers come in the order of an index, so that nothing is sorted."""
        return self.asking.startswith(("audit", "gc ")) and self.asking not in SORTED


#: Short times are found by the index of times, and answered in the order of ids.
SORTED = (
    "audit: short time",
    "audit view: job",
    "audit view: users of a kernel",
    "audit view: toolchain",
    "audit view: time saved",
)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    below = plan.get("Plans", ())
    node = {name: value for name, value in plan.items() if name != "Plans"}
    yield node | {"Rows Below": max((each.get("Actual Rows", 0) for each in below), default=0)}
    for each in below:
        yield from _nodes(each)


def test_ten_times_the_store_takes_sqlite_hardly_more_steps(tmp_path) -> None:
    steps = {count: _steps(tmp_path, count) for count in (300, 3000)}
    grown = {name: (steps[300][name], many) for name, many in steps[3000].items()}
    assert {name: each for name, each in grown.items() if each[1] > 2.5 * each[0] + 1000} == {}


def _steps(folder, count: int) -> dict[str, int]:
    """Instructions of SQLite's machine, by question, in a store of so many specs."""
    with open_store(f"sqlite:///{folder}/{count}.sqlite", migrate=True) as store:
        hurry(store)
        ns = fill(store, count)
        asked = questions(store, ns, count)
        asked["count specs"].ask(0)
        taken = [0]

        def tick() -> None:
            taken[0] += 100

        for connection in (writer(store), *map(driver, database(store)._readers)):
            connection.set_progress_handler(tick, 100)
        counts = dict[str, int]()
        for name, question in asked.items():
            taken[0] = 0
            for number in range(3):
                question.ask(number)
            counts[name] = taken[0]
        return counts


@pytest.mark.parametrize("count", SIZES)
def test_no_statement_scans_a_large_table(store: Store, count: int) -> None:
    if count > 2000:
        # Filling takes longer, on a busy machine, than any other test may: the mark above is its limit.
        faulthandler.cancel_dump_traceback_later()
    ns = fill(store, count)
    vacuum(store)
    asked = questions(store, ns, count)
    plans = Plans(store, count)
    for name, question in asked.items():
        plans.asking = name
        question.ask(3)
    assert len(plans) > 60
    assert not plans.bad

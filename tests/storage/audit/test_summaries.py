"""Summaries of the audit log are what its events come to, whatever happens, on both databases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from kcache_grpc.model.signing import Signer
from kcache_grpc.service.audit.retention import Retention
from kcache_grpc.service.audit.sealer import Sealer
from kcache_grpc.storage import migrate, open_store
from kcache_grpc.storage.records import AuditEvent, Namespace
from kcache_grpc.storage.sql.engine.journal import insert_events
from kcache_grpc.storage.sql.store import SqlStore
from kcache_grpc.storage.transfer import move_store
from kcache_migrations import LOCATION
from tests.postgres import PostgresServer
from tests.storage.conftest import Opener
from tests.storage.drafts import Time, kernel, program, sha256, spec

DAY = 86_400_000_000
START = 1_767_225_600_000_000  # 2026-01-01
DAYS = "SELECT namespace, day, served, saved_us, compiled, compile_us FROM v_time_saved"
MISSES = "SELECT * FROM v_misses"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, openers: dict[str, Opener], tmp_path: Path) -> Iterator[SqlStore]:
    with openers[request.param](tmp_path, Time()) as opened:
        assert isinstance(opened, SqlStore)
        yield opened


@pytest.fixture
def ns(store: SqlStore) -> Namespace:
    return store.get_or_create_namespace("team")


def ask(store: SqlStore, query: str) -> list[Any]:
    return [tuple(row) for row in store._db.fetch(text(query))]  # pyright: ignore[reportPrivateUsage]


def change(store: SqlStore, statement: str) -> None:
    store._db.transact(lambda c: c.execute(text(statement)).rowcount)  # pyright: ignore[reportPrivateUsage]


def miss(number: int, actor: str = "ada", **more: Any) -> AuditEvent:
    return AuditEvent("miss", "need_program", actor=actor, program_digest=program(number), **more)


def downgrade(store: SqlStore) -> None:
    """To the schema before summaries."""
    engine = store._db._engine  # pyright: ignore
    config = Config()
    config.set_main_option("script_location", str(LOCATION))
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("BEGIN")
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")
        connection.exec_driver_sql("COMMIT")


def any_event(chance: random.Random) -> AuditEvent:
    return AuditEvent(
        chance.choice(["serve", "serve", "publish", "miss", "miss", "store"]),
        chance.choice(["hit", "need_compile"]),
        actor=chance.choice(["ada", "bob"]),
        job=chance.choice(["", "train"]),
        target=chance.choice(["x86-64-v3", "x" * 300]),
        program_digest=chance.choice([None, program(1), program(2)]),
        key=chance.choice([None, 1]),
        kernel_digest=kernel(1).kernel.kernel_digest,
        request_count=chance.choice([1, 10]),
        duration_us=chance.randrange(1000),
        saved_us=chance.randrange(1000),
        at=START + chance.randrange(3 * DAY),
    )


def test_they_are_the_sums_of_the_events(store: SqlStore, ns: Namespace) -> None:
    chance = random.Random(7)
    events = [any_event(chance) for _ in range(300)]
    for begin in range(0, 300, 50):
        store.append_audit(ns, events[begin : begin + 49])
        store.append_audit(ns, events[begin + 49 : begin + 50])
    assert store.wrong_summaries() == []
    served = Counter[str]()
    for event in events:
        if event.kind == "serve":
            served[f"2026-01-0{1 + (event.at - START) // DAY}"] += event.request_count
    assert {day: count for _, day, count, *_ in ask(store, DAYS)} == served
    missed = [event for event in events if event.kind == "miss" and event.program_digest == program(1)]
    missed = [event for event in missed if (event.outcome, event.target) == ("hit", "x86-64-v3")]
    where = f"WHERE program_digest = '{program(1).hex()}' AND reason = 'hit' AND target = 'x86-64-v3'"
    assert ask(store, f"SELECT misses, last_actor, key FROM v_misses {where}") == [
        (sum(event.request_count for event in missed), max(missed, key=lambda each: each.at).actor, 1)
    ]
    assert {len(target) for (target,) in ask(store, "SELECT target FROM v_misses")} == {9, 100}


def test_writers_at_the_same_time_all_count(store: SqlStore, ns: Namespace) -> None:
    def append(writer: int) -> None:
        chance = random.Random(writer)
        for _ in range(8):
            numbers = chance.sample(range(6), 6)
            store.append_audit(ns, [*(miss(number) for number in numbers), any_event(chance)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(append, range(6)))
    assert store.wrong_summaries() == []
    names = ", ".join(f"'{program(number).hex()}'" for number in (0, 3, 4, 5))
    asked = f"SELECT misses FROM v_misses WHERE reason = 'need_program' AND program_digest IN ({names})"
    assert ask(store, asked) == [(48,)] * 4


def test_what_is_rolled_back_is_not_summed(store: SqlStore, ns: Namespace) -> None:
    store.put_spec(ns, spec(0))
    event = AuditEvent("publish", duration_us=5, at=START)
    for _ in range(2):
        store.publish_kernel(ns, kernel(1), event=event)
    assert ask(store, DAYS) == [("team", "2026-01-01", 0, 0, 1, 5)]
    assert store.wrong_summaries() == []


def test_numbers_of_any_size_are_appended(store: SqlStore, ns: Namespace) -> None:
    most = 2**63 - 1
    for batch in (1, 2):
        store.append_audit(ns, [AuditEvent("serve", saved_us=most, request_count=most, at=START)] * batch)
        store.append_audit(ns, [miss(1, request_count=most)] * batch)
    assert [row[2:4] for row in ask(store, DAYS)] == [(most, most)]
    assert ask(store, "SELECT misses FROM v_misses") == [(most,)]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE audit_days SET saved_us = saved_us + 1", "the day 20454"),
        ("UPDATE audit_days SET compiled = 7", "the day 20454"),
        ("DELETE FROM audit_days", "None served"),
        ("UPDATE audit_days SET day = 5", "the day 5"),
        ("UPDATE audit_misses SET misses = misses - 1", f"misses of program {program(1).hex()}"),
        ("UPDATE audit_misses SET misses = misses + 1", "audit_misses has 2, the events 1"),
        ("DELETE FROM audit_misses", "audit_misses has None, the events 1"),
    ],
)
def test_a_summary_that_was_changed_is_told(
    store: SqlStore, ns: Namespace, statement: str, told: str
) -> None:
    store.append_audit(ns, [AuditEvent("serve", saved_us=5, at=START), miss(1)])
    assert store.wrong_summaries() == []
    change(store, statement)
    assert any(told in each for each in store.wrong_summaries())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE audit_days SET saved_us = saved_us - 1, served = served + 5",
        "DELETE FROM audit_days",
        "UPDATE audit_misses SET misses = misses * 2",
        "DELETE FROM audit_misses",
    ],
)
def test_they_are_made_anew(store: SqlStore, damage: str) -> None:
    chance = random.Random(5)
    namespaces = [store.get_or_create_namespace(name) for name in ("team", "other")]
    for _ in range(30):
        store.append_audit(chance.choice(namespaces), [any_event(chance), any_event(chance)])
    before = [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)]
    change(store, damage)
    assert store.wrong_summaries()
    store.rebuild_summaries()
    assert store.wrong_summaries() == []
    assert [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)] == before
    store.append_audit(namespaces[0], [miss(1), AuditEvent("serve", at=START)])
    assert store.wrong_summaries() == []


def test_made_anew_they_know_of_pruned_events(store: SqlStore, ns: Namespace) -> None:
    sealer = Sealer(store, Signer.generate())
    sealer.begin()
    store.append_audit(ns, [AuditEvent("serve", saved_us=5, at=START), miss(1, at=START), miss(2, at=START)])
    sealer.seal_own()
    store.append_audit(ns, [AuditEvent("serve", saved_us=7, at=START + 1), miss(2, at=START + DAY)])
    later = [AuditEvent("serve", saved_us=3, at=START + 2 * DAY), miss(3, at=START + 2 * DAY)]
    store.append_audit(ns, later)
    assert Retention(store, sealer._signer).prune(before=2**62)  # pyright: ignore[reportPrivateUsage]
    before = [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)]
    change(store, f"DELETE FROM audit_days WHERE day = {(START + 2 * DAY) // DAY}")
    change(store, "DELETE FROM audit_misses WHERE last_actor = 'ada' AND misses = 1")
    assert store.wrong_summaries()
    store.rebuild_summaries()
    assert [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)] == before
    assert store.wrong_summaries() == []
    store.rebuild_summaries()
    assert [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)] == before


def test_they_outlive_events_that_are_pruned(store: SqlStore, ns: Namespace) -> None:
    sealer = Sealer(store, Signer.generate())
    sealer.begin()
    store.append_audit(ns, [AuditEvent("serve", saved_us=5, at=START), miss(1, at=START), miss(2, at=START)])
    sealer.seal_own()
    store.append_audit(ns, [AuditEvent("serve", saved_us=7, at=START + 1), miss(2, at=START + DAY)])
    assert Retention(store, sealer._signer).prune(before=2**62)  # pyright: ignore[reportPrivateUsage]
    assert ask(store, DAYS) == [("team", "2026-01-01", 2, 12, 0, 0)]
    assert ask(store, "SELECT program_digest, misses FROM v_misses") == [(program(2).hex(), 2)]
    assert store.wrong_summaries() == []
    change(store, "UPDATE audit_days SET saved_us = 6")
    assert len(store.wrong_summaries()) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_events_of_an_older_schema_are_summed(
    kind: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create() if kind == "postgres" else f"sqlite:///{tmp_path}/store.sqlite"
    chance = random.Random(3)
    with open_store(url, migrate=True, clock=Time().clock) as store:
        assert isinstance(store, SqlStore)
        namespaces = [store.get_or_create_namespace(name) for name in ("team", "other")]
        for _ in range(60):
            store.append_audit(chance.choice(namespaces), [any_event(chance), any_event(chance)])
        store.put_spec(namespaces[0], spec(0))
        store.publish_kernel(namespaces[0], kernel(1))
        usage = sorted(ask(store, "SELECT subject, digest, last_used_at FROM usage"))
        before = [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)]
        downgrade(store)
        assert len(ask(store, MISSES)) > 1
    migrate(url)
    with open_store(url, clock=Time().clock) as store:
        assert isinstance(store, SqlStore)
        assert [sorted(map(str, ask(store, query))) for query in (DAYS, MISSES)] == before
        assert sorted(ask(store, "SELECT subject, digest, last_used_at FROM usage")) == usage
        assert store.wrong_summaries() == []
    if kind == "postgres":
        postgres_server.drop(url)


def test_events_that_servers_append_beside_the_migration_are_summed(postgres_server: PostgresServer) -> None:
    url = postgres_server.create()
    with open_store(url, migrate=True, clock=Time().clock) as store, ThreadPoolExecutor(1) as pool:
        assert isinstance(store, SqlStore)
        ns = store.get_or_create_namespace("team")
        downgrade(store)

        def late(connection: Connection) -> Future[None]:
            insert_events(connection, ns, [miss(1), AuditEvent("serve", at=START)], "w", START)
            migration = pool.submit(migrate, url)
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'audit_events'::regclass"
            while not connection.execute(text(waits)).first():
                assert not migration.done()
            return migration

        store._db.transact(late).result(240)  # pyright: ignore[reportPrivateUsage]
        assert [row[2] for row in ask(store, DAYS)] == [1]
        assert store.wrong_summaries() == []
    postgres_server.drop(url)


def test_they_move_with_the_store(tmp_path: Path, postgres_server: PostgresServer) -> None:
    source, target = f"sqlite:///{tmp_path}/source.sqlite", postgres_server.create()
    with open_store(source, migrate=True, clock=Time().clock) as store:
        assert isinstance(store, SqlStore)
        ns = store.get_or_create_namespace("team")
        store.append_audit(ns, [AuditEvent("serve", saved_us=5, at=START), miss(1), miss(2)])
        # As retention leaves them: more than the events come to.
        change(store, "UPDATE audit_days SET served = 100")
        change(store, f"UPDATE audit_misses SET misses = 9 WHERE program_digest = x'{program(1).hex()}'")
        before = [sorted(ask(store, query), key=str) for query in (DAYS, MISSES)]
    assert move_store(source, target).rows["audit_misses"] == 2
    with open_store(target, clock=Time().clock) as store:
        assert isinstance(store, SqlStore)
        assert [sorted(ask(store, query), key=str) for query in (DAYS, MISSES)] == before
        store.append_audit(ns, [miss(1)])
        where = f"WHERE program_digest = '{program(1).hex()}'"
        assert ask(store, f"SELECT misses FROM v_misses {where}") == [(10,)]
    postgres_server.drop(target)


def test_empty_ones_move_too(tmp_path: Path) -> None:
    """Retention forgets misses from before the last event that it removed; other writers' events stay."""
    source, target = (f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("source", "target"))
    with open_store(source, migrate=True, clock=Time().clock) as store:
        assert isinstance(store, SqlStore)
        store.append_audit(store.get_or_create_namespace("team"), [miss(1)])
        change(store, "DELETE FROM audit_misses")
    assert move_store(source, target).rows["audit_misses"] == 0
    with open_store(target, clock=Time().clock) as store:
        assert isinstance(store, SqlStore)
        assert ask(store, MISSES) == []


def test_questions_read_no_whole_table(sqlite: SqlStore) -> None:
    """SQLite's plans need no rows; those of Postgres are asserted in ``test_scale``."""
    for query in (
        f"SELECT * FROM v_kernel_users WHERE namespace = 'team' AND kernel_digest = '{sha256('x').hex()}'",
        f"SELECT * FROM v_toolchain_artifacts WHERE toolchain = '{sha256('x').hex()}'",
        "SELECT * FROM v_misses WHERE namespace = 'team' ORDER BY misses DESC LIMIT 20",
        "SELECT * FROM v_job_kernels WHERE namespace = 'team' AND job = 'x'",
    ):
        steps = [row[-1] for row in ask(sqlite, f"EXPLAIN QUERY PLAN {query}")]
        assert not [step for step in steps if step.startswith("SCAN") and " v_" not in step]

"""A call that fails, at whatever statement or instruction, has changed nothing and can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event

from kcache_grpc.storage import Store
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.records import AuditEvent, Failure, Lease, Namespace, UsageDelta
from tests.storage.drafts import blob, graph, kernel, mapping, sha256, spec
from tests.storage.inside import assert_sound, contents, database, hurry, path_of, writer


class Injected(Exception):
    """Raised in place of a statement."""


def fail_before(store: Store, statement: int) -> Callable[[], None]:
    """Fail at the ``statement``-th statement from now on, from 0, on the writing connection; what ends it."""
    engine, connection = database(store)._engine, database(store)._writer
    seen = 0

    def count(conn: object, *_: object) -> None:
        nonlocal seen
        if conn is connection:
            seen += 1
            if seen == statement + 1:
                raise Injected

    event.listen(engine, "before_cursor_execute", count)
    return lambda: event.remove(engine, "before_cursor_execute", count)


Call = Callable[[Store, Namespace], Any]
LEASED = kernel(2).kernel.kernel_digest

CALLS: dict[str, Call] = {
    "namespace": lambda store, ns: store.get_or_create_namespace("new"),
    "epoch": lambda store, ns: store.raise_epoch(ns),
    "spec": lambda store, ns: store.put_spec(ns, spec(5)),
    "mapping": lambda store, ns: store.put_mapping(ns, mapping(5, 1, [sha256(b"weights")])),
    "graph": lambda store, ns: store.put_graph(ns, graph(5, [b"a", b"b", b"a"]), AuditEvent("store")),
    "constants": lambda store, ns: store.put_constants(ns, [blob(b"a"), blob(bytes(3 << 20))]),
    "program": lambda store, ns: store.put_program(ns, sha256("program"), "linalg", b"body"),
    "alias": lambda store, ns: store.add_alias(ns, 2, 1),
    "publish": lambda store, ns: store.publish_kernel(
        ns,
        kernel(2, so=bytes(2 << 20), extra=[("asm", b""), ("mlir", b"module")]),
        Lease(ns, LEASED, "holder", 1),
        AuditEvent("publish"),
    ),
    "repair": lambda store, ns: store.publish_kernel(ns, kernel(1), event=AuditEvent("publish")),
    "differing": lambda store, ns: store.publish_kernel(ns, kernel(3, so=b"other")),
    "failure": lambda store, ns: store.record_failure(
        ns, LEASED, Failure("COMPILE_FAILED", "lower", "no"), 60, Lease(ns, LEASED, "holder", 1)
    ),
    "lease": lambda store, ns: store.acquire_lease(ns, sha256("else"), "holder", 60),
    "heartbeat": lambda store, ns: store.heartbeat_lease(Lease(ns, LEASED, "holder", 1), 70),
    "stage": lambda store, ns: store.report_stage(Lease(ns, LEASED, "holder", 1), "lower"),
    "release": lambda store, ns: store.release_lease(Lease(ns, LEASED, "holder", 1)),
    "usage": lambda store, ns: store.add_usage(
        ns, [UsageDelta("kernel", sha256(str(n)), 1) for n in range(3)]
    ),
    "audit": lambda store, ns: store.append_audit(ns, [AuditEvent("serve"), AuditEvent("serve")]),
    "quarantine": lambda store, ns: store.quarantine_artifact(ns, sha256(b"weights"), "for a test"),
}


@pytest.fixture
def ns(sqlite):
    namespace = sqlite.get_or_create_namespace("default")
    sqlite.put_graph(namespace, graph(0, [b"weights"]))
    sqlite.put_spec(namespace, spec(1))
    for number in (1, 3):
        sqlite.publish_kernel(namespace, kernel(number))
    sqlite.quarantine_artifact(namespace, sha256(b"shared IR"), "for a test")
    sqlite.quarantine_artifact(namespace, sha256(b"object 1"), "for a test")
    sqlite.acquire_lease(namespace, LEASED, "holder", 60)
    hurry(sqlite)
    return namespace


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_failure_at_any_statement_leaves_nothing(sqlite, ns, name):
    call, path = CALLS[name], path_of(sqlite)
    before = contents(path)
    failures = 0
    while True:
        stop = fail_before(sqlite, failures)
        try:
            call(sqlite, ns)
            break
        except Injected:
            failures += 1
        finally:
            stop()
        assert contents(path) == before
    assert failures >= 1
    assert contents(path) != before
    assert_sound(path)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(CALLS))
def test_an_interruption_at_any_instruction_leaves_nothing(sqlite, ns, name):
    call, path = CALLS[name], path_of(sqlite)
    before = contents(path)
    connection = writer(sqlite)
    instructions = 1
    while True:
        budget = [instructions]

        def spend(budget: list[int] = budget) -> int:
            budget[0] -= 1
            return int(budget[0] == 0)

        def trace(statement: str, budget: list[int] = budget) -> None:
            if statement == "COMMIT":  # after which SQLite looks at the handler once more
                budget[0] = -1

        connection.set_progress_handler(spend, 1)
        connection.set_trace_callback(trace)
        try:
            call(sqlite, ns)
            break
        except StoreUnavailable:
            instructions = instructions * 5 // 4 + 1
        finally:
            connection.set_progress_handler(None, 0)
            connection.set_trace_callback(None)
        assert contents(path) == before
    assert contents(path) != before
    assert_sound(path)


def test_a_lost_lease_publishes_nothing(sqlite, ns):
    forged = Lease(ns, LEASED, "holder", 7)
    before = contents(path_of(sqlite))
    with pytest.raises(Exception, match="no longer holds"):
        sqlite.publish_kernel(ns, kernel(2), forged, AuditEvent("publish"))
    assert contents(path_of(sqlite)) == before

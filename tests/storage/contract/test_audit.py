"""The audit log of every store: sealed, proven, adopted, pruned; its questions find rows by an index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kcache_grpc.model.signing import Signer
from kcache_grpc.service.audit.proof import KeptHead, Verification
from kcache_grpc.service.audit.retention import Retention
from kcache_grpc.service.audit.sealer import Sealer
from kcache_grpc.storage import Store
from kcache_grpc.storage.audit.filter import parse_filter
from kcache_grpc.storage.audit.sealing import Seal
from kcache_grpc.storage.records import AuditEvent, Namespace
from kcache_grpc.storage.schema import audit_events
from kcache_grpc.storage.sql.engine.conditions import passing
from kcache_grpc.storage.sql.engine.journal import select_events
from tests.storage.conftest import Opener
from tests.storage.drafts import Time, graph, kernel, spec
from tests.storage.inside import database, path_of, raw

SIGNER = Signer.generate()
LATE = 2**62


def append(store: Store, ns: Namespace, count: int, at: int = 1000) -> None:
    store.append_audit(ns, [AuditEvent("serve", job="j", key=number + 1, at=at) for number in range(count)])


def sound(store: Store) -> list[tuple[int, int, int]]:
    """Seals, events and unsealed events of each chain, once all prove."""
    chains = Verification(store).all(overdue=LATE)
    assert not [finding for chain in chains for finding in chain.findings]
    return [(chain.seals, chain.events, chain.unsealed) for chain in chains]


def test_whatever_appends_is_sealed(store: Store, ns: Namespace) -> None:
    sealer = Sealer(store, SIGNER)
    sealer.begin()
    store.put_graph(ns, graph(0), AuditEvent("store"))
    store.publish_kernel(ns, kernel(1), event=AuditEvent("publish"))
    append(store, ns, 3)
    assert [number for number, _ in store.unsealed(10)] == [1, 2, 3, 4, 5]
    assert sealer.seal_own() == 5
    assert (store.unsealed(10), sealer.seal_own()) == ([], 0)
    assert sound(store) == [(1, 5, 0)]
    seal = store.last_seal(store.audit_writer)
    assert seal is not None
    assert store.find_seal(store.audit_writer, 3) == seal
    assert store.find_seal(store.audit_writer, 6) is None
    assert [seal for seal, _ in store.list_seals(store.audit_writer)] == [seal]
    assert [writer.public_key for writer in store.list_writers()] == [SIGNER.public_key]


def test_what_is_rolled_back_is_not_sealed(store: Store, ns: Namespace) -> None:
    sealer = Sealer(store, SIGNER)
    sealer.begin()

    def bind(key: int) -> None:
        raise RuntimeError

    draft = graph(0)
    with pytest.raises(RuntimeError):
        store.put_graph(ns, type(draft)(spec(1), draft.program_digest, bind), AuditEvent("store"))  # pyright: ignore[reportArgumentType]
    append(store, ns, 2)
    assert sealer.seal_own() == 2
    assert sound(store) == [(1, 2, 0)]


def test_a_place_in_a_chain_is_taken_once(store: Store, ns: Namespace) -> None:
    append(store, ns, 2)
    first = Seal("w", 1, bytes(32), bytes(32), (1,), 0)
    assert store.put_seal(first, b"")
    assert not store.put_seal(first, b"")
    assert not store.put_seal(Seal("w", 3, bytes(32), bytes(32), (2,), 0), b"")
    assert store.put_seal(Seal("w", 2, bytes(32), bytes(32), (2,), 0), b"")


def test_left_over_events_are_adopted(store: Store, ns: Namespace) -> None:
    append(store, ns, 3)  # by a writer that does not seal
    adopter = Sealer(store, SIGNER)
    if store.url == "memory:":
        assert store.unsealed(10) == []  # one process, one writer: there is nobody else
        return
    store._writer = "another"  # pyright: ignore[reportAttributeAccessIssue]
    adopter.begin()
    assert adopter.adopt(before=LATE) == 3
    assert adopter.seal_own() == 1
    assert sorted(sound(store)) == [(1, 1, 0), (1, 3, 0)]


def test_a_pruned_log_proves(store: Store, ns: Namespace) -> None:
    sealer = Sealer(store, SIGNER, clock=lambda: 2000)
    sealer.begin()
    append(store, ns, 20)
    sealer.seal_own()
    kept = [
        KeptHead(seal.writer, seal.sequence, seal.root) for seal, _ in store.list_seals(store.audit_writer)
    ]
    append(store, ns, 5, at=9000)
    sealer.seal_own()
    (pruned,) = Retention(store, SIGNER).prune(before=5000)
    assert (pruned.sequence, pruned.events) == (1, 20)
    assert set(store.read_events(range(1, 26))) == set(range(21, 26))
    assert sealer.seal_own() >= 1  # what collection says of itself
    chains = Verification(store).all(kept, overdue=LATE)
    assert not [finding for chain in chains for finding in chain.findings]
    assert [chain.pruned_events for chain in chains] == [20]
    (checkpoint,) = store.list_checkpoints(store.audit_writer)
    assert (checkpoint.events, checkpoint.first_at, checkpoint.last_at) == (20, 1000, 1000)


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("", "ix_audit_events_namespace_id|PRIMARY KEY"),
        ("job = x", "ix_audit_events_job"),
        ("job = x AND kind = serve AND time > 2026-01-01", "ix_audit_events_job"),
        (f"kernel_digest = {'a' * 64}", "ix_audit_events_kernel"),
    ],
)
def test_questions_find_their_rows_by_an_index(
    openers: dict[str, Opener], tmp_path: Path, condition: str, index: str
) -> None:
    with openers["sqlite"](tmp_path, Time()) as opened:
        columns = audit_events.c
        here = select_events().where(columns.namespace_id == 1, columns.id > 5, columns.id < 100_005)
        statement = passing(here, parse_filter(condition)).order_by(columns.id).limit(100)
        compiled = statement.compile(
            dialect=database(opened)._engine.dialect, compile_kwargs={"render_postcompile": True}
        )
        with raw(path_of(opened)) as connection:
            values = [compiled.params[name] for name in compiled.positiontup or ()]
            plan = connection.execute(f"EXPLAIN QUERY PLAN {compiled}", values).fetchall()
    steps = " ".join(step for *_, step in plan)
    assert "SCAN" not in steps
    assert "TEMP B-TREE" not in steps
    assert re.search(index, steps), steps

"""Nobody changes a sealed audit log unnoticed; who seals it may die, race or come late."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.merkle import inclusion_path, leaf_hash, root_of_path, tree_root
from kcache_grpc.model.signing import Signer
from kcache_grpc.service.audit.proof import KeptHead
from kcache_grpc.service.audit.retention import Retention
from kcache_grpc.service.audit.sealer import Sealer
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.audit.filter import EVERYTHING
from kcache_grpc.storage.audit.sealing import ENCODED, event_leaf, row_leaf
from kcache_grpc.storage.errors import Conflict
from kcache_grpc.storage.records import AuditEvent
from kcache_grpc.storage.schema import audit_events
from tests.service.audit.audit_log import LATE, append, findings, kept_heads, meddling, prove, sealer

SIGNER = Signer.generate()
EVENTS = 30


def path_of(store: Store) -> Path:
    return Path(store.url.removeprefix("sqlite:///"))


@pytest.fixture(scope="module")
def sealed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 events in three seals."""
    path = tmp_path_factory.mktemp("sealed") / "sealed.sqlite"
    with open_store(f"sqlite:///{path}", migrate=True) as store:
        making = sealer(store, SIGNER)
        for start in range(0, EVENTS, 10):
            append(store, 10, first=start)
            assert making.seal_own() == 10
        assert not findings(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.fixture
def sealed(sealed_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sealed_file, tmp_path / "store.sqlite"))


def proven(path: Path, heads: tuple[KeptHead, ...] = ()) -> list[tuple[int | None, int | None]]:
    with open_store(f"sqlite:///{path}") as store:
        return [(finding.sequence, finding.event_id) for finding in findings(store, heads)]


Meddle = Callable[[sqlite3.Connection, int, int], "set[int]"]
COLUMNS = [column.name for column in audit_events.columns if column.name != "id"]


def change(column: str) -> Meddle:
    def meddle(connection: sqlite3.Connection, row: int, _: int) -> set[int]:
        kind = audit_events.c[column].type.python_type
        value = {int: f"coalesce({column}, 0) + 1", str: f"{column} || 'x'", bytes: "zeroblob(32)"}[kind]
        connection.execute(f"UPDATE audit_events SET {column} = {value} WHERE id = ?", (row,))
        return {row}

    return meddle


def remove(connection: sqlite3.Connection, row: int, _: int) -> set[int]:
    connection.execute("DELETE FROM audit_events WHERE id = ?", (row,))
    return {row}


def swap(connection: sqlite3.Connection, row: int, other: int) -> set[int]:
    if row == other:
        other = row % EVENTS + 1
    for source, target in ((row, -1), (other, row), (-1, other)):
        connection.execute("UPDATE audit_events SET id = ? WHERE id = ?", (target, source))
    return {row, other}


def insert(connection: sqlite3.Connection, row: int, _: int) -> set[int]:
    """Before all others."""
    names = ", ".join(name for name in COLUMNS)
    connection.execute(
        f"INSERT INTO audit_events (id, {names}) SELECT 0, {names} FROM audit_events WHERE id = ?", (row,)
    )
    return {0}


@pytest.mark.parametrize("number", [0, -1, 1 - 2**63])
def test_a_row_below_the_ids_that_are_given_is_found(sealed: Path, number: int) -> None:
    names = ", ".join(COLUMNS)
    with meddling(sealed) as connection:
        connection.execute(
            f"INSERT INTO audit_events (id, {names}) SELECT ?, {names} FROM audit_events WHERE id = 7",
            (number,),
        )
    assert proven(sealed) == [(None, number)]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_row_that_is_changed_removed_inserted_or_moved_is_found(
    sealed_file: Path, tmp_path: Path, data: st.DataObject
) -> None:
    meddles: list[Meddle] = [remove, swap, insert, *(change(column) for column in COLUMNS)]
    meddle = data.draw(st.sampled_from(meddles))
    row, other = data.draw(st.integers(1, EVENTS)), data.draw(st.integers(1, EVENTS))
    path = Path(shutil.copy(sealed_file, tmp_path / "store.sqlite"))
    for leftover in tmp_path.glob("store.sqlite-*"):
        leftover.unlink()
    with meddling(path) as connection:
        meddled = meddle(connection, row, other)
    faults = proven(path)
    assert meddled <= {number for _, number in faults}


@pytest.mark.parametrize(
    ("statement", "seals"),
    [
        ("UPDATE audit_seals SET event_ids = zeroblob(80) WHERE sequence = 2", {2}),
        ("UPDATE audit_seals SET event_ids = substr(event_ids, 1, 72) WHERE sequence = 2", {2}),
        ("UPDATE audit_seals SET leaf_marks = zeroblob(40) WHERE sequence = 2", {2}),
        ("UPDATE audit_seals SET root = zeroblob(32) WHERE sequence = 2", {2, 3}),
        ("UPDATE audit_seals SET created_at = 1 WHERE sequence = 2", {2}),
        ("UPDATE audit_seals SET signature = zeroblob(64) WHERE sequence = 2", {2}),
        ("DELETE FROM audit_seals WHERE sequence = 2", {2, None}),
        ("DELETE FROM audit_seals WHERE sequence = 1", {1, None}),
        ("UPDATE audit_seals SET sequence = sequence + 5 WHERE sequence = 3", {3, 8}),
        ("UPDATE audit_seals SET writer = 'x' WHERE sequence = 3", {3}),
        ("UPDATE audit_writers SET public_key = zeroblob(32)", {1, 2, 3}),
    ],
)
def test_any_change_of_the_seals_is_found(sealed: Path, statement: str, seals: set[int | None]) -> None:
    with meddling(sealed) as connection:
        connection.execute(statement)
    assert seals <= {sequence for sequence, _ in proven(sealed)}


def test_an_end_that_was_cut_off_shows_by_an_exported_head(sealed: Path) -> None:
    with open_store(f"sqlite:///{sealed}") as store:
        heads = kept_heads(store)
    with meddling(sealed) as connection:
        connection.execute("DELETE FROM audit_seals WHERE sequence = 3")
        connection.execute("DELETE FROM audit_events WHERE id > 20")
    assert not proven(sealed)
    assert proven(sealed, heads) == [(3, None)]
    with meddling(sealed) as connection:
        for table in ("audit_seals", "audit_events", "audit_writers"):
            connection.execute(f"DELETE FROM {table}")
    assert not proven(sealed)
    assert proven(sealed, heads) == [(3, None)]


def test_a_log_that_another_key_sealed_is_not_trusted(sealed: Path) -> None:
    with open_store(f"sqlite:///{sealed}") as store:
        assert not findings(store, keys=(SIGNER.public_key,))
        reported = findings(store, keys=(Signer.generate().public_key,))
        assert [finding.sequence for finding in reported] == [1, 2, 3]


def test_a_row_that_is_changed_before_it_is_sealed_is_found(store: Store) -> None:
    making = sealer(store, SIGNER)
    append(store, 3)
    with meddling(path_of(store)) as connection:
        connection.execute("UPDATE audit_events SET actor = 'mallory' WHERE id = 2")
    assert making.seal_own() == 3
    assert [finding.event_id for finding in findings(store)] == [2]


def test_what_a_dead_writer_left_is_sealed_by_another(store: Store) -> None:
    sealer(store, SIGNER)
    append(store, 5)
    url = store.url
    with open_store(url) as second:
        making = sealer(second, SIGNER)
        assert making.adopt(before=1002) == 2
        assert making.adopt(before=1002) == 0
        assert making.adopt(before=LATE) == 3
        assert making.adopt(before=LATE) == 0
        assert making.seal_own() == 2  # it tells of both adoptions
        assert not findings(second)
        chains = {(chain.seals, chain.events, chain.unsealed) for chain in prove(second)}
        assert chains == {(2, 5, 0), (1, 2, 0)}
        told = [second.read_events([number])[number].event for number in (6, 7)]
        assert [event.kind for event in told] == ["adopt", "adopt"]


def test_who_was_taken_for_dead_goes_on(store: Store) -> None:
    first = sealer(store, SIGNER)
    append(store, 5)
    with open_store(store.url) as second:
        assert sealer(second, SIGNER).adopt(before=1002) == 2
    assert first.seal_own() == 3
    append(store, 2, first=5)
    assert first.seal_own() == 2
    assert not findings(store)


def test_two_writers_have_a_chain_each(store: Store) -> None:
    with open_store(store.url) as second:
        makings = [sealer(store, SIGNER), sealer(second, SIGNER)]
        for turn in range(3):
            for each in (store, second):
                append(each, 2, first=turn)
            assert [making.seal_own() for making in makings] == [2, 2]
        assert [(chain.seals, chain.events) for chain in prove(store)] == [(3, 6), (3, 6)]
        assert not findings(store)


def test_an_event_that_commits_late_gets_into_a_later_seal(store: Store) -> None:
    making = sealer(store, SIGNER)
    append(store, 4)
    late = store.unsealed(10)[1]
    store.sealed_by_others([late[0]])  # as if its transaction had not ended yet
    assert making.seal_own() == 3
    assert [finding.event_id for finding in findings(store)] == [late[0]]
    store._db.journal._waiting[late[0]] = late[1]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert making.seal_own() == 1
    assert not findings(store)


def test_only_seals_all_of_whose_events_are_old_are_pruned(store: Store) -> None:
    clock = [1015]
    making = Sealer(store, SIGNER, clock=lambda: clock[0])
    making.begin()
    retention = Retention(store, SIGNER, clock=lambda: clock[0])
    early = ()
    for start in range(0, 40, 10):
        append(store, 10, first=start)
        clock[0] = 1000 + start + 10
        making.seal_own()
        early = early or kept_heads(store)
    assert [(each.sequence, each.events) for each in retention.prune(before=1025)] == [(2, 20)]
    assert store.read_events(range(1, 41)).keys() == set(range(21, 41))
    assert not findings(store, (*early, *kept_heads(store)[1:]))
    assert making.seal_own() == 2  # what collection wrote down itself
    clock[0] = LATE
    assert [(each.sequence, each.events) for each in retention.prune(before=LATE)] == [(5, 22)]
    append(store, 3)
    assert making.seal_own() == 5
    (chain,) = prove(store, early)
    assert (chain.findings, chain.pruned_events, chain.events) == ([], 42, 5)
    with meddling(path_of(store)) as connection:
        connection.execute("UPDATE audit_checkpoints SET events = 1 WHERE sequence = 5")
    assert [finding.sequence for finding in findings(store)] == [5]


def test_what_does_not_prove_is_not_pruned(sealed: Path) -> None:
    with meddling(sealed) as connection:
        connection.execute("UPDATE audit_events SET actor = 'x' WHERE id = 25")
    with open_store(f"sqlite:///{sealed}") as store:
        with pytest.raises(IntegrityError, match="kcache audit verify"):
            Retention(store, SIGNER).prune(before=LATE)
        assert len(store.read_events(range(1, EVENTS + 1))) == EVENTS


def test_a_chain_is_pruned_once(sealed: Path) -> None:
    with open_store(f"sqlite:///{sealed}") as store, open_store(f"sqlite:///{sealed}") as other:
        Retention(store, SIGNER).prune(before=LATE)
        (name,) = [writer.writer for writer in other.list_writers() if other.list_checkpoints(writer.writer)]
        (checkpoint,) = other.list_checkpoints(name)
        with pytest.raises(Conflict):
            other.prune(checkpoint, [1])


def test_every_column_is_hashed() -> None:
    assert set(ENCODED) == {column.name for column in audit_events.columns}


def test_the_hash_of_an_event_is_that_of_its_row(store: Store) -> None:
    ns = store.get_or_create_namespace("default")
    store.append_audit(
        ns, [AuditEvent("serve", actor="ä\u2028", key=3, kernel_digest=bytes(range(32)), at=7)]
    )
    (record,) = store.find_events(ns, EVERYTHING).records
    row = {"namespace_id": ns.id, "epoch": 1, "writer": record.writer, "id": record.id}
    values = {**row, **{name: getattr(record.event, name) for name in ENCODED if name not in row}}
    assert event_leaf(record) == row_leaf(values[name] for name in ENCODED)
    assert event_leaf(replace(record, id=2)) != event_leaf(record)
    # By hand, from the description: length, tag, value.
    encoded = b"kcache.audit.event.v1\0"
    for name in ENCODED:
        value = values[name]
        text = (
            b"n" if value is None
            else b"b" + value if isinstance(value, bytes)
            else b"s" + value.encode() if isinstance(value, str)
            else b"i" + str(value).encode()
        )  # fmt: skip
        encoded += len(text).to_bytes(4, "big") + text
    assert event_leaf(record) == leaf_hash(encoded)


def test_an_event_is_proven_by_a_path_of_its_seal(sealed: Path) -> None:
    with open_store(f"sqlite:///{sealed}") as store:
        record = store.read_events([17])[17]
        seal = store.find_seal(record.writer, 17)
        assert seal is not None
        assert seal.sequence == 2
        records = store.read_events(seal.event_ids)
        leaves = [event_leaf(records[number]) for number in seal.event_ids]
        path = inclusion_path(leaves, seal.event_ids.index(17))
        assert root_of_path(event_leaf(record), 6, 10, path) == tree_root(leaves)
        assert store.find_seal(record.writer, 31) is None

"""Writers that share transactions: each is answered as if it came alone, and none can harm another."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.sql.engine import group_commit
from kcache_grpc.storage.sql.engine.group_commit import GroupCommit, RejectedItems


class Bad(Exception):
    """What a write that has a bad item raises."""


class Interrupted(BaseException):
    """As KeyboardInterrupt, but nobody else raises it."""


class Ledger:
    """A table: its transactions are lists of items. Strings that begin with ``bad`` have no place in it."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.attempts = 0
        self.enqueued = threading.Semaphore(0)
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.raises: BaseException | None = None
        #: Whether the next waiter is interrupted before it waits.
        self.interrupts = False
        self.commit = Watched(self)

    def write(self, lane: str, items: Sequence[str]) -> list[str]:
        self.attempts += 1
        self.begun.set()
        assert self.go_on.wait(120)
        if self.raises is not None:
            raised, self.raises = self.raises, None
            raise raised
        if any(item.startswith("bad") for item in items):
            raise Bad(*items)
        self.groups.append(list(items))
        return [f"{lane}: {item}" for item in items]


class Watched(GroupCommit[str, str, str]):
    """Says when an item is in the queue."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.write, len)
        self._ledger = ledger

    def _enqueue(self, state: Any, key: str, waiter: Any) -> Any:
        queue = super()._enqueue(state, key, waiter)
        self._ledger.enqueued.release()
        if self._ledger.interrupts:
            self._ledger.interrupts = False
            raise Interrupted
        return queue


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(300) as threads:
        yield threads


def hold_up(ledger: Ledger, pool: ThreadPoolExecutor, items: Sequence[str]) -> list[Future[str]]:
    """Put ``first``, and while it is written the others, in their order."""
    futures = [pool.submit(ledger.commit.put, "lane", "first")]
    assert ledger.begun.wait(120)
    assert ledger.enqueued.acquire(timeout=120)
    for item in items:
        futures.append(pool.submit(ledger.commit.put, "lane", item))
        assert ledger.enqueued.acquire(timeout=120)
    return futures


def test_a_lone_writer_writes_at_once(ledger):
    ledger.go_on.set()
    assert [ledger.commit.put("lane", item) for item in "abc"] == ["lane: a", "lane: b", "lane: c"]
    assert ledger.groups == [["a"], ["b"], ["c"]]


def test_those_who_come_meanwhile_share_the_next_transaction(ledger, pool):
    items = [str(number) for number in range(20)]
    futures = hold_up(ledger, pool, items)
    ledger.go_on.set()
    assert [each.result(120) for each in futures] == [f"lane: {item}" for item in ["first", *items]]
    assert ledger.groups == [["first"], items]


def test_lanes_do_not_wait_for_each_other(ledger, pool):
    held = hold_up(ledger, pool, [])
    other = Ledger()
    other.go_on.set()
    ledger.commit._write = other.write
    assert ledger.commit.put("other", "a") == "other: a"
    ledger.go_on.set()
    assert held[0].result(120) == "lane: first"


def test_only_what_is_bad_fails(ledger, pool):
    items = [f"bad {number}" if number in (3, 40) else str(number) for number in range(64)]
    futures = hold_up(ledger, pool, items)
    ledger.go_on.set()
    for item, future in zip(items, futures[1:], strict=True):
        if item.startswith("bad"):
            with pytest.raises(Bad, match=item):
                future.result(120)
        else:
            assert future.result(120) == f"lane: {item}"
    written = [item for group in ledger.groups for item in group]
    assert written == ["first", *(item for item in items if not item.startswith("bad"))]
    assert ledger.attempts < 30


def test_who_is_named_at_fault_is_left_out(ledger, pool):
    futures = hold_up(ledger, pool, [f"bad {number}" if number % 3 else str(number) for number in range(64)])
    write = ledger.commit._write

    def naming(lane: str, items: Sequence[str]) -> Sequence[str]:
        try:
            return write(lane, items)
        except Bad as bad:
            raise RejectedItems([Bad(item) if item.startswith("bad") else None for item in items]) from bad

    ledger.commit._write = naming
    ledger.go_on.set()
    for number, future in enumerate(futures[1:]):
        if number % 3:
            with pytest.raises(Bad, match=f"bad {number}"):
                future.result(120)
        else:
            assert future.result(120) == f"lane: {number}"
    assert ledger.attempts == 3


def test_a_store_that_cannot_be_used_fails_the_whole_group_at_once(ledger, pool):
    futures = hold_up(ledger, pool, ["a", "b", "c"])
    write = ledger.commit._write

    def fail(lane: str, items: Sequence[str]) -> Sequence[str]:
        write(lane, items)
        raise StoreUnavailable("not now")

    ledger.commit._write = fail
    ledger.go_on.set()
    assert futures[0].result(120) == "lane: first"
    for future in futures[1:]:
        with pytest.raises(StoreUnavailable, match="not now"):
            future.result(120)
    assert ledger.attempts == 2


def test_a_leader_that_is_interrupted_takes_nobody_along(ledger, pool):
    futures = hold_up(ledger, pool, ["a", "b"])
    ledger.raises = Interrupted()
    ledger.go_on.set()
    with pytest.raises(Interrupted):
        futures[0].result(120)
    assert [each.result(120) for each in futures[1:]] == ["lane: a", "lane: b"]
    assert ledger.commit.put("lane", "c") == "lane: c"


def test_an_interrupted_leader_of_several_leaves_them_to_the_next(ledger, pool):
    futures = hold_up(ledger, pool, ["a", "b", "c"])
    write = ledger.commit._write

    def interrupted(lane: str, items: Sequence[str]) -> Sequence[str]:
        if items[0] == "a":
            raise Interrupted
        return write(lane, items)

    ledger.commit._write = interrupted
    ledger.go_on.set()
    with pytest.raises(Interrupted):
        futures[1].result(120)
    assert [each.result(120) for each in (futures[0], *futures[2:])] == ["lane: first", "lane: b", "lane: c"]
    assert ledger.groups == [["first"], ["b", "c"]]


def test_who_is_interrupted_while_it_waits_leaves_the_queue(ledger, pool):
    futures = hold_up(ledger, pool, ["a"])
    main, left = threading.get_ident(), threading.Event()

    def interrupt() -> None:
        assert ledger.enqueued.acquire(timeout=120)
        # Again: a signal that comes just before the wait begins does not end it.
        while not left.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    def handle(*_: object) -> None:
        if not left.is_set():
            left.set()
            raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        interrupting = pool.submit(interrupt)
        with pytest.raises(Interrupted):
            ledger.commit.put("lane", "mine")
        interrupting.result(120)
    finally:
        signal.signal(signal.SIGUSR1, before)
    ledger.go_on.set()
    assert [each.result(120) for each in futures] == ["lane: first", "lane: a"]
    assert ledger.groups == [["first"], ["a"]]


def test_who_is_interrupted_as_soon_as_it_sits_leaves_the_queue(ledger, pool):
    ledger.go_on.set()
    ledger.interrupts = True
    with pytest.raises(Interrupted):
        ledger.commit.put("lane", "the leader to be")
    assert ledger.commit.put("lane", "next") == "lane: next"
    ledger.go_on.clear()
    ledger.begun.clear()
    while ledger.enqueued.acquire(blocking=False):
        pass
    futures = hold_up(ledger, pool, ["a"])
    ledger.interrupts = True
    with pytest.raises(Interrupted):
        ledger.commit.put("lane", "one that waits")
    ledger.go_on.set()
    assert [each.result(120) for each in futures] == ["lane: first", "lane: a"]
    assert ledger.groups == [["next"], ["first"], ["a"]]


def test_who_is_interrupted_while_it_takes_a_group_leaves_the_others_in_the_queue(ledger, pool, monkeypatch):
    first, mine, *others = hold_up(ledger, pool, ["mine", "a", "b", "c"])
    sized = iter(["a", "b"])

    def size(item: str) -> int:
        if next(sized, None) == "b":
            raise Interrupted
        return len(item)

    monkeypatch.setattr(ledger.commit, "_size", size)
    ledger.go_on.set()
    with pytest.raises(Interrupted):
        mine.result(120)
    assert [each.result(120) for each in (first, *others)] == [f"lane: {each}" for each in ("first", *"abc")]
    assert ledger.groups == [["first"], ["a", "b", "c"]]


def test_who_is_interrupted_while_it_passes_on_the_lead_has_passed_it_on(ledger, pool, monkeypatch):
    first, after = hold_up(ledger, pool, ["a"])
    ready = ledger.commit._latest.queues["lane"].waiters[0].ready

    def interrupted() -> None:
        monkeypatch.undo()
        raise Interrupted

    monkeypatch.setattr(ready, "set", interrupted)
    ledger.go_on.set()
    with pytest.raises(Interrupted):
        first.result(120)
    assert after.result(120) == "lane: a"


def test_a_group_has_its_limits(ledger, pool, monkeypatch):
    monkeypatch.setattr(group_commit, "MOST_ITEMS", 4)
    monkeypatch.setattr(group_commit, "MOST_BYTES", 10)
    items = ["a", "b", "c", "d", "e", "f" * 100, "g" * 6, "h" * 6]
    futures = hold_up(ledger, pool, items)
    ledger.go_on.set()
    assert [each.result(120) for each in futures] == [f"lane: {item}" for item in ["first", *items]]
    assert ledger.groups == [["first"], ["a", "b", "c", "d"], ["e"], ["f" * 100, "g" * 6], ["h" * 6]]


def test_a_child_of_a_fork_begins_anew(ledger, pool):
    futures = hold_up(ledger, pool, ["a"])
    parents = ledger.commit._latest
    parents.process = 0  # as the child sees it, in which nobody writes
    parents.lock.acquire()
    child = Ledger()
    child.go_on.set()
    write, ledger.commit._write = ledger.commit._write, child.write
    assert ledger.commit.put("lane", "of the child") == "lane: of the child"
    assert ledger.commit._latest.process == os.getpid()
    ledger.commit._write = write
    parents.lock.release()
    ledger.go_on.set()
    assert [each.result(120) for each in futures] == ["lane: first", "lane: a"]


def test_who_comes_again_at_once_is_waited_for(ledger, pool, monkeypatch):
    """Else every second transaction would be of one."""
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 30)
    monkeypatch.setattr(group_commit, "GATHER_SHARE", 1e9)
    futures = hold_up(ledger, pool, ["a", "b"])
    ledger.go_on.set()
    assert [each.result(120) for each in futures] == ["lane: first", "lane: a", "lane: b"]
    again = pool.submit(ledger.commit.put, "lane", "a again")
    assert ledger.enqueued.acquire(timeout=120)
    assert not again.done()
    assert ledger.commit.put("lane", "b again") == "lane: b again"
    assert again.result(120) == "lane: a again"
    assert ledger.groups == [["first"], ["a", "b"], ["a again", "b again"]]


def test_many_writers_are_each_served_in_their_order(ledger, pool):
    writers, rounds = 8, 30
    ledger.go_on.set()
    meet = threading.Barrier(writers)

    def write(index: int) -> None:
        meet.wait(120)
        for number in range(rounds):
            ledger.commit.put("lane", f"{index} {number}")

    for each in [pool.submit(write, index) for index in range(writers)]:
        each.result(240)
    written = [item for group in ledger.groups for item in group]
    assert len(written) == writers * rounds
    for index in range(writers):
        mine = [item for item in written if item.startswith(f"{index} ")]
        assert mine == [f"{index} {number}" for number in range(rounds)]


def test_lanes_that_nobody_uses_are_forgotten(ledger, pool, monkeypatch):
    monkeypatch.setattr(group_commit, "IDLE_QUEUES", 3)
    ledger.go_on.set()
    for number in range(10):
        ledger.commit.put(f"lane {number}", "item")
    assert len(ledger.commit._state().queues) <= 3
    ledger.go_on.clear()
    ledger.begun.clear()
    busy = pool.submit(ledger.commit.put, "busy", "one")
    assert ledger.begun.wait(120)
    queue = ledger.commit._state().queues["busy"]
    others = [pool.submit(ledger.commit.put, f"another {number}", "item") for number in range(10)]
    ledger.go_on.set()
    assert [each.result(120) for each in others] == [f"another {number}: item" for number in range(10)]
    assert busy.result(120) == "busy: one"
    assert not queue.used

"""Callers take turns, whatever each of them sends."""

from __future__ import annotations

import pytest

from kcache_grpc.worker.fairness import FairQueue

pytestmark = pytest.mark.issue(number=19, point=10)


def test_callers_take_turns_and_keep_their_order() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(4):
        queue.append("many", number)
    queue.append("few", 10)
    queue.append("some", 20)
    queue.append("some", 21)
    assert len(queue) == len(list(queue)) == 7
    assert [queue.popleft() for _ in range(7)] == [0, 10, 20, 1, 21, 2, 3]
    assert not queue
    with pytest.raises(IndexError):
        queue.popleft()


def test_what_is_given_up_is_gone() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.append("a", 1)
    queue.append("b", 2)
    assert queue.holds_others("a")
    queue.remove("b", 2)
    queue.remove("b", 2)
    assert not queue.holds_others("a")
    assert queue.holds_others("b")
    assert list(queue) == [1]


def test_callers_that_have_nothing_come_first() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(3):
        queue.append("many", number)
    queue.append("few", 10)
    assert not queue.all_of({"many"})
    assert queue.popleft({"many"}) == 10
    assert queue.all_of({"many"})
    assert [queue.popleft({"many"}) for _ in range(3)] == [0, 1, 2]

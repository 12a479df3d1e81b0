"""Group commit: what comes while a transaction is on its way to the disk shares the next one.

A writer that finds nobody at work writes at once, alone. Those that come meanwhile queue; when the
transaction is done, the first of them writes for all. So a lone writer waits for nobody, and many pay for one
commit.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from kcache_grpc.storage.errors import StoreUnavailable

Lane = TypeVar("Lane")
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Most items of one transaction, and most bytes beyond those of its first item: others wait for it.
MOST_ITEMS = 256
MOST_BYTES = 4 << 20
#: A group as large as the last one is waited for this many seconds at most, and this share of the last write.
#: Those that were just served are about to come again: without it they would miss every second commit.
GATHER_SECONDS = 0.002
GATHER_SHARE = 0.2
#: Lanes that may stand idle; with more, those that nobody uses are forgotten.
IDLE_LANES = 256


class RejectedItems(Exception):
    """Nothing was written, and which items are at fault is known: an error for each of these, at least one.

    ``None`` for those that may be written without them. Raised to who groups, never to callers.
    """

    def __init__(self, errors: Sequence[Exception | None]) -> None:
        super().__init__(f"{sum(error is not None for error in errors)} of {len(errors)} items are at fault")
        self.errors = errors


class _Seat(Generic[Item, Result]):
    """One item that waits, and what became of it."""

    __slots__ = ("item", "outcome", "turn", "written")

    def __init__(self, item: Item) -> None:
        self.item = item
        #: Set when it is written or failed, or has the lead.
        self.turn = threading.Event()
        self.written = False
        self.outcome: Result | Exception | None = None


class _Queue(Generic[Item, Result]):
    """Who waits in a lane."""

    def __init__(self) -> None:
        self.seats: deque[_Seat[Item, Result]] = deque()
        #: Who writes now, or is about to, and what it writes.
        self.leader: _Seat[Item, Result] | None = None
        self.group: list[_Seat[Item, Result]] = []
        #: As many as the last group had are waited for until then, unless that was one alone.
        self.expected = 1
        self.patience = 0.0
        self.gathered = threading.Event()

    @property
    def used(self) -> bool:
        """Whether anybody writes or waits here."""
        return self.leader is not None or bool(self.seats)


class _State(Generic[Lane, Item, Result]):
    """Of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.queues: dict[Lane, _Queue[Item, Result]] = {}


class GroupCommit(Generic[Lane, Item, Result]):
    """Items of one lane are written together, in one transaction, in the order in which they came.

    ``write`` writes all that it is given, or raises and has written nothing. A group that fails is written
    again without those at fault, if ``RejectedItems`` names them; else it is cut in halves until only they
    fail. ``StoreUnavailable``, which is nobody's fault, is raised to all. ``size`` is in bytes. Thread-safe,
    and usable again after a fork.
    """

    def __init__(
        self, write: Callable[[Lane, Sequence[Item]], Sequence[Result]], size: Callable[[Item], int]
    ) -> None:
        self._write = write
        self._size = size
        self._latest: _State[Lane, Item, Result] = _State()

    def put(self, lane: Lane, item: Item) -> Result:
        """Returns when ``item`` is committed, raises when it is not.

        A caller that is interrupted while it waits takes nobody along; its own item is written or not.
        """
        state = self._state()
        seat: _Seat[Item, Result] = _Seat(item)
        try:
            queue = self._sit_down(state, lane, seat)
            seat.turn.wait()
            if not seat.written:
                self._lead(state, lane, queue)
        except BaseException:
            self._leave(state, lane, seat)
            raise
        return _result(seat)

    def _state(self) -> _State[Lane, Item, Result]:
        """A new one in the child of a fork: the parent's threads are not there."""
        state = self._latest
        if state.process != os.getpid():
            state = self._latest = _State()
        return state

    def _sit_down(
        self, state: _State[Lane, Item, Result], lane: Lane, seat: _Seat[Item, Result]
    ) -> _Queue[Item, Result]:
        with state.lock:
            queue = state.queues.get(lane)
            if queue is None:
                if len(state.queues) >= IDLE_LANES:
                    state.queues = {lane: queue for lane, queue in state.queues.items() if queue.used}
                queue = state.queues[lane] = _Queue()
            queue.seats.append(seat)
            if queue.leader is None:
                _pass_on(queue)
            elif len(queue.seats) >= queue.expected:
                queue.gathered.set()
            return queue

    def _lead(self, state: _State[Lane, Item, Result], lane: Lane, queue: _Queue[Item, Result]) -> None:
        """Write for all who wait, the leader among them, and give the lead to the next one."""
        if queue.expected > 1 and (patience := queue.patience - time.monotonic()) > 0:
            queue.gathered.wait(patience)
        with state.lock:
            group = self._take(queue)
        began = time.monotonic()
        outcomes = self._outcomes(lane, [seat.item for seat in group])
        ended = time.monotonic()
        for seat, outcome in zip(group, outcomes, strict=True):
            seat.outcome = outcome
            seat.written = True
        _wake(group)
        with state.lock:
            queue.expected = len(group)
            queue.patience = ended + min(GATHER_SECONDS, GATHER_SHARE * (ended - began))
            _pass_on(queue)

    def _take(self, queue: _Queue[Item, Result]) -> list[_Seat[Item, Result]]:
        """Those who are written now. Whoever is interrupted here has taken none that is in no list."""
        group = queue.group = [queue.seats[0]]
        room = MOST_BYTES
        for seat in islice(queue.seats, 1, MOST_ITEMS):
            room -= self._size(seat.item)
            if room < 0:
                break
            group.append(seat)
        for _ in group:
            queue.seats.popleft()
        return group

    def _outcomes(self, lane: Lane, items: Sequence[Item]) -> list[Result | Exception]:
        try:
            return list(self._write(lane, items))
        except StoreUnavailable as error:
            return [error] * len(items)
        except RejectedItems as rejected:
            accepted = [item for item, error in zip(items, rejected.errors, strict=True) if error is None]
            assert len(accepted) < len(items)
            written = iter(self._outcomes(lane, accepted) if accepted else ())
            return [next(written) if error is None else error for error in rejected.errors]
        except Exception as error:  # noqa: BLE001 (raised to the caller whose item it is)
            if len(items) == 1:
                return [error]
        half = len(items) // 2
        return self._outcomes(lane, items[:half]) + self._outcomes(lane, items[half:])

    def _leave(
        self,
        state: _State[Lane, Item, Result],
        lane: Lane,
        seat: _Seat[Item, Result],
    ) -> None:
        """Interrupted. What a leader had begun goes on under the next one."""
        with state.lock:
            queue = state.queues.get(lane)
            if queue is None:
                return
            if queue.leader is seat:
                _wake([each for each in queue.group if each.written])
                left = [each for each in queue.group if not each.written and each not in queue.seats]
                queue.seats.extendleft(reversed(left))
            if seat in queue.seats:
                queue.seats.remove(seat)
            if queue.leader is seat or queue.leader is None:
                _pass_on(queue)
            elif queue.leader in queue.seats:
                # Interrupted while it passed on the lead.
                queue.leader.turn.set()


def _wake(seats: Sequence[_Seat[Item, Result]]) -> None:
    for seat in seats:
        seat.turn.set()


def _pass_on(queue: _Queue[Item, Result]) -> None:
    """Let the first who waits lead. Holds the lock."""
    queue.group = []
    queue.leader = queue.seats[0] if queue.seats else None
    if len(queue.seats) < queue.expected:
        queue.gathered.clear()
    else:
        queue.gathered.set()
    if queue.leader is not None:
        queue.leader.turn.set()


def _result(seat: _Seat[Item, Result]) -> Result:
    outcome = seat.outcome
    try:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
    finally:
        # The traceback of an outcome holds this frame: no cycle.
        del outcome, seat

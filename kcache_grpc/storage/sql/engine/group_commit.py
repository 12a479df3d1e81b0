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

Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Most items of one transaction, and most bytes beyond those of its first item: others wait for it.
MOST_ITEMS = 256
MOST_BYTES = 4 << 20
#: A group as large as the last one is waited for this many seconds at most, and this share of the last write.
#: Those that were just served are about to come again: without it they would miss every second commit.
GATHER_SECONDS = 0.002
GATHER_SHARE = 0.2
#: Idle queues that are kept; beyond that number, unused queues are removed.
IDLE_QUEUES = 256


class RejectedItems(Exception):
    """Nothing was written, and which items are at fault is known: an error for each of these, at least one.

    ``None`` for those that may be written without them. Raised to who groups, never to callers.
    """

    def __init__(self, errors: Sequence[Exception | None]) -> None:
        super().__init__(f"{sum(error is not None for error in errors)} of {len(errors)} items are at fault")
        self.errors = errors


class _Waiter(Generic[Item, Result]):
    """A waiting item and its outcome."""

    __slots__ = ("item", "outcome", "ready", "written")

    def __init__(self, item: Item) -> None:
        self.item = item
        #: Set when it is written or failed, or has the lead.
        self.ready = threading.Event()
        self.written = False
        self.outcome: Result | Exception | None = None


class _Queue(Generic[Item, Result]):
    """The waiters of one key."""

    def __init__(self) -> None:
        self.waiters: deque[_Waiter[Item, Result]] = deque()
        #: Who writes now, or is about to, and what it writes.
        self.leader: _Waiter[Item, Result] | None = None
        self.group: list[_Waiter[Item, Result]] = []
        #: As many as the last group had are waited for until then, unless that was one alone.
        self.expected = 1
        self.gather_until = 0.0
        self.gathered = threading.Event()

    @property
    def used(self) -> bool:
        """Whether anybody writes or waits here."""
        return self.leader is not None or bool(self.waiters)


class _State(Generic[Key, Item, Result]):
    """Of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.queues: dict[Key, _Queue[Item, Result]] = {}


class GroupCommit(Generic[Key, Item, Result]):
    """Items with the same key are written together, in one transaction, in the order in which they came.

    ``write`` writes all that it is given, or raises and has written nothing. A group that fails is written
    again without those at fault, if ``RejectedItems`` names them; else it is cut in halves until only they
    fail. ``StoreUnavailable``, which is nobody's fault, is raised to all. ``size`` is in bytes. Thread-safe,
    and usable again after a fork.
    """

    def __init__(
        self, write: Callable[[Key, Sequence[Item]], Sequence[Result]], size: Callable[[Item], int]
    ) -> None:
        self._write = write
        self._size = size
        self._latest: _State[Key, Item, Result] = _State()

    def put(self, key: Key, item: Item) -> Result:
        """Returns when ``item`` is committed, raises when it is not.

        A caller that is interrupted while it waits takes nobody along; its own item is written or not.
        """
        state = self._state()
        waiter: _Waiter[Item, Result] = _Waiter(item)
        try:
            queue = self._enqueue(state, key, waiter)
            waiter.ready.wait()
            if not waiter.written:
                self._lead(state, key, queue)
        except BaseException:
            self._leave(state, key, waiter)
            raise
        return _result(waiter)

    def _state(self) -> _State[Key, Item, Result]:
        """A new one in the child of a fork: the parent's threads are not there."""
        state = self._latest
        if state.process != os.getpid():
            state = self._latest = _State()
        return state

    def _enqueue(
        self, state: _State[Key, Item, Result], key: Key, waiter: _Waiter[Item, Result]
    ) -> _Queue[Item, Result]:
        with state.lock:
            queue = state.queues.get(key)
            if queue is None:
                if len(state.queues) >= IDLE_QUEUES:
                    state.queues = {key: queue for key, queue in state.queues.items() if queue.used}
                queue = state.queues[key] = _Queue()
            queue.waiters.append(waiter)
            if queue.leader is None:
                _pass_lead(queue)
            elif len(queue.waiters) >= queue.expected:
                queue.gathered.set()
            return queue

    def _lead(self, state: _State[Key, Item, Result], key: Key, queue: _Queue[Item, Result]) -> None:
        """Write for all who wait, the leader among them, and give the lead to the next one."""
        if queue.expected > 1 and (seconds := queue.gather_until - time.monotonic()) > 0:
            queue.gathered.wait(seconds)
        with state.lock:
            group = self._take(queue)
        began = time.monotonic()
        outcomes = self._outcomes(key, [waiter.item for waiter in group])
        ended = time.monotonic()
        for waiter, outcome in zip(group, outcomes, strict=True):
            waiter.outcome = outcome
            waiter.written = True
        _wake(group)
        with state.lock:
            queue.expected = len(group)
            queue.gather_until = ended + min(GATHER_SECONDS, GATHER_SHARE * (ended - began))
            _pass_lead(queue)

    def _take(self, queue: _Queue[Item, Result]) -> list[_Waiter[Item, Result]]:
        """Those who are written now. Whoever is interrupted here has taken none that is in no list."""
        group = queue.group = [queue.waiters[0]]
        room = MOST_BYTES
        for waiter in islice(queue.waiters, 1, MOST_ITEMS):
            room -= self._size(waiter.item)
            if room < 0:
                break
            group.append(waiter)
        for _ in group:
            queue.waiters.popleft()
        return group

    def _outcomes(self, key: Key, items: Sequence[Item]) -> list[Result | Exception]:
        try:
            return list(self._write(key, items))
        except StoreUnavailable as error:
            return [error] * len(items)
        except RejectedItems as rejected:
            accepted = [item for item, error in zip(items, rejected.errors, strict=True) if error is None]
            assert len(accepted) < len(items)
            written = iter(self._outcomes(key, accepted) if accepted else ())
            return [next(written) if error is None else error for error in rejected.errors]
        except Exception as error:  # noqa: BLE001 (raised to the caller whose item it is)
            if len(items) == 1:
                return [error]
        half = len(items) // 2
        return self._outcomes(key, items[:half]) + self._outcomes(key, items[half:])

    def _leave(
        self,
        state: _State[Key, Item, Result],
        key: Key,
        waiter: _Waiter[Item, Result],
    ) -> None:
        """Interrupted. What a leader had begun goes on under the next one."""
        with state.lock:
            queue = state.queues.get(key)
            if queue is None:
                return
            if queue.leader is waiter:
                _wake([each for each in queue.group if each.written])
                left = [each for each in queue.group if not each.written and each not in queue.waiters]
                queue.waiters.extendleft(reversed(left))
            if waiter in queue.waiters:
                queue.waiters.remove(waiter)
            if queue.leader is waiter or queue.leader is None:
                _pass_lead(queue)
            elif queue.leader in queue.waiters:
                # Interrupted while it passed on the lead.
                queue.leader.ready.set()


def _wake(waiters: Sequence[_Waiter[Item, Result]]) -> None:
    for waiter in waiters:
        waiter.ready.set()


def _pass_lead(queue: _Queue[Item, Result]) -> None:
    """Let the first who waits lead. Holds the lock."""
    queue.group = []
    queue.leader = queue.waiters[0] if queue.waiters else None
    if len(queue.waiters) < queue.expected:
        queue.gathered.clear()
    else:
        queue.gathered.set()
    if queue.leader is not None:
        queue.leader.ready.set()


def _result(waiter: _Waiter[Item, Result]) -> Result:
    outcome = waiter.outcome
    try:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
    finally:
        # The traceback of an outcome holds this frame: no cycle.
        del outcome, waiter

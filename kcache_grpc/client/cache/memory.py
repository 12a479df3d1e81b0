"""The tier in memory: a bounded table, and single flight within the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kcache_grpc.client.progress import Progress

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A table that forgets what was used longest ago; thread-safe; a hit takes about a microsecond.

    Bounded by entries, and by the sum of the weights that ``put`` was told.
    """

    def __init__(self, max_entries: int, max_weight: int = 0) -> None:
        self._max_entries = max_entries
        self._max_weight = max_weight
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Keeps ``value``, unless its weight alone is above the bound."""
        if self._max_weight and weight > self._max_weight:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._weight += weight - (old[1] if old else 0)
            self._entries[key] = (value, weight)
            while len(self._entries) > self._max_entries or (
                self._max_weight and self._weight > self._max_weight
            ):
                _, (_, forgotten) = self._entries.popitem(last=False)
                self._weight -= forgotten

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def after_fork(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self._lock = threading.Lock()


class Abandoned(Exception):
    """The leader gave up; another waiter has to become the leader."""


@dataclass
class InFlightCall(Generic[V]):
    """A call that makes one value, and the listeners to its progress."""

    future: Future[V] = field(default_factory=Future["V"])
    listeners: list[Progress] = field(default_factory=list["Progress"])


class SingleFlight(Generic[K, V]):
    """Running calls by key; thread-safe. The first to enter is the leader, the others wait."""

    def __init__(self) -> None:
        self._calls: dict[K, InFlightCall[V]] = {}
        self._lock = threading.Lock()

    def enter(self, key: K) -> tuple[InFlightCall[V], bool]:
        """The running call of ``key``, and whether the caller is its leader."""
        with self._lock:
            call = self._calls.get(key)
            if call is not None:
                return call, False
            call = self._calls[key] = InFlightCall[V]()
            return call, True

    def finish(self, key: K, outcome: V | BaseException) -> None:
        """Ends the call of ``key`` with its value or error, and wakes its waiters."""
        with self._lock:
            call = self._calls.pop(key)
        if isinstance(outcome, BaseException):
            call.future.set_exception(outcome)
        else:
            call.future.set_result(outcome)

    def after_fork(self) -> None:
        """The threads of running calls are not in this process."""
        self._lock = threading.Lock()
        self._calls = {}

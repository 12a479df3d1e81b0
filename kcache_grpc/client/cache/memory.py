"""The tier in memory: a bounded table, and one flight a key within the process."""

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
    """The one who made the value gave up; somebody else has to."""


@dataclass
class Flight(Generic[V]):
    """One value in the making, and who listens to its progress."""

    future: Future[V] = field(default_factory=Future["V"])
    listeners: list[Progress] = field(default_factory=list["Progress"])


class Flights(Generic[K, V]):
    """Values in the making by key; thread-safe. The first to enter makes it, the others wait."""

    def __init__(self) -> None:
        self._flights: dict[K, Flight[V]] = {}
        self._lock = threading.Lock()

    def enter(self, key: K) -> tuple[Flight[V], bool]:
        """The flight of ``key``, and whether the caller has to fly it."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            flight = self._flights[key] = Flight[V]()
            return flight, True

    def land(self, key: K, outcome: V | BaseException) -> None:
        """Ends the flight of ``key`` and wakes who waits for it."""
        with self._lock:
            flight = self._flights.pop(key)
        if isinstance(outcome, BaseException):
            flight.future.set_exception(outcome)
        else:
            flight.future.set_result(outcome)

    def after_fork(self) -> None:
        """The threads that were flying are not in this process."""
        self._lock = threading.Lock()
        self._flights = {}

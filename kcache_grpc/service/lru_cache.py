"""A least-recently-used map bounded in bytes. For one event loop: no locks."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: What an entry costs in addition to its bytes: the map, the key, small objects.
_OVERHEAD = 512


class ByteLru(Generic[K, V]):
    """Forgets what was used longest ago once ``capacity`` is full, and what is older than ``max_age``."""

    def __init__(
        self, capacity: int, max_age: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._entries: OrderedDict[K, tuple[V, int, float]] = OrderedDict()
        self._capacity = capacity
        self._max_age = max_age
        self._clock = clock
        self.size = 0

    def get(self, key: K) -> V | None:
        """The value, unless it is unknown, forgotten or too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, _, since = entry
        if self._clock() - since > self._max_age:
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, size: int) -> None:
        """Keeps a value of ``size`` bytes; one that is larger than the capacity is not kept."""
        self.drop(key)
        size += _OVERHEAD
        if size > self._capacity:
            return
        self._entries[key] = (value, size, self._clock())
        self.size += size
        while self.size > self._capacity:
            _, (_, dropped, _) = self._entries.popitem(last=False)
            self.size -= dropped

    def drop(self, key: K) -> None:
        """Forgets a value."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[1]

    def drop_all(self, unwanted: Callable[[K], bool]) -> None:
        """Forgets the values under all keys of a kind."""
        for key in [key for key in self._entries if unwanted(key)]:
            self.drop(key)

    def __len__(self) -> int:
        return len(self._entries)

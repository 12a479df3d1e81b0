"""What a client counted, by name."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Thread-safe counts, cheap enough for every call."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def snapshot(self) -> dict[str, int]:
        """The counts so far, by name."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def after_fork(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self._lock = threading.Lock()

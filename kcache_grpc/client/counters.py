"""Counters of a client, by name."""

from __future__ import annotations

import threading
from collections import Counter

from kcache_grpc.model.bypass import BypassReason, counter_of


class Counters:
    """Thread-safe counts, cheap enough for every call."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def add_kernel(self, origin: str, seconds_saved: float) -> None:
        """Count a kernel by its origin, and the compile time that it saved."""
        with self._lock:
            self._counts[f"{origin}_kernels"] += 1
            if seconds_saved:
                self._counts[f"{origin}_saved_us"] += round(seconds_saved * 1e6)

    def bypass(self, reason: BypassReason, amount: int = 1) -> None:
        """Count programs that bypassed the cache."""
        self.add(counter_of(reason), amount)

    def snapshot(self) -> dict[str, int]:
        """The counts so far, by name."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def after_fork(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self._lock = threading.Lock()

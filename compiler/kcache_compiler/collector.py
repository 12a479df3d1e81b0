"""The collector of reference cycles, while a program is compiled."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pauses:
    """Who has the collector of this process paused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._running = False

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._running = gc.isenabled()
            self._count += 1
            gc.disable()

    def end(self) -> None:
        """Let the collector go on, also where others still pause it: there may always be others."""
        with self._lock:
            self._count -= 1
            if self._running:
                gc.enable()


_PAUSES = _Pauses()  # the collector is one for all threads


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the collector of reference cycles, which would look through a growing graph again and again,
    for nothing. It is as it was before when all threads that paused it are done.
    """
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()

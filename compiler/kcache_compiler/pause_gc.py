"""Pausing of Python's garbage collector during compilation."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pauses:
    """Counts the pauses of the collector, which all threads of the process share."""

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
        """End a pause and enable the collector, even if other threads pause it: one always might."""
        with self._lock:
            self._count -= 1
            if self._running:
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def gc_paused() -> Generator[None]:
    """Disable collection of reference cycles, which would traverse a growing graph repeatedly in vain.

    The previous state is restored when no thread pauses the collector any more.
    """
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()

"""Pausing of Python's garbage collector while a graph is traced and compiled."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pauses:
    """Counts the pauses of the collector, which all threads of the process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._enabled = False

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._enabled = gc.isenabled()
            self._count += 1
            gc.disable()

    def end(self) -> None:
        """End a pause and enable the collector, even if other threads pause it: one always might."""
        with self._lock:
            self._count = max(self._count - 1, 0)  # 0 in a fork that leaves the pause of its parent
            if self._enabled:
                gc.enable()

    def after_fork(self) -> None:
        """In a child: threads of the parent that pause the collector, or hold the lock, are not there."""
        if self._count and self._enabled:
            gc.enable()
        self._lock, self._count = threading.Lock(), 0


_PAUSES = _Pauses()
os.register_at_fork(after_in_child=_PAUSES.after_fork)


@contextmanager
def collector_paused() -> Generator[None]:
    """Disable collection of reference cycles: a trace makes many objects, nearly all of which it keeps.

    The collector is enabled again, if it was before, when the first of several threads leaves its context.
    """
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()

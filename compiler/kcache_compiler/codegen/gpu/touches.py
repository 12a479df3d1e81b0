"""Which barriers the threads of a row need: those between two that touch the same memory, one writing.

A barrier is written before each segment; once the segment is there and touched nothing that others wrote, or
wrote nothing that others touched, it is taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kcache_compiler.codegen import mlir


@dataclass(frozen=True)
class Touch:
    """Some threads read or write elements of a buffer; ``way`` says which thread has which, if known."""

    root: Any
    written: bool
    way: Any = None

    def meets(self, other: Touch) -> bool:
        """Two threads may touch the same element in these two ways, and one writes."""
        if self.root != other.root or not (self.written or other.written):
            return False
        return self.way is None or self.way != other.way


class Touches:
    """What was touched since the last barrier, while code is written."""

    def __init__(self, wait: Callable[[], mlir.Op]) -> None:
        self._wait = wait
        self._since: list[Touch] = []
        self._before: list[Touch] = []
        self._doubtful: mlir.Op | None = None

    def note(self, touch: Touch) -> None:
        self._since.append(touch)

    def perhaps(self) -> None:
        """A barrier here, if what follows shows that it is needed."""
        self.settle()
        self._before, self._since = self._since, []
        self._doubtful = self._wait()

    def settle(self) -> None:
        """Keep the last barrier of that kind or take it away."""
        if self._doubtful is None:
            return
        if not any(a.meets(b) for a in self._before for b in self._since):
            self._doubtful.erase()
            self._since = [*self._before, *self._since]
        self._before, self._doubtful = [], None

    def passed(self) -> None:
        """Threads have met here."""
        self.settle()
        self._since = []

    def ready(self, touch: Touch) -> None:
        """Wait here if ``touch`` needs it, which comes next."""
        if any(one.meets(touch) for one in self._since):
            self.passed()
            self._wait()
        self.note(touch)

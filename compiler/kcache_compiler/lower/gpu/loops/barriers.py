"""Which barriers the threads of a row need: those between two that touch the same memory, one writing.

A barrier is written before each segment; once the segment is there and touched nothing that others wrote, or
wrote nothing that others touched, it is taken away. Elements that a thread had in one segment and has again
in another stay in its registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kcache_compiler.mlir import operations as mlir


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


class Kept:
    """Elements of a row that threads have in registers from one segment to the next, and stores of them."""

    def __init__(self) -> None:
        self._values: dict[Any, tuple[Any, mlir.Value]] = {}
        self._stores: dict[Any, tuple[Any, mlir.Op]] = {}
        self._read: list[Any] = []

    def value(self, key: Any) -> mlir.Value | None:
        """What was written last as ``key``."""
        return self._values[key][1] if key in self._values else None

    def read(self, root: Any) -> None:
        """Elements of a buffer are read from memory: what was stored there stays."""
        self._stores = {key: one for key, one in self._stores.items() if one[0] != root}
        self._read.append(root)

    def write(self, root: Any, key: Any, value: mlir.Value) -> None:
        """An element is written; without a key nobody knows which."""
        way = None if key is None else key[1]
        self._values = {
            other: one
            for other, one in self._values.items()
            if one[0] != root or (way is not None and other[1] == way)
        }
        if key is not None:
            self._values[key] = root, value

    def stored(self, root: Any, key: Any, store: mlir.Op) -> None:
        """The same elements were stored before and not read: that store goes away."""
        if (root, key) in self._stores:
            self._stores[root, key][1].erase()
        self._stores[root, key] = root, store

    def forget(self, roots: set[Any]) -> None:
        """Nobody reads these buffers later: stores that were never read go away."""
        for root, store in self._stores.values():
            if root in roots and root not in self._read:
                store.erase()
        self._stores = {}

"""Barrier placement for the threads of a row, by a data-race analysis of the code as it is written.

A barrier is needed between two accesses of the same memory by different threads if one of them is a write. A
tentative barrier is emitted before each segment and erased if the segment turns out to have no such access.
Elements that a thread has in one segment and reads again in another stay in its registers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir


@dataclass(frozen=True)
class SharedAccess:
    """A read or write of a buffer by the threads of a row.

    ``distribution`` identifies which thread accesses which element; None if that is unknown.
    """

    root: mlir.Value
    written: bool
    distribution: Hashable = None

    def conflicts_with(self, other: SharedAccess) -> bool:
        """Whether two threads may access the same element, one of them to write it."""
        if self.root != other.root or not (self.written or other.written):
            return False
        return self.distribution is None or self.distribution != other.distribution


class BarrierPlacement:
    """The accesses since the last barrier; ``emit`` emits a barrier at the insertion point."""

    def __init__(self, emit: Callable[[], mlir.Op]) -> None:
        self._emit = emit
        self._since: list[SharedAccess] = []
        self._before: list[SharedAccess] = []
        self._tentative: mlir.Op | None = None

    def record(self, access: SharedAccess) -> None:
        self._since.append(access)

    def place_tentative(self) -> None:
        """Emit a barrier that stays only if an access after it conflicts with one before it."""
        self.resolve()
        self._before, self._since = self._since, []
        self._tentative = self._emit()

    def resolve(self) -> None:
        """Keep the tentative barrier or erase it."""
        if self._tentative is None:
            return
        if not any(a.conflicts_with(b) for a in self._before for b in self._since):
            self._tentative.erase()
            self._since = [*self._before, *self._since]
        self._before, self._tentative = [], None

    def synchronized(self) -> None:
        """Note that all threads reached a barrier here."""
        self.resolve()
        self._since = []

    def record_after_barrier(self, access: SharedAccess) -> None:
        """Record the next access, after a barrier if it conflicts with an earlier one."""
        if any(earlier.conflicts_with(access) for earlier in self._since):
            self.synchronized()
            self._emit()
        self.record(access)


@dataclass(frozen=True)
class ElementKey:
    """An element of a buffer that one thread accesses: in which iteration of its loop and vector lane."""

    root: mlir.Value
    distribution: Hashable
    iteration: int
    lane: int


class RowRegisters:
    """Elements that threads have in registers across segments, and stores that no one has read since."""

    def __init__(self) -> None:
        self._values: dict[ElementKey, mlir.Value] = {}
        self._unread_stores: dict[tuple[mlir.Value, Hashable], mlir.Op] = {}
        self._read: list[mlir.Value] = []

    def value(self, key: ElementKey | None) -> mlir.Value | None:
        """The value that was last written to the element ``key``, if it is known."""
        return None if key is None else self._values.get(key)

    def read(self, root: mlir.Value) -> None:
        """Note a read of the buffer from memory: its stores stay."""
        self._unread_stores = {key: store for key, store in self._unread_stores.items() if key[0] != root}
        self._read.append(root)

    def write(self, root: mlir.Value, key: ElementKey | None, value: mlir.Value) -> None:
        """Note a write of an element of the buffer; without a key, of an unknown one."""
        self._values = {
            element: held_value
            for element, held_value in self._values.items()
            if element.root != root or (key is not None and element.distribution == key.distribution)
        }
        if key is not None:
            self._values[key] = value

    def stored(self, root: mlir.Value, elements: Hashable, store: mlir.Op) -> None:
        """Note a store, and erase an earlier one to the same elements that no one has read."""
        if (root, elements) in self._unread_stores:
            self._unread_stores[root, elements].erase()
        self._unread_stores[root, elements] = store

    def erase_unread_stores(self, roots: set[mlir.Value]) -> None:
        """Erase the stores to buffers that no later code reads."""
        for (root, _), store in self._unread_stores.items():
            if root in roots and root not in self._read:
                store.erase()
        self._unread_stores = {}

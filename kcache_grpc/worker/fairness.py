"""A queue that is fair between callers: requests of one caller delay its own, not those of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of callers; callers take turns, the items of one keep their order."""

    def __init__(self) -> None:
        #: In the order of their turns; none is empty.
        self._waiting: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[T]:
        for items in self._waiting.values():
            yield from items

    def append(self, caller: str, item: T) -> None:
        """Adds the last item of ``caller``."""
        self._waiting.setdefault(caller, deque()).append(item)

    def popleft(self, busy: Container[str] = ()) -> T:
        """Removes the first item of the caller whose turn it is: of those that are not ``busy``, if any.

        Raises ``IndexError`` when there is none.
        """
        callers = iter(self._waiting)
        first = next(callers, None)
        if first is None:
            raise IndexError("the queue is empty")
        caller = first if first not in busy else next((each for each in callers if each not in busy), first)
        items = self._waiting.pop(caller)
        item = items.popleft()
        if items:
            self._waiting[caller] = items  # behind all others
        return item

    def remove(self, caller: str, item: T) -> None:
        """Removes an item, if it is there."""
        items = self._waiting.get(caller)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._waiting[caller]

    def holds_others(self, caller: str) -> bool:
        """Whether somebody else than ``caller`` waits."""
        return any(other != caller for other in self._waiting)

    def all_of(self, callers: Container[str]) -> bool:
        """Whether only ``callers`` wait."""
        return all(caller in callers for caller in self._waiting)

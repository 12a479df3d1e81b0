"""What was found."""

from __future__ import annotations

from dataclasses import dataclass

#: Places that a refusal names; it counts all.
_PLACES = 8


@dataclass(frozen=True)
class Refusal:
    """An operation that is refused, as often as ``count`` says; ``where`` has the first places, if known.

    ``op`` is empty where the program as a whole is refused.
    """

    op: str
    reason: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """``operations`` are those of the program, in its own format, 0 where they were not counted.

    ``note`` says what was not looked at.
    """

    operations: int
    refusals: tuple[Refusal, ...]
    note: str = ""

    @property
    def supported(self) -> int:
        """Operations that nothing was found against."""
        return max(self.operations - sum(refusal.count for refusal in self.refusals if refusal.op), 0)


class Found:
    """Refusals so far: one for each operation, reason and place."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, op: str, reason: str, where: str) -> None:
        """One more."""
        self._places.setdefault((op, reason), []).append(where)

    def refusals(self) -> tuple[Refusal, ...]:
        """Equal ones together, in the order in which they were found."""
        return tuple(
            Refusal(op, reason, len(places), tuple(dict.fromkeys(filter(None, places)))[:_PLACES])
            for (op, reason), places in self._places.items()
        )

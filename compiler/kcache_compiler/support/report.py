"""The result of a support check."""

from __future__ import annotations

from dataclasses import dataclass

#: Most locations of one rejection; its count covers all. ``torch.compile`` leaves out what they name.
_MAX_LOCATIONS = 500


@dataclass(frozen=True)
class Rejection:
    """An operation that is rejected ``count`` times; ``where`` are the first locations, as far as known.

    ``op`` is empty if the program as a whole is rejected.
    """

    op: str
    reason: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """``operations`` is the number of operations of the program in its own format, 0 if they were not
    counted.

    ``note`` says what was not checked.
    """

    operations: int
    rejections: tuple[Rejection, ...]
    note: str = ""

    @property
    def supported(self) -> int:
        """The number of operations that are not rejected."""
        return max(self.operations - sum(rejection.count for rejection in self.rejections if rejection.op), 0)


class RejectionCounts:
    """Collects rejections; those of one operation and reason are counted."""

    def __init__(self) -> None:
        self._locations: dict[tuple[str, str], list[str]] = {}

    def add(self, op: str, reason: str, where: str) -> None:
        """Add a rejection at a location, which may be empty."""
        self._locations.setdefault((op, reason), []).append(where)

    def rejections(self) -> tuple[Rejection, ...]:
        """Return the rejections in the order of their first occurrence."""
        return tuple(
            Rejection(op, reason, len(where), tuple(dict.fromkeys(filter(None, where)))[:_MAX_LOCATIONS])
            for (op, reason), where in self._locations.items()
        )

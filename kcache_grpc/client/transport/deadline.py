"""Deadlines: one budget of seconds for a whole call of the client."""

from __future__ import annotations

import time

from kcache_grpc.errors import Unavailable


class OutOfTime(Unavailable):
    """The caller's own timeout passed. The work at the service goes on."""


class Deadline:
    """When a call has to end; ``seconds`` is what it was given."""

    __slots__ = ("ends", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ends = time.monotonic() + seconds

    def left(self, most: float = float("inf")) -> float:
        """Seconds that are left, at most ``most``. Raises ``OutOfTime`` when there are none."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise OutOfTime(
                f"no answer within the timeout of {self.seconds:g} s; what the service began goes on there",
                deadline="client",
            )
        return min(left, most)

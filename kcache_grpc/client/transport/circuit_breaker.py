"""Stops asking a server that does not answer, and notices when it does again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from kcache_grpc.errors import Unavailable

#: Seconds until the first probe of a server that was given up, and the most between two probes.
FIRST_COOLDOWN = 1.0
LONGEST_COOLDOWN = 30.0


class CircuitBreaker:
    """Shared by all calls to one server; thread-safe.

    Closed: every attempt is admitted. After ``grace_period`` seconds of nothing but failures it opens, and
    attempts fail at once. After a cooldown one attempt is let through as a probe: if it succeeds the
    breaker closes, else it stays open for twice as long, up to ``LONGEST_COOLDOWN``.
    A server that answered before gets ``grace_period_known``: it may be restarting. One that never did and
    refuses the connection gets none.
    """

    def __init__(
        self, grace_period_new: float, grace_period_known: float, clock: Callable[[], float]
    ) -> None:
        self._grace_period_new = grace_period_new
        self._grace_period_known = grace_period_known
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = False
        self._failing_since: float | None = None
        self._cooldown = 0.0
        self._probe_at: float | None = None
        self._probing = False

    @property
    def open(self) -> bool:
        """Whether the server is given up for now."""
        return self._probe_at is not None

    def admit(self) -> None:
        """Before an attempt. Raises ``Unavailable`` when it must not be made."""
        if not self.open:
            return
        with self._lock:
            if self._probe_at is None:
                return
            wait = self._probe_at - self._clock()
            if wait > 0 or self._probing:
                raise Unavailable(
                    f"the service did not answer; it is asked again in {max(wait, 0):.1f} s", breaker="open"
                )
            self._probing = True

    def succeeded(self) -> None:
        """The server answered, if only with its own error."""
        if self._answered and self._failing_since is None and self._probe_at is None:
            return
        with self._lock:
            self._answered = True
            self._failing_since = self._probe_at = None
            self._probing = False
            self._cooldown = 0.0

    def failed(self, *, refused: bool = False) -> None:
        """An attempt found no server. ``refused``: the machine said that there is none."""
        with self._lock:
            now = self._clock()
            if self._failing_since is None:
                self._failing_since = now
            grace_period = self._grace_period_known if self._answered else self._grace_period_new
            nobody = refused and not self._answered
            if nobody or self._probing or now - self._failing_since >= grace_period:
                self._open(now)

    def abandoned(self) -> None:
        """An attempt ended without telling anything about the server."""
        with self._lock:
            self._probing = False

    def _open(self, now: float) -> None:
        self._probing = False
        self._cooldown = min(max(self._cooldown * 2, FIRST_COOLDOWN), LONGEST_COOLDOWN)
        self._probe_at = now + self._cooldown * random.uniform(0.8, 1.2)  # noqa: S311  (spreads probes)

"""Limits what an unresponsive object store costs: the time of one thread, not of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from kcache_grpc.storage.errors import StoreUnavailable

#: Seconds after which a failure was a wait. Refusals take about one.
_LONG = 5.0


class CircuitBreaker:
    """Opens after a call that took long to fail: one call at a time tries again, others fail at once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._trying = False
        #: Whether the last call that ended had waited in vain.
        self.silent = False

    @contextmanager
    def call(self) -> Generator[None]:
        """Around a call."""
        tries = self._enter()
        began = time.monotonic()
        try:
            yield
            self.silent = False
        except StoreUnavailable:
            if time.monotonic() - began > _LONG:
                self.silent = True
            raise
        finally:
            if tries:
                self._trying = False

    def _enter(self) -> bool:
        with self._lock:
            if self.silent and self._trying:
                raise StoreUnavailable(f"{self._url} does not answer; another call is trying it")
            self._trying = self._trying or self.silent
            return self.silent

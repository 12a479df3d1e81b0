"""Keeps leases alive from a thread of its own, which neither compiling nor a busy event loop can starve."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from kcache_grpc.storage.contract import Store
from kcache_grpc.storage.errors import LeaseLost, StorageError
from kcache_grpc.storage.records import Lease

logger = logging.getLogger("kcache.service")

T = TypeVar("T")


class LeaseKeeper:
    """Renews each held lease at a third of its time to live and writes down the stages of its compile."""

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self.ttl = ttl
        self._changed = threading.Condition()
        self._held: set[Lease] = set()
        self._stages: deque[tuple[Lease, str]] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kcache-leases", daemon=True)
        self._thread.start()

    def hold(self, lease: Lease) -> None:
        """From now on ``lease`` is renewed."""
        with self._changed:
            self._held.add(lease)

    def let_go(self, lease: Lease) -> None:
        """``lease`` is renewed no more; stages not yet written are dropped."""
        with self._changed:
            self._held.discard(lease)

    def report(self, lease: Lease, stage: str) -> None:
        """Writes a stage for those who wait in other processes. Returns at once."""
        with self._changed:
            self._stages.append((lease, stage))
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread; leases still held expire unless released."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self.ttl / 3
        while True:
            with self._changed:
                if not self._stages and not self._closed:
                    self._changed.wait(max(0.0, due - time.monotonic()))
                if self._closed:
                    return
                stages, self._stages = self._stages, deque()
                held = set(self._held)
            for lease, stage in stages:
                if lease in held:
                    self._try(lease, self._store.report_stage, stage)
            if time.monotonic() >= due:
                due = time.monotonic() + self.ttl / 3
                for lease in held:
                    self._try(lease, self._store.heartbeat_lease, self.ttl)

    def _try(self, lease: Lease, call: Callable[[Lease, T], None], argument: T) -> None:
        try:
            call(lease, argument)
        except LeaseLost:
            self.let_go(lease)  # publishing will say so, by the fencing token
        except StorageError as error:
            logger.warning("lease on %s: %s", lease.kernel_digest.hex()[:12], error)

"""Renews leases from a thread of its own, which neither compiling nor a busy event loop can starve."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import LeaseLost, StorageError
from kcache_grpc.storage.records import Lease

logger = logging.getLogger("kcache.service")

#: A heartbeat that failed is tried again after this part of the time to live: the store may be restarting.
_RETRY_FACTOR = 15
#: Seconds for which stages wait to be written together: a compile may have fifty in a tenth of a second. Of
#: compiles that end within that time no stages are written.
_WRITE_INTERVAL = 0.25


class LeaseRenewal:
    """Renews each held lease at a third of its time to live and writes down the stages of its compile."""

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self.ttl = ttl
        self._changed = threading.Condition()
        self._held: set[Lease] = set()
        #: Stages not yet written and when they will be, the earliest first.
        self._stages: dict[Lease, tuple[float, list[str]]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kcache-leases", daemon=True)
        self._thread.start()

    def add(self, lease: Lease) -> None:
        """Renew ``lease`` from now on."""
        with self._changed:
            self._held.add(lease)

    def remove(self, lease: Lease) -> None:
        """Renew ``lease`` no more; stages not yet written are dropped."""
        with self._changed:
            self._held.discard(lease)
            self._stages.pop(lease, None)

    def report(self, lease: Lease, stage: str) -> None:
        """Writes a stage soon, for waiters in other processes. Returns at once."""
        with self._changed:
            if not self._stages:
                self._changed.notify()
            _, names = self._stages.setdefault(lease, (time.monotonic() + _WRITE_INTERVAL, []))
            names.append(stage)

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
                while not self._closed:
                    first, _ = next(iter(self._stages.values()), (due, None))
                    wake_at = min(due, first)
                    if (left := wake_at - time.monotonic()) <= 0:
                        break
                    self._changed.wait(left)
                if self._closed:
                    return
                stages = self._due_stages()
                leases = set(self._held)
            for lease, names in stages.items():
                if lease in leases:
                    self._try(lease, partial(self._store.report_stage, lease, *names))
            if time.monotonic() >= due:
                renewed = [
                    self._try(lease, partial(self._store.heartbeat_lease, lease, self.ttl))
                    for lease in leases
                ]
                due = time.monotonic() + self.ttl / (3 if all(renewed) else _RETRY_FACTOR)

    def _due_stages(self) -> dict[Lease, list[str]]:
        """Stages that are to be written now. Holds the lock."""
        now = time.monotonic()
        due_stages = {lease: names for lease, (when, names) in self._stages.items() if when <= now}
        for lease in due_stages:
            del self._stages[lease]
        return due_stages

    def _try(self, lease: Lease, call: Callable[[], None]) -> bool:
        """Whether nothing is left to be done. Never raises: the thread serves all leases."""
        try:
            call()
        except LeaseLost:
            self.remove(lease)  # publishing will say so, by the fencing token
        except StorageError as error:
            logger.warning("lease on %s: %s", lease.kernel_digest.hex()[:12], error)
            return False
        except Exception:
            logger.exception("lease on %s", lease.kernel_digest.hex()[:12])
            return False
        return True

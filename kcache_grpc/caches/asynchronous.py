"""Calls of a cache on an executor of the caller."""

from __future__ import annotations

from concurrent.futures import Executor, Future

from kcache_grpc.caches.base import Cache, Key, Value


class AsyncCache(Cache[Key, Value]):
    """A cache whose operations may wait for a device or a network, and can run on an executor.

    A future has the result of ``get`` or ``insert``, or raises what it raises. A call that is cancelled
    before the executor begins it has no effect.
    """

    def get_async(self, key: Key, executor: Executor) -> Future[Value | None]:
        """Submits ``get(key)`` to ``executor``. Raises ``RuntimeError`` if the executor is shut down."""
        return executor.submit(self.get, key)

    def insert_async(self, key: Key, value: Value, executor: Executor) -> Future[bool]:
        """Submits ``insert(key, value)`` to ``executor``. Raises ``RuntimeError`` if it is shut down.

        ``value`` is encoded when the call runs: do not change a list or a dict before the future is done.
        """
        return executor.submit(self.insert, key, value)

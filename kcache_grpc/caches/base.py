"""The interface of every cache, and of those whose calls can run on an executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(ABC, Generic[Key, Value]):
    """A mapping whose entries are inserted once and never overwritten.

    Keys and values are built from ``str``, ``int``, ``bytes``, ``bool``, ``float``, ``tuple``, ``list`` and
    ``dict``; containers may also hold ``None``. ``kcache_grpc.caches.encoding`` defines which of them are
    equal: ``1``, ``True`` and ``1.0`` are three keys. Every other type, and ``None`` as a whole key or value,
    raises ``CacheError``.

    Implementations are safe for concurrent use by threads, and by processes where the entries are outside of
    the process. A value that ``get`` returns belongs to the caller: changing it does not change the cache.
    """

    @abstractmethod
    def get(self, key: Key) -> Value | None:
        """Returns the value of ``key``, or ``None`` if the key does not exist.

        Raises:
            CacheError: the key has an unsupported type, or its entry is damaged; the message names the key.
        """

    @abstractmethod
    def insert(self, key: Key, value: Value) -> bool:
        """Adds an entry. Returns ``True``, or ``False`` without any change if the key exists.

        Of concurrent calls with one key exactly one returns ``True``; every later ``get`` returns its value.

        Raises:
            CacheError: the key or the value has an unsupported type or exceeds a limit; nothing is added.
        """


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

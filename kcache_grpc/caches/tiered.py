"""A cache in tiers: a fast one in front of a shared one."""

from __future__ import annotations

import contextlib

from kcache_grpc.caches.base import AsyncCache, Cache, Key, Value
from kcache_grpc.caches.encoding import decode, encode_key, encode_value
from kcache_grpc.errors import ArgumentError, CacheError, KcacheError, Unavailable


class TieredCache(AsyncCache[Key, Value]):
    """Several caches as one, such as ``TieredCache(InMemoryCache(), OnDiskCache(), RemoteCache(address))``.

    ``get`` asks the tiers in order and inserts a hit into the tiers before it. The last tier decides which
    ``insert`` of a key succeeds: processes that share it, with their own tiers in front of it, see one
    winner. An entry is in a tier only if the tiers after it had it, unless it was inserted there directly or
    one of those could not store it.

    Args:
        tiers: at least one cache, the fastest first and the most widely shared last.
        skip_unavailable: treat a tier that raises ``Unavailable`` as absent: ``get`` is then a miss, and the
            last tier that is available decides an ``insert``. Processes that insert one key while the shared
            tier is unavailable may each keep a value of their own. By default ``Unavailable`` is raised.

    Raises:
        ArgumentError: no tier is given.
    """

    def __init__(self, *tiers: Cache[Key, Value], skip_unavailable: bool = False) -> None:
        if not tiers:
            raise ArgumentError("TieredCache needs at least one tier, the fastest first")
        self.tiers = tiers
        self._skip_unavailable = skip_unavailable

    def get(self, key: Key) -> Value | None:
        """Returns the value of ``key`` in the first tier that has it, or ``None``.

        Raises:
            CacheError: the entry is damaged in one tier, which has moved it to ``corrupt/``, and no other
            tier has it. Unavailable: a tier cannot be reached, and no other tier has the key.
        """
        encode_key(key)
        failure: CacheError | Unavailable | None = None
        for position, tier in enumerate(self.tiers):
            try:
                value = tier.get(key)
            except CacheError as error:
                failure = failure or error
                continue
            except Unavailable as error:
                failure = failure or (None if self._skip_unavailable else error)
                continue
            if value is not None:
                self._fill(position, key, value)
                return value
        if failure is not None:
            raise failure
        return None

    def insert(self, key: Key, value: Value) -> bool:
        """Adds an entry to all tiers; ``False`` if a tier has the key, whose value fills those before it.

        Raises:
            CacheError: the key or the value cannot be encoded, or the deciding tier cannot store it.
            Unavailable: the last tier cannot be reached; nothing is added to the others.
        """
        encode_key(key)
        # Each tier encodes the value: they get one that the caller cannot change in between.
        value = decode(encode_value(value))
        if any(self._value(tier, key) is not None for tier in self.tiers[:-1]):
            return False
        position, inserted = self._decide(key, value)
        if inserted:
            self._fill(position, key, value)
        elif (winner := self._value(self.tiers[position], key)) is not None:
            self._fill(position, key, winner)
        return inserted

    def _decide(self, key: Key, value: Value) -> tuple[int, bool]:
        """The position of the last tier that is available, and whether it inserted the entry."""
        for position in range(len(self.tiers) - 1, 0, -1):
            inserted = self._insert_into(position, key, value)
            if inserted is not None:
                return position, inserted
        return 0, self.tiers[0].insert(key, value)

    def _insert_into(self, position: int, key: Key, value: Value) -> bool | None:
        """Whether the tier inserted the entry; ``None`` if it is skipped."""
        try:
            return self.tiers[position].insert(key, value)
        except Unavailable:
            if self._skip_unavailable:
                return None
            raise

    def _value(self, tier: Cache[Key, Value], key: Key) -> Value | None:
        """The value of a valid entry of ``tier``; a tier that fails has none."""
        try:
            return tier.get(key)
        except KcacheError:
            return None

    def _fill(self, position: int, key: Key, value: Value) -> None:
        """Inserts into the tiers before ``position``; a tier that fails remains without the entry.

        The first tier is the last one to be filled: whoever finds the entry there finds it in the others.
        """
        for tier in reversed(self.tiers[:position]):
            with contextlib.suppress(KcacheError):
                tier.insert(key, value)

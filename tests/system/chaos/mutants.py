"""``python -m tests.system.chaos.mutants NAME serve ...``: ``kcache serve`` with a promise broken at
times.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.cli import main
from kcache_grpc.server.servicers.kernel_cache import KernelCacheServicer
from kcache_grpc.storage.records import Namespace, SpecRecord
from kcache_grpc.storage.sql.graphs.graphs import SqlGraphs
from kcache_grpc.storage.sql.graphs.writes import Entry, Written
from kcache_grpc.storage.sql.store import SqlStore

_turns = itertools.count(1)


def _every(nth: int) -> bool:
    return next(_turns) % nth == 0


class _Undone(Exception):
    """Rolls a transaction back."""


def loses() -> None:
    """Says that programs are stored, and undoes the transaction."""
    right = SqlGraphs._write_entries

    def wrong(self: SqlGraphs, namespace: Namespace, entries: Sequence[Entry]) -> list[Written]:
        database, kept = self._db, []
        transact = database.transact

        def undo(work: Callable[[Any], Any], **how: Any) -> Any:
            def twice(connection: Any) -> Any:
                kept.append(work(connection))
                raise _Undone

            try:
                return transact(twice, **how)
            except _Undone:
                return kept[-1]

        if not _every(9):
            return right(self, namespace, entries)
        database.transact = undo  # type: ignore[method-assign]
        try:
            return right(self, namespace, entries)
        finally:
            database.transact = transact  # type: ignore[method-assign]

    SqlGraphs._write_entries = wrong  # type: ignore[method-assign]


def duplicates() -> None:
    """Gives a key that another program has."""
    right = KernelCacheServicer.StoreGraph

    async def wrong(self: Any, request: Any, context: Any) -> Any:
        reply = await right(self, request, context)
        return pb.StoreGraphResponse(**{**_fields(reply), "key": max(1, reply.key - _every(20))})

    KernelCacheServicer.StoreGraph = wrong  # type: ignore[method-assign]


def overwrites() -> None:
    """What stands under a key is another text the next time."""
    right = SqlStore.get_spec

    def wrong(self: SqlStore, namespace: Namespace, key: int) -> SpecRecord | None:
        other = right(self, namespace, key + 1) if _every(3) else None
        return right(self, namespace, key) if other is None else replace(other, key=key)

    SqlStore.get_spec = wrong  # type: ignore[method-assign]


def recompiles() -> None:
    """A kernel is made anew for each who finds it, with a manifest of its own."""
    from kcache_grpc.server.servicers import translate

    right = translate.signed
    stamps = itertools.count()

    def wrong(value: Any) -> Any:
        return right(replace(value, payload=value.payload + b"%d" % next(stamps)) if _every(30) else value)

    translate.signed = wrong


def corrupts() -> None:
    """Sends a byte that is not the artifact's."""
    right = KernelCacheServicer.ReadArtifact

    async def wrong(self: Any, request: Any, context: Any) -> Any:
        async for reply in right(self, request, context):
            flipped = (
                reply.data[:-1] + bytes([reply.data[-1] ^ 1]) if _every(5) and reply.data else reply.data
            )
            yield pb.ReadArtifactResponse(data=flipped, size_bytes=reply.size_bytes)

    KernelCacheServicer.ReadArtifact = wrong  # type: ignore[method-assign, assignment]


def stalls() -> None:
    """Lets a client wait for ever."""
    right = KernelCacheServicer.LookupGraph

    async def wrong(self: Any, request: Any, context: Any) -> Any:
        if _every(20):
            await asyncio.Event().wait()
        return await right(self, request, context)

    KernelCacheServicer.LookupGraph = wrong  # type: ignore[method-assign]


def counts_twice() -> None:
    """Takes a key that nobody gets."""
    right = SqlStore.count_specs

    def wrong(self: SqlStore, namespace: Namespace) -> int:
        return right(self, namespace) + _every(4)

    SqlStore.count_specs = wrong  # type: ignore[method-assign]


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: value for field, value in message.ListFields()}


MUTANTS = {
    each.__name__: each
    for each in (loses, duplicates, overwrites, recompiles, corrupts, stalls, counts_twice)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    sys.exit(main())

"""Reading the audit log: pages, exports, proofs, heads."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.model.merkle import inclusion_path
from kcache_grpc.service.audit.seal_chains import Head, head
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller
from kcache_grpc.storage.audit.filter import Filter, parse_filter
from kcache_grpc.storage.audit.sealing import Seal, event_leaf
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditRecord, Namespace

_PAGE, _MOST_PAGE = 100, 1000
_SEALS, _MOST_SEALS = 10, 25
#: Seconds that a page with few events goes on looking for more.
_PAGE_TIMEOUT = 1.0
_ORDERS = {"": False, "id": False, "id asc": False, "id desc": True}


@dataclass(frozen=True)
class Page:
    """Some events, and what asks for the next ones."""

    records: tuple[AuditRecord, ...]
    next_token: str


@dataclass(frozen=True)
class Proof:
    """An event, and the path from it to the root of its seal's tree; no ``seal``: it has none yet."""

    record: AuditRecord
    leaf: bytes
    seal: Seal | None
    index: int
    path: tuple[bytes, ...]


@dataclass(frozen=True)
class Heads:
    """Where every chain stands."""

    store_id: str
    at: int
    heads: tuple[tuple[str, Head], ...]


class AuditLog:
    """The use cases. ``flush`` writes down what waits, so that readers see their own requests."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        namespaces: Namespaces,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._threads = threads
        self._namespaces = namespaces
        self._flush = flush

    async def events(self, caller: Caller, filter: str, page_size: int, page_token: str, order: str) -> Page:
        """A page. Raises ``ArgumentError``."""
        condition = parse_filter(filter)
        if order not in _ORDERS:
            raise ArgumentError(f"order_by is {order!r}; use id or id desc", field="order_by")
        mark = hashlib.sha256(f"{_ORDERS[order]} {filter}".encode()).hexdigest()[:8]
        cursor = _cursor(page_token, mark)
        namespace = await self._namespaces.get(caller.namespace)
        if cursor is None:
            await self._flush()
        limit = min(page_size or _PAGE, _MOST_PAGE)
        records, cursor = await self._look(namespace, condition, cursor, _ORDERS[order], limit)
        return Page(tuple(records), "" if cursor is None else f"{cursor}-{mark}")

    async def _look(
        self, namespace: Namespace, condition: Filter, cursor: int | None, newest_first: bool, limit: int
    ) -> tuple[list[AuditRecord], int | None]:
        """Reads until the page is full, the log ends or the timeout expires."""
        records: list[AuditRecord] = []
        until = time.monotonic() + _PAGE_TIMEOUT
        while True:
            page = await self._threads(
                self._store.find_events,
                namespace,
                condition,
                cursor=cursor,
                newest_first=newest_first,
                limit=limit - len(records),
            )
            records += page.records
            cursor = page.cursor
            if cursor is None or len(records) >= limit or time.monotonic() > until:
                return records, cursor

    async def export(
        self, caller: Caller, filter: str, after_id: int
    ) -> AsyncIterator[tuple[AuditRecord, ...]]:
        """All events up to now, oldest first, in parts. Raises ``ArgumentError``."""
        condition = parse_filter(filter)
        if not 0 <= after_id < 2**63:
            raise ArgumentError(f"after_id is {after_id}; use an id, or 0", field="after_id")
        namespace = await self._namespaces.get(caller.namespace)
        await self._flush()
        last = await self._threads(self._store.last_event_id)
        cursor: int | None = after_id
        while cursor is not None and cursor < last:
            page = await self._threads(
                self._store.find_events, namespace, condition, cursor=cursor, limit=_MOST_PAGE
            )
            records = tuple(record for record in page.records if record.id <= last)
            if records:
                yield records
            cursor = page.cursor
            await asyncio.sleep(0)

    async def proof(self, caller: Caller, event_id: int) -> Proof:
        """One event and its proof. Raises ``NotFound``."""
        namespace = await self._namespaces.get(caller.namespace)
        return await self._threads(self._prove, namespace, event_id)

    def _prove(self, namespace: Namespace, event_id: int) -> Proof:
        events = self._store.read_events([event_id] if 0 < event_id < 2**63 else [])
        record = events.get(event_id)
        if record is None or record.namespace_id != namespace.id:
            raise NotFound(f"namespace {namespace.name} has no audit event {event_id}", id=str(event_id))
        seal = self._store.find_seal(record.writer, event_id)
        if seal is None:
            return Proof(record, event_leaf(record), None, 0, ())
        records = self._store.read_events(seal.event_ids)
        leaves = [event_leaf(records[number]) for number in seal.event_ids if number in records]
        index = seal.event_ids.index(event_id)
        return Proof(record, event_leaf(record), seal, index, tuple(inclusion_path(leaves, index)))

    async def seals(self, writer: str, page_size: int, page_token: str) -> tuple[Sequence[Seal], str]:
        """Seals of a chain, and what asks for the next ones. Raises ``ArgumentError``."""
        if not writer:
            raise ArgumentError("the request names no writer", field="writer")
        after = _cursor(page_token, "s") or 0
        limit = min(page_size or _SEALS, _MOST_SEALS)
        page = [seal for seal, _ in await self._threads(self._store.list_seals, writer, after, limit + 1)]
        more = len(page) > limit
        return page[:limit], f"{page[limit - 1].sequence}-s" if more else ""

    async def heads(self) -> Heads:
        """Where every chain stands."""
        return await self._threads(self._heads)

    def _heads(self) -> Heads:
        heads = [(each.writer, head(self._store, each.writer)) for each in self._store.list_writers()]
        sealed = tuple((writer, last) for writer, last in heads if last.sequence)
        return Heads(self._store.id, time.time_ns() // 1000, sealed)


def _cursor(token: str, mark: str) -> int | None:
    """Where a page begins. Raises ``ArgumentError``."""
    if not token:
        return None
    number, _, suffix = token.partition("-")
    if not (number.isascii() and number.isdigit() and len(number) < 19 and suffix == mark):
        raise ArgumentError(
            "page_token is not one that this method gave for the same filter and order", field="page_token"
        )
    return int(number)

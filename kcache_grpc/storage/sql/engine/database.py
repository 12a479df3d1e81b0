"""The interface of a database: reads in autocommit, writes in one transaction."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Executable

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.change_notifications import ChangeListener, Claim, Unclaimed, Watch
from kcache_grpc.storage.objects.client import ObjectStore
from kcache_grpc.storage.sql.engine.journal import Journal

if TYPE_CHECKING:
    from kcache_grpc.storage.sql.engine.prepared import Prepared

T = TypeVar("T")


@dataclass(frozen=True)
class Removal:
    """Why rows are removed, and what the audit event of it says. ``at``: UTC microseconds."""

    namespace_id: int
    epoch: int
    writer: str
    at: int
    reason: str


#: A row: columns are attributes. SQLAlchemy would type it by its columns, which statements do not tell.
Row = Any
Rows = Sequence[Row]


def removal_event(removal: Removal, table: str, rows: int) -> dict[str, Any]:
    """The audit row of a removal. ``kcache_collect`` writes the same on Postgres."""
    words = dict.fromkeys(("origin", "actor", "peer", "request_id", "target"), "")
    numbers = dict.fromkeys(("duration_us", "byte_count", "saved_us"), 0)
    return {
        **words,
        **numbers,
        "namespace_id": removal.namespace_id,
        "epoch": removal.epoch,
        "at": removal.at,
        "writer": removal.writer,
        "kind": "collect",
        "outcome": "ok",
        "detail": json.dumps({"table": table, "rows": rows, "reason": removal.reason}),
    }


class Database(ABC):
    """One database. Safe to use from any thread, and again after a fork.

    Errors are those of ``storage.errors``.
    """

    #: Whether other machines reach it.
    shared = False
    #: Whether ``write`` costs less than ``transact``, and the time may be read before.
    cheap_writes = False
    #: Whether it answers from the memory of this machine, as a rule.
    answers_from_memory = False

    @cached_property
    def journal(self) -> Journal:
        """The audit events of committed transactions, until they are sealed."""
        return Journal()

    def short_lock_waits(self) -> AbstractContextManager[None]:
        """Within it reads of this thread wait for locks for a moment only, where the database has such."""
        return nullcontext()

    @abstractmethod
    def fetch(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Rows:
        """All rows of one reading statement, which sees what is committed."""

    @abstractmethod
    def read(self, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """As ``fetch``, by the shortest way that the driver has: for statements that hits wait for."""

    def ask(self, statement: Prepared, values: Mapping[str, Any]) -> Awaitable[Rows] | None:
        """As ``read``, for the running event loop, which does other work until the answer comes.

        ``None``, or ``StoreUnavailable`` later: it did not come this way. ``read`` knows why, or knows it.
        """
        del statement, values
        return None

    def write(self, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """One writing statement as a transaction that is not ``durable``, and the rows that it returns."""
        return self.transact(
            lambda connection: connection.execute(statement.select, values).all(), durable=False
        )

    @abstractmethod
    def transact(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run ``work`` in one writing transaction: committed when it returns, rolled back when it raises.

        ``work`` may run more than once; only the last run has an effect. What is not ``durable`` survives
        the death of processes, but not of the machine, and costs less.
        """

    @abstractmethod
    def add_specs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Mapping[bytes, int]:
        """Insert rows of ``specs`` under the next keys of their namespace, within the caller's transaction.

        At least one, of one namespace, with different digests and all columns but the key. The key by digest;
        those are left out that are there already, and all of them when the namespace is not there. Who comes
        next waits until the transaction ends.
        """

    @abstractmethod
    def collect(
        self, connection: Connection, table: str, column: str, ids: Sequence[int], removal: Removal
    ) -> int:
        """Delete the rows of an immutable ``table`` whose ``column`` is one of ``ids``; how many there were.

        Within the caller's transaction, which gets an audit event of kind ``"collect"`` when rows went. The
        only path that deletes: the triggers reject every other.
        """

    @abstractmethod
    def lease_time(self, connection: Connection | None = None) -> tuple[str, int]:
        """The clock that dates leases: its boot, and its time in microseconds.

        The database's own clock where it has one: read on ``connection`` if given.
        """

    def watch(self, listener: ChangeListener) -> Watch | None:
        """As ``NotifyingStore.watch``. This one has no notifications."""
        return None

    def claim(self, name: bytes) -> Claim | None:
        """As ``NotifyingStore.claim``. This one gives it to everybody."""
        del name
        return Unclaimed()

    @abstractmethod
    def close(self) -> None:
        """Close all connections. Idempotent."""


class SqlPart:
    """The database, its object store if there is one, the clock, and the name under which this
    store writes audit events.
    """

    def __init__(
        self, database: Database, clock: Clock, writer: str, objects: ObjectStore | None = None
    ) -> None:
        self._db = database
        self._objects = objects
        self._clock = clock
        self._writer = writer

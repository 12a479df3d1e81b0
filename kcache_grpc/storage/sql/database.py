"""What the statements need of a database: reads in autocommit, writes in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Executable

T = TypeVar("T")
#: A row: columns are attributes. SQLAlchemy would type it by its columns, which statements do not tell.
Row = Any
Rows = Sequence[Row]


class Database(ABC):
    """One database. Safe to use from any thread, and again after a fork.

    Errors are those of ``storage.errors``.
    """

    @abstractmethod
    def fetch(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Rows:
        """All rows of one reading statement, which sees what is committed."""

    @abstractmethod
    def transact(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run ``work`` in one writing transaction: committed when it returns, rolled back when it raises.

        ``work`` may run more than once; only the last run has an effect. What is not ``durable`` survives
        the death of processes, but not of the machine, and costs less.
        """

    @abstractmethod
    def lease_time(self) -> tuple[str, int]:
        """The clock that dates leases: its boot, and its time in microseconds."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. Idempotent."""

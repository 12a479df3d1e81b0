"""Assertions of ``SourceAssertions``: what actors say that a source graph lowers to. Part of the contract."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kcache_grpc.storage.records import Namespace

#: The quota that counts the bytes of assertions.
ASSERTION_BYTES = "assertion_bytes"


@dataclass(frozen=True)
class AssertionDraft:
    """An assertion that is offered. ``actor`` and ``role`` are those of an authenticated principal."""

    source_digest: bytes
    actor: str
    record: bytes = field(repr=False)
    programs: tuple[bytes, ...] = ()
    toolchain: str = ""
    role: str = ""

    @cached_property
    def record_digest(self) -> bytes:
        """SHA-256 of the record."""
        return hashlib.sha256(self.record).digest()

    @property
    def size(self) -> int:
        """Bytes that count against the quota."""
        return len(self.record) + 32 * len(self.programs) + len(self.toolchain.encode())


@dataclass(frozen=True)
class AssertionRecord:
    """A stored assertion, without the bytes of its record. ``id`` rises in the order of inserts."""

    id: int
    source_digest: bytes
    actor: str
    role: str
    record_digest: bytes
    record_size: int
    programs: tuple[bytes, ...]
    toolchain: str
    size: int
    created_at: int
    #: Whether it was disputed: it is returned to nobody.
    quarantined: bool = False


@dataclass(frozen=True)
class AssertionOutcome:
    """The stored assertion of the actor, and whether this call stored it."""

    assertion: AssertionRecord
    inserted: bool


@dataclass(frozen=True)
class AssertionConflict:
    """A record that an actor offered under a digest for which it had asserted another one."""

    source_digest: bytes
    actor: str
    kept: bytes
    offered: bytes
    created_at: int


@dataclass(frozen=True)
class Dispute:
    """Why an assertion is in quarantine. ``observed``: digest of the record that ``disputed_by`` derived."""

    source_digest: bytes
    actor: str
    record_digest: bytes
    observed: bytes
    disputed_by: str
    reason: str
    created_at: int


@dataclass(frozen=True)
class AssertionTotals:
    """Counts of the current epoch; ``assertions`` and ``bytes`` include those in quarantine."""

    assertions: int
    bytes: int
    conflicts: int
    quarantined: int


class AssertionStore(ABC):
    """Assertions of a namespace in its current epoch, at most one for each source digest and actor.

    Methods raise ``InvalidValue`` for digests that do not have 32 bytes.
    """

    @abstractmethod
    def put_assertion(self, namespace: Namespace, draft: AssertionDraft) -> AssertionOutcome:
        """Insert an assertion unless its actor has one under this source digest; the stored one.

        Another record than the stored one is recorded as a conflict. Raises ``QuotaExceeded``.
        """

    @abstractmethod
    def find_assertions(
        self,
        namespace: Namespace,
        source_digests: Sequence[bytes],
        actor: str,
        roles: Sequence[str] = (),
        *,
        quarantined: bool = False,
    ) -> Mapping[bytes, tuple[AssertionRecord, ...]]:
        """What ``actor`` may trust, by source digest: its own first, then those of ``roles``, oldest first.

        Assertions in quarantine are left out, unless ``quarantined``.
        """

    @abstractmethod
    def read_records(
        self, namespace: Namespace, assertions: Sequence[AssertionRecord]
    ) -> Mapping[int, bytes]:
        """The records by id of the assertion, checked.

        One that is damaged removes its assertion, with an audit event, and is left out, as are those that are
        gone.
        """

    @abstractmethod
    def dispute_assertion(
        self,
        namespace: Namespace,
        assertion: AssertionRecord,
        observed: bytes,
        disputed_by: str,
        reason: str = "",
    ) -> bool:
        """Put an assertion into quarantine; false when it was there before."""

    @abstractmethod
    def add_assertion_hits(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        """Count hits, by id of the assertion, in one transaction. Ids that are gone are left out."""

    @abstractmethod
    def list_assertions(
        self, namespace: Namespace, after_id: int = 0, limit: int = 1000
    ) -> tuple[AssertionRecord, ...]:
        """Assertions of this epoch with larger ids than ``after_id``, oldest first."""

    @abstractmethod
    def list_assertion_conflicts(
        self, namespace: Namespace, limit: int = 100
    ) -> tuple[AssertionConflict, ...]:
        """Conflicts of all epochs, youngest first."""

    @abstractmethod
    def list_disputes(self, namespace: Namespace, limit: int = 100) -> tuple[Dispute, ...]:
        """Disputes of all epochs, youngest first."""

    @abstractmethod
    def assertion_totals(self, namespace: Namespace) -> AssertionTotals:
        """Counts. Reads the assertions of the epoch from end to end: not for hot paths."""

    @abstractmethod
    def remove_assertions(
        self,
        namespace: Namespace,
        unused_since: int,
        amount: int | None = None,
        *,
        stale: bool = False,
        reason: str = "idle",
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Remove assertions made and last used before ``unused_since``, longest unused first.

        Removes at least ``amount`` bytes if there are enough, or all if it is None. ``stale``: only those
        of earlier epochs. Returns how many assertions and bytes. Each batch is one transaction with its audit
        event.
        """

    @abstractmethod
    def trusted_roles(self, namespace: Namespace) -> tuple[str, ...]:
        """Roles whose assertions all callers of the namespace may trust, sorted; none by default."""

    @abstractmethod
    def set_trusted_roles(self, namespace: Namespace, roles: Sequence[str]) -> bool:
        """Set them, for all epochs; true when that changed anything.

        Raises ``MissingReference`` for a namespace that is not stored.
        """

"""The contract of audit logs: events are appended, found, sealed in chains, and pruned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcache_grpc.storage.audit.filter import Filter
from kcache_grpc.storage.audit.sealing import Checkpoint, Seal, Writer
from kcache_grpc.storage.records import AuditRecord, Namespace

#: Events that one question looks at, at most: what bounds a filter that nothing passes.
SPAN = 2000
#: Below all ids but one, that of rows that somebody put there by hand too.
BEFORE_ALL = -(2**63)


@dataclass(frozen=True)
class EventPage:
    """Events that pass, and where to go on; ``cursor`` ``None``: there are no more ids to look at."""

    records: tuple[AuditRecord, ...]
    cursor: int | None


class AuditStore(ABC):
    """The audit log. Seals, checkpoints and writers span namespaces."""

    @property
    @abstractmethod
    def audit_writer(self) -> str:
        """The name under which this store appends, and under which its chain is sealed."""

    @abstractmethod
    def begin_sealing(self, public_key: bytes, host: str) -> None:
        """Register this writer; from here on its events are remembered for ``unsealed``."""

    @abstractmethod
    def unsealed(self, most: int) -> Sequence[tuple[int, bytes]]:
        """Ids and leaf hashes, as they were appended, of events of this store that no seal lists, rising.

        Those with the smallest ids. Transactions that commit late come with a later call.
        """

    @abstractmethod
    def sealed_by_others(self, ids: Sequence[int]) -> None:
        """Forget unsealed events: another process sealed them."""

    @abstractmethod
    def put_seal(self, seal: Seal, marks: bytes) -> bool:
        """Append a seal, once; false when its place in the chain is taken. ``marks``: see ``seal_marks``."""

    @abstractmethod
    def find_events(
        self,
        namespace: Namespace,
        condition: Filter,
        *,
        cursor: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> EventPage:
        """Events with ids beyond ``cursor`` that pass, at most ``limit``, out of at most ``SPAN``.

        These are counted where an index leads to them: a filter that asks for one job or kernel looks at its
        events only, and one that asks for a short time at those of that time.
        Ids that are there at the first page are met once each, whatever is appended meanwhile.
        """

    @abstractmethod
    def read_events(self, ids: Sequence[int]) -> Mapping[int, AuditRecord]:
        """Events of any namespace by id, those that are gone left out."""

    @abstractmethod
    def last_event_id(self) -> int:
        """The largest id of all; 0 in an empty log."""

    @abstractmethod
    def list_event_ids(self, writer: str, after_id: int, limit: int) -> Sequence[int]:
        """Ids of events of a writer beyond ``after_id``, ``BEFORE_ALL`` or more, rising."""

    @abstractmethod
    def list_writers(self) -> Sequence[Writer]:
        """Everyone who appended, sealed or registered, by name."""

    @abstractmethod
    def last_seal(self, writer: str) -> Seal | None:
        """The head of a chain."""

    @abstractmethod
    def list_seals(self, writer: str, after: int = 0, limit: int = 10) -> Sequence[tuple[Seal, bytes]]:
        """Seals with larger sequences than ``after``, rising, each with its marks."""

    @abstractmethod
    def find_seal(self, writer: str, event_id: int) -> Seal | None:
        """The seal of a chain that lists an event."""

    @abstractmethod
    def list_checkpoints(self, writer: str) -> Sequence[Checkpoint]:
        """What stands for the removed parts of a chain, rising."""

    @abstractmethod
    def wrong_summaries(self) -> Sequence[str]:
        """What the summaries of the log say otherwise than its events, in words; reads all of them.

        Where events were pruned, summaries may say more.
        """

    @abstractmethod
    def rebuild_summaries(self) -> None:
        """Sum all events again, while nobody appends. Of events that were pruned, what is known stays."""

    @abstractmethod
    def prune(self, checkpoint: Checkpoint, event_ids: Sequence[int]) -> int:
        """One transaction: the checkpoint, and away with these events and the seals up to it; how many rows.

        Goes by the path of collection, which appends an event of its own. Raises ``Conflict`` when another
        process has pruned as far.
        """

"""Values of ``BlobCache``: opaque bytes under keys that callers choose. Part of the storage contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kcache_grpc.storage.records import Namespace

#: Bytes of one chunk of a value.
CHUNK_BYTES = 1 << 20
#: The quota that counts the bytes of values.
CACHE_BYTES = "cache_bytes"


@dataclass(frozen=True)
class ValueDraft:
    """A value that is offered.

    ``chunks`` returns its bytes in pieces of any size, in order; it may be called more than once.
    ``saved_us``: microseconds that producing the value took.
    """

    key: bytes
    digest: bytes
    size: int
    chunks: Callable[[], Iterable[bytes]] = field(repr=False)
    label: str = ""
    saved_us: int = 0

    @staticmethod
    def of(key: bytes, digest: bytes, content: bytes, label: str = "", saved_us: int = 0) -> ValueDraft:
        """A value whose bytes are in memory."""
        return ValueDraft(key, digest, len(content), lambda: pieces(content), label, saved_us)


@dataclass(frozen=True)
class ValueRecord:
    """A stored value, without its bytes. ``id`` rises in the order of inserts."""

    id: int
    key: bytes
    digest: bytes
    size: int
    label: str
    saved_us: int
    created_at: int

    @property
    def chunk_count(self) -> int:
        """How many chunks hold its bytes."""
        return -(-self.size // CHUNK_BYTES)


@dataclass(frozen=True)
class PutOutcome:
    """The stored value, and whether this call stored it."""

    record: ValueRecord
    inserted: bool


@dataclass(frozen=True)
class ValueConflict:
    """A value that was offered under a key that had another one."""

    key: bytes
    kept: bytes
    offered: bytes
    actor: str
    created_at: int


@dataclass(frozen=True)
class ValueTotals:
    """What a namespace holds now, and its hits so far, those of removed values too.

    ``saved_us``: the production time of a value times its hits, summed.
    """

    values: int
    bytes: int
    hits: int
    saved_us: int


class BlobCacheStore(ABC):
    """Values of a namespace. They span epochs, and share no table with kernels.

    Methods raise ``InvalidValue`` for keys that do not have 32 bytes.
    """

    @abstractmethod
    def put_values(
        self, namespace: Namespace, drafts: Sequence[ValueDraft], actor: str = ""
    ) -> tuple[PutOutcome, ...]:
        """Insert values whose keys are not stored, all in one transaction; the stored value for each.

        A different value under a stored key is recorded as a conflict. Raises ``DigestMismatch`` for bytes
        that do not match their digest or size, and ``QuotaExceeded``: then nothing is inserted.
        """

    @abstractmethod
    def find_values(self, namespace: Namespace, keys: Sequence[bytes]) -> Mapping[bytes, ValueRecord]:
        """The stored values by key."""

    @abstractmethod
    def read_chunk(self, namespace: Namespace, record: ValueRecord, seq: int) -> bytes | None:
        """Chunk ``seq`` of a value, checked; ``None`` when the value is gone.

        A chunk that is damaged or missing removes its value, with an audit event: it can be inserted again.
        """

    @abstractmethod
    def add_value_hits(self, namespace: Namespace, hits: Mapping[int, int]) -> None:
        """Count hits, by id of the value, all in one transaction. Ids that are gone are left out."""

    @abstractmethod
    def list_values(
        self, namespace: Namespace, after_id: int = 0, limit: int = 1000
    ) -> tuple[ValueRecord, ...]:
        """Values with larger ids than ``after_id``, oldest first."""

    @abstractmethod
    def list_value_conflicts(self, namespace: Namespace, limit: int = 100) -> tuple[ValueConflict, ...]:
        """Conflicts, youngest first."""

    @abstractmethod
    def value_totals(self, namespace: Namespace) -> ValueTotals:
        """Counts. Reads an index from end to end: not for hot paths."""

    @abstractmethod
    def remove_values(
        self,
        namespace: Namespace,
        unused_since: int,
        amount: int | None = None,
        *,
        reason: str = "idle",
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Remove values made and last used before ``unused_since``, longest unused first.

        Removes at least ``amount`` bytes if there are enough, or all if it is None. Returns how many values
        and bytes. Each batch is one transaction with its audit event.
        """


def pieces(content: bytes) -> Iterator[bytes]:
    """Bytes in pieces of ``CHUNK_BYTES``."""
    for start in range(0, len(content), CHUNK_BYTES):
        yield content[start : start + CHUNK_BYTES]


def rechunked(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of ``CHUNK_BYTES``, the last one shorter. Holds one piece and one part."""
    waiting = bytearray()
    for part in parts:
        if not waiting and len(part) == CHUNK_BYTES:
            yield part
            continue
        waiting += part
        while len(waiting) >= CHUNK_BYTES:
            yield bytes(waiting[:CHUNK_BYTES])
            del waiting[:CHUNK_BYTES]
    if waiting:
        yield bytes(waiting)

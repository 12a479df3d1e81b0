"""The rows of the store in memory: dictionaries behind one lock."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from dataclasses import dataclass, field

from kcache_grpc.storage.audit.sealing import Checkpoint, Seal, Writer
from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.contract.assertions import AssertionConflict, AssertionRecord, Dispute
from kcache_grpc.storage.contract.autotune import TimingRecord
from kcache_grpc.storage.contract.blob_cache import ValueConflict, ValueRecord
from kcache_grpc.storage.contract.lifecycle import Disowned, Pin, QuarantinedRow
from kcache_grpc.storage.errors import StoreUnavailable
from kcache_grpc.storage.records import (
    AuditRecord,
    ConflictRecord,
    FailureRecord,
    Ingredients,
    KernelRecord,
    MappingRecord,
    Namespace,
    SignedBytes,
    SpecRecord,
    UsageRecord,
)

#: (namespace, digest), (namespace, epoch, digest) and the like.
Name = tuple[object, ...]


@dataclass
class HeldBlob:
    """Bytes by generation; ``None`` for one in quarantine."""

    size: int
    created_at: int
    generations: list[bytes | None] = field(default_factory=list[bytes | None])
    #: Since when bytes are in quarantine that collection has not taken away.
    bad_since: int | None = None

    @property
    def whole(self) -> bytes | None:
        """The youngest bytes that may be served."""
        return next((content for content in reversed(self.generations) if content is not None), None)


@dataclass(frozen=True)
class HeldKernel:
    """A published kernel; ``artifacts`` are kind and digest, in order."""

    id: int
    kernel: KernelRecord
    manifest: SignedBytes
    artifacts: tuple[tuple[str, bytes], ...]
    ingredients: Ingredients
    epoch: int
    compile_us: int
    created_at: int


@dataclass
class HeldLease:
    """A lease row. ``holder`` is empty once it is released."""

    holder: str
    fencing_token: int
    boot: str
    renewed_at: int
    expires_at: int
    acquired_at: int
    stages: tuple[str, ...] = ()


@dataclass
class HeldRow:
    """A kernel or mapping in quarantine, under the name that it had. ``blobs``: what it refers to."""

    row: QuarantinedRow
    name: Name
    held: HeldKernel | MappingRecord
    lifted: tuple[bytes, ...]
    blobs: tuple[bytes, ...]


@dataclass
class HeldValue:
    """A value with its bytes and counters."""

    record: ValueRecord
    content: bytes
    hits: int = 0
    last_used_at: int = 0


@dataclass
class HeldAssertion:
    """An assertion with its record and counters."""

    assertion: AssertionRecord
    record: bytes
    hits: int = 0
    last_used_at: int = 0


class State:
    """Everything, and the lock that every method takes for as long as it runs."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store_id = secrets.token_hex(16)
        self.signer = b""
        self.lock = threading.RLock()
        self.closed = False
        self.namespaces: dict[str, Namespace] = {}
        self.specs: dict[int, list[SpecRecord]] = {}
        self.keys: dict[tuple[int, bytes], int] = {}
        self.aliases: dict[tuple[int, int], int] = {}
        self.mappings: dict[Name, MappingRecord] = {}
        self.blobs: dict[tuple[int, bytes], HeldBlob] = {}
        #: When each was made.
        self.constants: dict[tuple[int, bytes], int] = {}
        self.mapping_constants: dict[Name, tuple[bytes, ...]] = {}
        self.programs: dict[tuple[int, bytes], tuple[str, bytes]] = {}
        self.program_times: dict[tuple[int, bytes], int] = {}
        self.kernels: dict[Name, HeldKernel] = {}
        self.last_kernel_id = 0
        self.leases: dict[Name, HeldLease] = {}
        self.failures: dict[Name, FailureRecord] = {}
        self.usage: dict[tuple[int, str, bytes], UsageRecord] = {}
        #: How many kernels of a namespace were removed.
        self.removed_kernels: Counter[int] = Counter()
        self.timings: dict[tuple[int, bytes, str, str, str], TimingRecord] = {}
        #: By id, rising; ``next_event`` is never taken back.
        self.audit: dict[int, AuditRecord] = {}
        self.next_event = 1
        self.writer = f"memory-{secrets.token_hex(8)}"
        self.sealing = False
        self.unsealed: set[int] = set()
        self.seals: list[tuple[Seal, bytes]] = []
        self.checkpoints: list[Checkpoint] = []
        self.audit_writers: dict[str, Writer] = {}
        #: Names of namespaces in which kernels for lower targets will do.
        self.compatible_targets: set[str] = set()
        self.quotas: dict[tuple[int, str], tuple[int, str]] = {}
        self.pins: dict[tuple[int, str, bytes], Pin] = {}
        self.disowned: dict[tuple[int, bytes], Disowned] = {}
        #: By id, rising; ids are never taken back.
        self.quarantined: dict[int, HeldRow] = {}
        self.last_quarantined = 0
        self.conflicts: list[tuple[int, ConflictRecord]] = []
        self.cache_values: dict[tuple[int, bytes], HeldValue] = {}
        self.cache_conflicts: dict[tuple[int, bytes, bytes], ValueConflict] = {}
        self.last_value_id = 0
        #: Hits of removed values by namespace, and the microseconds that they saved.
        self.removed_value_hits: Counter[int] = Counter()
        self.removed_value_saved_us: Counter[int] = Counter()
        #: By namespace, epoch, source digest and actor; and the digest of the record that was offered, or is
        #: disputed.
        self.assertions: dict[tuple[int, int, bytes, str], HeldAssertion] = {}
        self.assertion_conflicts: dict[tuple[int, int, bytes, str, bytes], AssertionConflict] = {}
        self.assertion_disputes: dict[tuple[int, int, bytes, str, bytes], Dispute] = {}
        self.last_assertion_id = 0
        #: By name of the namespace.
        self.trusted_roles: dict[str, tuple[str, ...]] = {}

    def __enter__(self) -> State:
        self.lock.acquire()
        if self.closed:
            self.lock.release()
            raise StoreUnavailable("the store is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class MemoryPart:
    """What the parts of the store share."""

    def __init__(self, state: State) -> None:
        self._state = state

"""The storage contract: what every store promises, and what it asks of its callers.

Obligations that hold for every method:

- **Threads.** A store may be called from any thread at any time; calls block, none calls back except
  ``GraphDraft.bind`` and ``watch``. No transaction outlives a call, none waits for an object store. After a
  fork the child may go on using it, all but bytes in an object store.
- **Durability.** When a writing call returns, its effect survives SIGKILL and power loss, but for
  ``memory:``; leases (whose holders a power loss ends too) and usage survive SIGKILL. A call that raises,
  or whose process dies, leaves all of its effect or none.
- **Never overwrites.** Specs, mappings, constants, kernels, their artifacts and audit events are inserted
  once. Whoever comes second gets what is stored: a lost race is a success. Bytes lost or quarantined come
  back as a new generation of the same artifact, which is an insert.
- **Namespaces.** Everything is seen and written within the namespace and epoch of the ``Namespace`` value
  given; specs, keys and bytes span epochs.
- **Order.** What a call wrote, every later call on any store of the same database sees.
- **Errors.** ``storage.errors`` only: ``InvalidValue`` before anything is touched; ``StoreUnavailable`` when
  the database or the object store cannot be used now. Methods say what they raise beyond these two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from kcache_grpc.storage.audit.contract import AuditStore
from kcache_grpc.storage.contract.assertions import AssertionStore
from kcache_grpc.storage.contract.autotune import AutotuneStore
from kcache_grpc.storage.contract.blob_cache import BlobCacheStore
from kcache_grpc.storage.contract.change_notifications import NotifyingStore
from kcache_grpc.storage.contract.lifecycle import LifecycleStore
from kcache_grpc.storage.contract.nearby import NearbyStore
from kcache_grpc.storage.contract.saved_time import SavingRecord
from kcache_grpc.storage.records import (
    AuditEvent,
    AuditRecord,
    Blob,
    ConflictRecord,
    Failure,
    FailureRecord,
    GraphDraft,
    Ingredients,
    Inlined,
    KernelDraft,
    Lease,
    LeaseState,
    LoadedGraph,
    LoadedKernel,
    MappingDraft,
    MappingRecord,
    Namespace,
    Published,
    SpecDraft,
    SpecRecord,
    Stats,
    StoredGraph,
    StoredKernel,
    Swept,
    UsageDelta,
    UsageRecord,
    Wanted,
)

#: Bytes of one chunk row; reads are cut at multiples of it.
CHUNK_BYTES = 1 << 20


class NamespaceStore(ABC):
    """Key spaces."""

    @abstractmethod
    def get_or_create_namespace(self, name: str, most: int | None = None) -> Namespace:
        """The namespace of that name in its current epoch, created with epoch 1 if it is not stored.

        Names are 1 to 200 printable characters. Raises ``TooManyNamespaces`` instead of creating one where
        ``most`` namespaces are stored.
        """

    @abstractmethod
    def find_namespace(self, name: str) -> Namespace | None:
        """The namespace in its current epoch, or ``None``."""

    @abstractmethod
    def list_namespaces(self) -> tuple[Namespace, ...]:
        """All namespaces, oldest first."""

    @abstractmethod
    def find_signer(self) -> bytes | None:
        """The id of the key that signs what the store holds, 8 bytes; ``None`` before the first server."""

    @abstractmethod
    def raise_epoch(self, namespace: Namespace) -> Namespace:
        """Disown all mappings, kernels and assertions of ``namespace``: give it the next epoch.

        Done once for equal arguments: when the epoch has moved on from ``namespace.epoch`` already,
        the present one is returned.
        """

    @abstractmethod
    def allows_compatible_targets(self, namespace: Namespace) -> bool:
        """Whether the namespace says that kernels for lower targets will do; false where it says nothing."""

    @abstractmethod
    def set_compatible_targets(self, namespace: Namespace, allowed: bool) -> bool:
        """Say so, for all epochs; true when that changed anything.

        Raises ``MissingReference`` for a namespace that is not stored.
        """

    @abstractmethod
    def claim_signer(self, key_id: bytes, *, disown: bool = False) -> None:
        """Record whose signatures the store holds; the first key stays.

        Raises ``SignerMismatch`` when another key is recorded, unless ``disown``: then every namespace gets
        its next epoch and ``key_id`` is recorded, in one transaction.
        """


class GraphStore(ABC):
    """Specs, their keys, and the programs that map to them."""

    @abstractmethod
    def put_spec(self, namespace: Namespace, spec: SpecDraft) -> SpecRecord:
        """Store a spec, or find it by its digest.

        Keys are 1, 2, 3, ... in the order of commits: unique, without gaps, never given twice, whatever
        races or dies. Raises ``DigestMismatch`` when the text does not hash to the digest.
        """

    @abstractmethod
    def get_spec(self, namespace: Namespace, key: int) -> SpecRecord | None:
        """The spec under a key. Raises ``CorruptStore`` when its text no longer hashes to its digest."""

    @abstractmethod
    def find_spec(self, namespace: Namespace, spec_digest: bytes) -> SpecRecord | None:
        """The spec with a digest. Raises ``CorruptStore`` as ``get_spec`` does."""

    @abstractmethod
    def count_specs(self, namespace: Namespace) -> int:
        """How many specs the namespace has, which is its largest key. Costs the same at any size."""

    @abstractmethod
    def put_mapping(self, namespace: Namespace, mapping: MappingDraft) -> MappingRecord:
        """Store a mapping, or return the one that is there.

        Raises ``MissingReference`` when its key or one of its constants is not stored.
        """

    @abstractmethod
    def find_mapping(
        self, namespace: Namespace, program_digest: bytes, numerics: str
    ) -> MappingRecord | None:
        """The mapping of a program under a numerics class.

        ``None`` while one of its constants is lost: storing the graph again brings it back.
        """

    @abstractmethod
    def find_mappings(
        self, namespace: Namespace, program_digests: Sequence[bytes], numerics: str
    ) -> Mapping[bytes, MappingRecord]:
        """Those that ``find_mapping`` would find, by program digest, for one lookup and a little each."""

    @abstractmethod
    def put_graph(
        self, namespace: Namespace, graph: GraphDraft, event: AuditEvent | None = None
    ) -> StoredGraph:
        """One transaction: constants, spec and key, mapping, and the event with its key filled in.

        It stands whatever becomes of the compile. The event is written only when the call stored a spec or
        a mapping. Raises ``DigestMismatch`` for a text or constant that does not hash to its name.
        """

    @abstractmethod
    def add_alias(self, namespace: Namespace, alias: int, key: int) -> int:
        """Say that the spec under ``alias`` means the one under the lower ``key``; the key it now stands for.

        Raises ``MissingReference`` when either is not stored, ``InvalidValue`` unless key < alias, and
        ``Conflict`` when ``alias`` stands for another key already.
        """

    @abstractmethod
    def list_aliases(self, namespace: Namespace, key: int) -> tuple[int, ...]:
        """All keys that stand for ``key``, through any chain of aliases, lowest first."""

    @abstractmethod
    def resolve_key(self, namespace: Namespace, key: int) -> int:
        """The key that ``key`` stands for, through any chain of aliases: itself where there is none."""


class BlobStore(ABC):
    """Bytes by digest: artifacts, lifted constants, programs. Stored once a namespace.

    A blob whose bytes are missing or quarantined is not stored, as far as anyone can see; storing it
    again repairs it.
    """

    @abstractmethod
    def put_constants(self, namespace: Namespace, constants: Sequence[Blob]) -> None:
        """Store constants that are not there yet. Raises ``DigestMismatch``."""

    @abstractmethod
    def put_program(self, namespace: Namespace, program_digest: bytes, format: str, body: bytes) -> None:
        """Keep a program, whose digest the caller has computed. The first body under a digest stays."""

    @abstractmethod
    def get_program(self, namespace: Namespace, program_digest: bytes) -> tuple[str, bytes] | None:
        """Format and body of a kept program."""

    @abstractmethod
    def artifact_size(self, namespace: Namespace, digest: bytes) -> int | None:
        """Size of a blob, ``None`` when it is not stored whole."""

    @abstractmethod
    def read_artifact(
        self, namespace: Namespace, digest: bytes, offset: int = 0, length: int | None = None
    ) -> bytes | None:
        """Bytes from ``offset``, at most ``length`` and at most to the end; ``None`` when not stored whole.

        Reads the chunks that it needs and no others, and checks them: bytes that fail are quarantined, and so
        are those whose object is gone. (A blob of several chunks that an older version stored in rows is
        checked when all of it is read.)
        """

    @abstractmethod
    def verify_artifact(self, namespace: Namespace, digest: bytes, *, quarantine: bool = True) -> bool:
        """Hash what is stored. Bytes that do not match are quarantined; true when a whole copy is left.

        Without ``quarantine`` nothing changes: true when the youngest copy is whole.
        """

    @abstractmethod
    def sweep_objects(self, grace: float, *, dry_run: bool = False, now: int | None = None) -> Swept:
        """Delete from the object store, if there is one, what has been dead for ``grace`` seconds.

        Dead are objects whose rows were collected, and those of publishes that failed. ``now`` is the time
        there in microseconds, ``None`` asks. Raises ``InvalidValue`` below an hour. Safe to call again.
        """

    def inline_objects(self, namespace: Namespace, *, dry_run: bool = False) -> Inlined:
        """Bring all bytes of a namespace that are in the object store into rows, and disown their objects.

        What is lost there is quarantined, as when it is read. ``dry_run`` counts only, without reading. Safe
        to call again, and while servers run, which may put further objects meanwhile.
        """
        return Inlined()

    @abstractmethod
    def quarantine_artifact(self, namespace: Namespace, digest: bytes, reason: str) -> bool:
        """Never serve the present generation of these bytes again; true when there was one."""


class KernelStore(ABC):
    """Compiled kernels."""

    @abstractmethod
    def publish_kernel(
        self,
        namespace: Namespace,
        draft: KernelDraft,
        lease: Lease | None = None,
        event: AuditEvent | None = None,
    ) -> Published:
        """One transaction: artifacts, manifest, kernel, event; the lease released, its failure forgotten.

        When the kernel is there the winner is returned, after its missing bytes were repaired from those
        offered. The event is written when the call inserted or repaired something. Raises ``LeaseLost`` for
        a lease that is no longer the caller's, ``MissingReference`` for an unknown key, ``DigestMismatch``,
        and ``Conflict`` when the stored kernel has lost bytes that the draft does not offer: which is
        recorded, and the lease is given back all the same.
        """

    @abstractmethod
    def find_kernel(self, namespace: Namespace, kernel_digest: bytes) -> StoredKernel | None:
        """A kernel all of whose bytes are there."""

    @abstractmethod
    def find_kernels(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, StoredKernel]:
        """The kernels whose bytes are all there, by digest."""

    @abstractmethod
    def find_variants(
        self, namespace: Namespace, key: int, target: str, options: str, toolchain: bytes
    ) -> tuple[StoredKernel, ...]:
        """Variants of a spec for a target, options and toolchain, oldest first: any arg spec and guard."""

    @abstractmethod
    def list_kernels(
        self, namespace: Namespace, key: int, limit: int = 100, before: int | None = None
    ) -> tuple[StoredKernel, ...]:
        """Kernels of a spec, youngest first; with ``before`` those with smaller ids only."""

    @abstractmethod
    def list_ingredients(self, namespace: Namespace, kernel_digest: bytes) -> Ingredients:
        """The parts of a kernel's key, in order; empty for an unknown kernel."""


class HitStore(ABC):
    """What hits read: all that an answer takes, for the price of one lookup.

    Bytes that come along are checked; any may be left out, as they are when they fail their digest. Then
    ``read_artifact`` reads them, or says why not.
    """

    @abstractmethod
    def load_graph(
        self, namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted
    ) -> LoadedGraph | None:
        """What ``find_mapping`` finds, with the kernel of its key that is wanted if there is only one.

        Nobody chooses between several: their digests do. A kernel that has lost bytes is left out.
        """

    def ask_graph(
        self, namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted
    ) -> Awaitable[LoadedGraph | None] | None:
        """As ``load_graph``, for the running event loop, which does other work until the answer comes.

        ``None``, or ``StoreUnavailable`` later: it did not come this way, and ``load_graph`` is to be called.
        """
        del namespace, program_digest, numerics, wanted
        return None

    @abstractmethod
    def load_kernel(self, namespace: Namespace, kernel_digest: bytes, wanted: Wanted) -> LoadedKernel | None:
        """What ``find_kernel`` finds, with bytes. Of ``wanted`` only kinds and sizes count."""


class LeaseStore(NotifyingStore):
    """Leases, what became of compiles that failed, and notifications of both."""

    @abstractmethod
    def acquire_lease(
        self, namespace: Namespace, kernel_digest: bytes, holder: str, ttl: float
    ) -> Lease | LeaseState:
        """Take the lease for ``ttl`` seconds if nobody holds it, else say who does.

        At most one holder at a time; the fencing token rises with every lease given for a kernel. A lease
        from another boot of the machine is expired. ``holder`` names one attempt: the same holder asking
        again while it holds gets the same lease again, as when the first answer was lost on its way.
        """

    @abstractmethod
    def heartbeat_lease(self, lease: Lease, ttl: float) -> None:
        """Hold it for ``ttl`` seconds from now. Raises ``LeaseLost`` when it was taken over or released.

        An expired lease that nobody took is held again.
        """

    @abstractmethod
    def report_stage(self, lease: Lease, *stages: str) -> None:
        """Append stages for those who wait. Raises ``LeaseLost``."""

    @abstractmethod
    def release_lease(self, lease: Lease) -> None:
        """Give it back. Nothing happens when it is no longer the caller's."""

    @abstractmethod
    def find_leases(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, LeaseState]:
        """Leases ever given for these kernels, held or not. For waiters: one call for all they wait for."""

    @abstractmethod
    def record_failure(
        self,
        namespace: Namespace,
        kernel_digest: bytes,
        failure: Failure,
        ttl: float,
        lease: Lease | None = None,
    ) -> FailureRecord:
        """Remember for ``ttl`` seconds that a compile failed, count it, and release the lease.

        Raises ``LeaseLost`` for a lease that is no longer the caller's.
        """

    @abstractmethod
    def find_failures(
        self, namespace: Namespace, kernel_digests: Sequence[bytes]
    ) -> Mapping[bytes, FailureRecord]:
        """Remembered failures that have not expired, by kernel digest."""


class UsageAuditStore(ABC):
    """What was done: usage, audit, counts."""

    @abstractmethod
    def add_usage(self, namespace: Namespace, batch: Sequence[UsageDelta]) -> None:
        """Add to the counters, all in one transaction. Equal subjects in one batch are summed."""

    @abstractmethod
    def find_usage(
        self, namespace: Namespace, subject: str, digests: Sequence[bytes]
    ) -> Mapping[bytes, UsageRecord]:
        """Counters of these subjects, those never used left out."""

    @abstractmethod
    def list_savings(self, namespace: Namespace, limit: int) -> tuple[SavingRecord, ...]:
        """What hits saved, by caller, most time first: the sums of ``caller_usage`` that were added.

        Costs one search of an index for each caller of the namespace.
        """

    @abstractmethod
    def append_audit(self, namespace: Namespace, batch: Sequence[AuditEvent]) -> None:
        """Append events in order, all in one transaction."""

    @abstractmethod
    def list_audit(
        self, namespace: Namespace, after_id: int = 0, limit: int = 100
    ) -> tuple[AuditRecord, ...]:
        """Events with larger ids than ``after_id``, oldest first."""

    @abstractmethod
    def list_conflicts(self, namespace: Namespace, limit: int = 100) -> tuple[ConflictRecord, ...]:
        """Conflicts, youngest first."""

    @abstractmethod
    def stats(self, namespace: Namespace) -> Stats:
        """Counts. Reads indexes from end to end: not for hot paths."""


class Store(
    NamespaceStore,
    GraphStore,
    BlobStore,
    KernelStore,
    HitStore,
    LeaseStore,
    UsageAuditStore,
    AuditStore,
    AutotuneStore,
    BlobCacheStore,
    AssertionStore,
    NearbyStore,
    LifecycleStore,
):
    """A whole store. See the module's docstring for what holds everywhere."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the store is, without credentials."""

    @property
    def shared(self) -> bool:
        """Whether servers of other machines may use it too: what they need must be in it."""
        return False

    @property
    def answers_from_memory(self) -> bool:
        """Whether a lookup takes microseconds as a rule: no network, and nothing that writers could hold."""
        return False

    def short_lock_waits(self) -> AbstractContextManager[None]:
        """Within it, where the store is ``answers_from_memory``, reads of this thread wait for locks of
        others for 50 ms
        at most before they raise ``StoreUnavailable``.
        """
        return nullcontext()

    @property
    @abstractmethod
    def objects_url(self) -> str | None:
        """Where the bytes outside the database are, without credentials; ``None`` when all are in it."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Names the database for good, 32 hex digits, made with it: two stores of one database agree."""

    @abstractmethod
    def check(self) -> None:
        """Reads once. Raises ``StoreUnavailable`` or ``CorruptStore`` when the store does not work."""

    @abstractmethod
    def close(self) -> None:
        """Free all resources; calls in other threads may raise ``StoreUnavailable``. Idempotent."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""Proves the audit log: every event hashed again, every seal recomputed, every chain followed.

Blocking: call from a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.signing import CHECKPOINT_DOMAIN, SEAL_DOMAIN, Signed, Verifier
from kcache_grpc.service.audit.seal_chains import Head, event_ids, listed, seals, unlisted
from kcache_grpc.storage.audit.sealing import (
    MARK_BYTES,
    Checkpoint,
    Seal,
    chain_root,
    event_leaf,
    seal_marks,
)
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditRecord

#: Findings that are listed for one chain; more are counted.
MOST_FINDINGS = 1000


@dataclass(frozen=True)
class Finding:
    """Something that is not as it was sealed. ``sequence`` and ``event_id`` say where, as far as is known."""

    writer: str
    problem: str
    sequence: int | None = None
    event_id: int | None = None


@dataclass(frozen=True)
class KeptHead:
    """A head that was exported before."""

    writer: str
    sequence: int
    root: bytes


@dataclass
class Chain:
    """One writer's part of a report. ``unsealed``: events that no seal proves, from ``first_unsealed`` on."""

    writer: str
    seals: int = 0
    events: int = 0
    pruned_events: int = 0
    unsealed: int = 0
    first_unsealed: int | None = None
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, problem: str, sequence: int | None = None, event_id: int | None = None) -> None:
        """Notes a finding."""
        self.findings.append(Finding(self.writer, problem, sequence, event_id))


class Verification:
    """``keys``: public keys that seals may be signed with; none: those that the store itself names."""

    def __init__(self, store: Store, keys: Sequence[bytes] = ()) -> None:
        self._store = store
        known = [writer.public_key for writer in store.list_writers() if writer.public_key]
        self._verifiers = [Verifier(key) for key in dict.fromkeys(keys or known)]

    def all(self, heads: Sequence[KeptHead] = (), overdue: int = 0) -> list[Chain]:
        """Every chain, by writer. ``heads`` are compared with what is there now.

        An event that no seal lists is a finding when a seal made before ``overdue`` lists later ones.
        """
        by_writer = {head.writer: head for head in heads}
        names = [writer.writer for writer in self._store.list_writers()]
        chains = [self.chain(name, by_writer.pop(name, None), overdue) for name in names]
        for head in by_writer.values():
            gone = Chain(head.writer)
            gone.add(f"the chain is gone, which had {head.sequence} seals", head.sequence)
            chains.append(gone)
        return chains

    def chain(self, writer: str, head: KeptHead | None = None, overdue: int = 0) -> Chain:
        """One chain, from its last checkpoint on."""
        chain = Chain(writer)
        last = self._checkpoints(chain)
        reached = {last.sequence: last.root}
        sealed: list[Seal] = []
        for seal, marks in seals(self._store, writer):
            if seal.sequence <= last.sequence:
                chain.add("a seal is left below the checkpoint that stands for it", seal.sequence)
                continue
            self._seal(chain, last, seal, marks)
            last = Head(seal.sequence, seal.root, seal.created_at)
            reached[seal.sequence] = seal.root
            sealed.append(seal)
        self._unsealed(chain, sealed, overdue)
        if head is not None:
            _compare(chain, head, reached)
        return chain

    def _checkpoints(self, chain: Chain) -> Head:
        last = Head()
        for checkpoint in self._store.list_checkpoints(chain.writer):
            if not self._signed(CHECKPOINT_DOMAIN, checkpoint.payload(), checkpoint.signature):
                chain.add("the checkpoint is not signed by a known key", checkpoint.sequence)
            chain.pruned_events = checkpoint.events
            last = Head(checkpoint.sequence, checkpoint.root, checkpoint.created_at)
        return last

    def _seal(self, chain: Chain, last: Head, seal: Seal, marks: bytes) -> None:
        chain.seals += 1
        if seal.sequence != last.sequence + 1:
            chain.add(f"the seals from {last.sequence + 1} on are gone", last.sequence + 1)
        elif seal.previous_root != last.root:
            chain.add("the seal does not follow the one before", seal.sequence)
        if not self._signed(SEAL_DOMAIN, seal.payload(marks), seal.signature):
            chain.add("the seal is not signed by a known key, or was changed", seal.sequence)
        records = self._store.read_events(seal.event_ids)
        leaves = [event_leaf(records[number]) for number in seal.event_ids if number in records]
        chain.events += len(leaves)
        complete = len(leaves) == len(seal.event_ids)
        if complete and chain_root(seal.previous_root, leaves) == seal.root:
            return
        before = len(chain.findings)
        _blame(chain, seal, marks, records)
        if len(chain.findings) == before:
            chain.add("the events of the seal do not give its root", seal.sequence)

    def _unsealed(self, chain: Chain, sealed: Sequence[Seal], overdue: int) -> None:
        due = max((max(seal.event_ids, default=0) for seal in sealed if seal.created_at < overdue), default=0)
        left = unlisted(event_ids(self._store, chain.writer), listed(sealed))
        chain.unsealed, chain.first_unsealed = len(left), next(iter(left), None)
        for number in left:
            if number < due and len(chain.findings) < MOST_FINDINGS:
                chain.add("the event is in no seal, though later ones are: it was inserted", None, number)

    def _signed(self, domain: bytes, payload: bytes, signature: bytes) -> bool:
        for verifier in self._verifiers:
            try:
                verifier.verify(domain, Signed(payload, signature, b""))
            except IntegrityError:
                continue
            return True
        return False


def proves(checkpoint: Checkpoint, verifier: Verifier) -> bool:
    """Whether a checkpoint is signed by this key."""
    try:
        verifier.verify(CHECKPOINT_DOMAIN, Signed(checkpoint.payload(), checkpoint.signature, b""))
    except IntegrityError:
        return False
    return True


def _blame(chain: Chain, seal: Seal, marks: bytes, records: Mapping[int, AuditRecord]) -> None:
    """Says which events of a seal are gone or changed."""
    for place, number in enumerate(seal.event_ids):
        record = records.get(number)
        if record is None:
            chain.add("the event is gone", seal.sequence, number)
        elif (marks or b"")[place * MARK_BYTES :][:MARK_BYTES] != seal_marks([event_leaf(record)]):
            chain.add("the event was changed", seal.sequence, number)


def _compare(chain: Chain, head: KeptHead, reached: Mapping[int, bytes]) -> None:
    """A head that was exported is in the chain, or below its checkpoint."""
    first, last = min(reached), max(reached)
    if head.sequence > last:
        chain.add(f"the chain ends at seal {last}: its end was cut off at {head.sequence}", head.sequence)
    elif head.sequence >= first and reached.get(head.sequence, head.root) != head.root:
        chain.add("the seal is another one than when its head was exported", head.sequence)

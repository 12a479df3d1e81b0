"""Removes old parts of the audit log: below a signed checkpoint, and only what has been proven.

Blocking: call from a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.signing import CHECKPOINT_DOMAIN, Signer
from kcache_grpc.service.audit.proof import Verification
from kcache_grpc.service.audit.seal_chains import last_checkpoint, seals
from kcache_grpc.storage.audit.sealing import Checkpoint, Seal
from kcache_grpc.storage.contract.store import Store

#: Seals that one transaction lets go: 10 times 10,000 events at most.
_AT_ONCE = 10


@dataclass(frozen=True)
class Pruned:
    """What became of one chain: ``events`` removed, or to be removed in a dry run."""

    writer: str
    sequence: int
    events: int


def _wall() -> int:
    return time.time_ns() // 1000


class Retention:
    """Removes events that are older than a time, seal by seal."""

    def __init__(self, store: Store, signer: Signer, clock: Callable[[], int] = _wall) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock

    def prune(self, before: int, *, dry_run: bool = False) -> list[Pruned]:
        """Removes the oldest seals of each chain all of whose events are older than ``before``, with them.

        Raises ``IntegrityError``, and removes nothing of that chain, when the chain does not prove.
        """
        return [pruned for pruned in self._chains(before, dry_run=dry_run) if pruned.events]

    def _chains(self, before: int, *, dry_run: bool) -> Iterator[Pruned]:
        verification = Verification(self._store)
        for writer in [each.writer for each in self._store.list_writers()]:
            old = list(self._old(writer, before))
            if not old:
                continue
            findings = verification.chain(writer).findings
            if findings:
                raise IntegrityError(
                    f"the audit log of {writer} does not prove ({findings[0].problem}), and is kept; "
                    "run: kcache audit verify",
                    writer=writer,
                )
            events = sum(len(seal.event_ids) for seal in old)
            if not dry_run:
                for start in range(0, len(old), _AT_ONCE):
                    self._prune(writer, old[start : start + _AT_ONCE])
            yield Pruned(writer, old[-1].sequence, events)

    def _old(self, writer: str, before: int) -> Iterator[Seal]:
        for seal, _ in seals(self._store, writer):
            records = self._store.read_events(seal.event_ids)
            if seal.created_at >= before or any(record.event.at >= before for record in records.values()):
                return
            yield seal

    def _prune(self, writer: str, old: Sequence[Seal]) -> None:
        ids = [number for seal in old for number in seal.event_ids]
        times = [record.event.at for record in self._store.read_events(ids).values()]
        earlier = last_checkpoint(self._store, writer)
        if earlier is not None:
            times += [earlier.first_at, earlier.last_at]
        checkpoint = Checkpoint(
            writer=writer,
            sequence=old[-1].sequence,
            root=old[-1].root,
            events=len(ids) + (earlier.events if earlier else 0),
            first_at=min(times),
            last_at=max(times),
            created_at=self._clock(),
        )
        signed = self._signer.sign(CHECKPOINT_DOMAIN, checkpoint.payload())
        self._store.prune(replace(checkpoint, signature=signed.signature), ids)

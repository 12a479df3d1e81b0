"""Chains of seals over the audit log: the last seal of one, and the events that no seal lists yet.

Blocking: call from a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kcache_grpc.storage.audit.contract import BEFORE_ALL
from kcache_grpc.storage.audit.sealing import NO_ROOT, Checkpoint, Seal
from kcache_grpc.storage.contract.store import Store

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# NumPy is imported when the first chain is read: a start needs none of it.
Ids: TypeAlias = "npt.NDArray[np.int64]"

#: Seals read at a time: each lists up to 10,000 events.
_SEALS = 10
_EVENTS = 10_000


@dataclass(frozen=True)
class Head:
    """The last seal of a chain, or the checkpoint that stands for it."""

    sequence: int = 0
    root: bytes = NO_ROOT
    created_at: int = 0


@dataclass(frozen=True)
class ChainState:
    """A chain when it was read: its head, the last event of its writer, and events that no seal lists."""

    head: Head = Head()
    last_id: int = 0
    unlisted: tuple[int, ...] = ()


def head(store: Store, writer: str) -> Head:
    """Where the chain of ``writer`` stands."""
    seal = store.last_seal(writer)
    if seal is not None:
        return head_of(seal)
    return beginning(store, writer)


def head_of(seal: Seal) -> Head:
    """Where a chain stands that ends with ``seal``."""
    return Head(seal.sequence, seal.root, seal.created_at)


def last_checkpoint(store: Store, writer: str) -> Checkpoint | None:
    """What stands for the removed part of a chain."""
    return next(reversed(store.list_checkpoints(writer)), None)


def seals(store: Store, writer: str, after: int = 0) -> Iterator[tuple[Seal, bytes]]:
    """The seals of a chain with larger sequences than ``after``, and their marks."""
    while page := store.list_seals(writer, after, _SEALS):
        yield from page
        after = page[-1][0].sequence


def event_ids(store: Store, writer: str, after_id: int = BEFORE_ALL) -> Ids:
    """Ids of all events of a writer beyond ``after_id``, rising."""
    import numpy as np

    parts: list[Ids] = []
    while page := store.list_event_ids(writer, after_id, _EVENTS):
        parts.append(np.array(page, dtype=np.int64))
        after_id = page[-1]
    return np.concatenate(parts) if parts else np.array([], dtype=np.int64)


def listed(chain: Sequence[Seal]) -> Ids:
    """The ids that these seals list."""
    import numpy as np

    parts = [np.array(seal.event_ids, dtype=np.int64) for seal in chain]
    return np.concatenate(parts) if parts else np.array([], dtype=np.int64)


def unlisted(ids: Ids, sealed: Ids) -> tuple[int, ...]:
    """Those of ``ids`` that are not among ``sealed``."""
    import numpy as np

    return tuple(ids[~np.isin(ids, sealed)].tolist())


def update_state(store: Store, writer: str, before: ChainState) -> ChainState:
    """The state of a chain now, from its state ``before``; without one the whole chain is read.

    Events are read before seals: what is sealed meanwhile counts as listed, or the head has moved on.
    """
    import numpy as np

    ids = event_ids(store, writer, before.last_id)
    start = before.head if before.head.sequence else beginning(store, writer)
    chain = [seal for seal, _ in seals(store, writer, start.sequence)]
    left = unlisted(np.concatenate([np.array(before.unlisted, dtype=np.int64), ids]), listed(chain))
    return ChainState(
        head_of(chain[-1]) if chain else start, int(ids[-1]) if len(ids) else before.last_id, left
    )


def beginning(store: Store, writer: str) -> Head:
    """Where what is left of a chain begins."""
    last = last_checkpoint(store, writer)
    return Head() if last is None else Head(last.sequence, last.root, last.created_at)

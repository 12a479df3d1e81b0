"""Hashes and chains audit events: pure functions, the same for sealing and verification.

A *seal* lists events of one writer by id. Their hashes are the leaves of a Merkle tree (RFC 6962); its root
and the root of the writer's seal before give the root of this one:

    leaf  = SHA-256(00 || encoding of the row)
    tree  = Merkle tree of the leaves, in the order of the listed ids
    root  = SHA-256(02 || previous root || tree), the first previous root being 32 zero bytes

So the last root of a chain, its *head*, commits to every event and every seal before it. The encoding of a
row is the domain and then its columns in the order of ``ENCODED``: each the length of what follows as u32,
big endian; ``i`` and a decimal number, ``s`` and UTF-8, ``b`` and bytes, or ``n`` for NULL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from kcache_grpc.model.merkle import leaf_hash, tree_root
from kcache_grpc.storage.records import AuditRecord

EVENT_DOMAIN = b"kcache.audit.event.v1\0"
NO_ROOT = bytes(32)
#: Most events of one seal: what is hashed, listed and pruned at once.
MOST_SEALED = 10_000
MARK_BYTES = 4

_CHAIN = b"\x02"
#: Columns of ``audit_events`` in the order in which they are hashed. One that is added later is hashed only
#: where it differs from its default, by name, after these.
ENCODED = (
    "id",
    "namespace_id",
    "epoch",
    "at",
    "writer",
    "kind",
    "outcome",
    "origin",
    "actor",
    "job",
    "peer",
    "request_id",
    "request_count",
    "program_digest",
    "spec_digest",
    "key",
    "kernel_digest",
    "target",
    "toolchain",
    "duration_us",
    "byte_count",
    "saved_us",
    "detail",
)
_OF_RECORD = frozenset(("id", "namespace_id", "epoch", "writer"))
_VALUES = attrgetter(*(name if name in _OF_RECORD else f"event.{name}" for name in ENCODED))
#: Lengths of most values, as they are written.
_LENGTHS = [length.to_bytes(4, "big") for length in range(256)]


@dataclass(frozen=True)
class Seal:
    """One link of a writer's chain. ``sequence`` counts from 1; ``event_ids`` rise."""

    writer: str
    sequence: int
    previous_root: bytes
    root: bytes
    event_ids: tuple[int, ...]
    created_at: int
    signature: bytes = b""

    def payload(self, marks: bytes) -> bytes:
        """What is signed."""
        return _joined(
            self.writer,
            self.sequence,
            self.previous_root,
            self.root,
            pack_ids(self.event_ids),
            marks,
            self.created_at,
        )


@dataclass(frozen=True)
class Checkpoint:
    """Stands for the seals of a chain up to ``sequence``, which retention removed with their ``events``.

    ``events`` counts all that the chain ever lost this way; the times are of the first and the last of them.
    """

    writer: str
    sequence: int
    root: bytes
    events: int
    first_at: int
    last_at: int
    created_at: int
    signature: bytes = b""

    def payload(self) -> bytes:
        """What is signed."""
        return _joined(
            self.writer,
            self.sequence,
            self.root,
            self.events,
            self.first_at,
            self.last_at,
            self.created_at,
        )


@dataclass(frozen=True)
class Writer:
    """A process that appended events. ``public_key`` is empty for one that does not sign."""

    writer: str
    public_key: bytes
    host: str
    started_at: int


def event_leaf(record: AuditRecord) -> bytes:
    """The leaf hash of a stored event."""
    return row_leaf(_VALUES(record))


def row_leaf(values: Iterable[Any]) -> bytes:
    """The leaf hash of the columns ``ENCODED``."""
    return leaf_hash(EVENT_DOMAIN + _joined(*values))


def chain_root(previous_root: bytes, leaves: Sequence[bytes]) -> bytes:
    """The root of a seal over ``leaves``."""
    return hashlib.sha256(_CHAIN + previous_root + tree_root(leaves)).digest()


def seal_marks(leaves: Iterable[bytes]) -> bytes:
    """The first bytes of each leaf: the root tells that an event was changed, they tell which."""
    return b"".join(leaf[:MARK_BYTES] for leaf in leaves)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Big-endian u64 each."""
    return b"".join(number.to_bytes(8, "big") for number in ids)


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    """The numbers of ``pack_ids``; an incomplete last one is left out, and so fails its root."""
    return tuple(int.from_bytes(packed[at : at + 8], "big") for at in range(0, len(packed) - 7, 8))


def _joined(*values: str | int | bytes | None) -> bytes:
    """An injective encoding of a row of values."""
    parts: list[bytes] = []
    for value in values:
        if value is None:
            part = b"n"
        elif isinstance(value, bytes):
            part = b"b" + value
        elif isinstance(value, str):
            part = b"s" + value.encode("utf-8", "surrogateescape")
        else:
            part = b"i%d" % value
        length = len(part)
        parts += (_LENGTHS[length] if length < 256 else length.to_bytes(4, "big"), part)
    return b"".join(parts)

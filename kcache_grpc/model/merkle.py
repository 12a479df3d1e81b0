"""Merkle trees of RFC 6962, section 2.1: SHA-256, leaves and nodes hashed in their own domains."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_LEAF = b"\x00"
_NODE = b"\x01"


def leaf_hash(content: bytes) -> bytes:
    """The hash of a leaf that holds ``content``."""
    return hashlib.sha256(_LEAF + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return hashlib.sha256(_NODE + left + right).digest()


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """The root over leaf hashes, in order. Of no leaves: the hash of nothing."""
    if not leaves:
        return hashlib.sha256().digest()
    # Pairs level by level, an odd last one moved up as it is: the same tree as splitting at powers of two.
    level = list(leaves)
    while len(level) > 1:
        paired = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = paired + level[len(level) & ~1 :]
    return level[0]


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """What ``root_of_path`` needs besides the leaf at ``index``: siblings from the leaf upwards."""
    path: list[bytes] = []
    level = list(leaves)
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            path.append(level[sibling])
        paired = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = paired + level[len(level) & ~1 :]
        index //= 2
    return path


def root_of_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root of a tree of ``size`` leaves with ``leaf`` at ``index``; ``None`` for an impossible path."""
    if not 0 <= index < size:
        return None
    siblings = iter(path)
    digest, last = leaf, size - 1
    while last:
        if index % 2 or index < last:
            sibling = next(siblings, None)
            if sibling is None:
                return None
            digest = node_hash(sibling, digest) if index % 2 else node_hash(digest, sibling)
        index, last = index // 2, last // 2
    return digest if next(siblings, None) is None else None

"""Programs that this version rejects with ``UnsupportedOp``; a test holds the list to the truth."""

from __future__ import annotations

REJECTED: frozenset[str] = frozenset()

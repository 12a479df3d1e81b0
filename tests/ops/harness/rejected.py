"""Programs that this version refuses with ``UnsupportedOp``; a test holds the list to the truth."""

from __future__ import annotations

REFUSED: frozenset[str] = frozenset()

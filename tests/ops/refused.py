"""Programs that this version refuses with ``UnsupportedOp``; a test holds the list to the truth."""

from __future__ import annotations

REFUSED: frozenset[str] = frozenset({"batch_norm-f32", "batch_norm-f64", "cholesky-f32", "fft-c64"})

"""Shape erasure: shape rules, union-find over dims, symbols and products."""

from __future__ import annotations

from kcache_compiler.canonical.shapes.erase import Shapes, Ties, erase, keep

__all__ = ["Shapes", "Ties", "erase", "keep"]

"""Shape erasure: shape rules, union-find over dims, symbols and products."""

from __future__ import annotations

from kcache_compiler.spec.erasure.erase import Erasure, Shapes, Ties, keep

__all__ = ["Erasure", "Shapes", "Ties", "keep"]

"""Shape erasure: shape rules constrain dims, and a union-find solver turns classes of dims into symbols."""

from __future__ import annotations

from kcache_compiler.spec.erasure.erase import Erasure, Shapes, Ties, without_erasure

__all__ = ["Erasure", "Shapes", "Ties", "without_erasure"]

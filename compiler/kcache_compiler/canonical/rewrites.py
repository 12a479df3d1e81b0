"""Rewrites that give the same bits, and the place for those that do not."""

from __future__ import annotations

from kcache_compiler.canonical.builder import Builder
from kcache_compiler.canonical.graph import Ref, ValueType


def rewritten(builder: Builder, op: str, attributes: str, type: ValueType, operands: list[Ref]) -> Ref | None:
    """Return a simpler value with the same bits, if a rewrite applies."""
    return None

"""Differences between specs as sentences: on their text, without MLIR, for specs of every version."""

from __future__ import annotations

from kcache_compiler.difference.compare import compare_specs
from kcache_compiler.difference.nearest import Neighbor, nearest_specs
from kcache_compiler.difference.sentences import Difference

__all__ = ["Difference", "Neighbor", "compare_specs", "nearest_specs"]

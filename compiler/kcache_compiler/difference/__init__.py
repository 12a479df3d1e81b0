"""What differs between specs, in words: pure text work, without MLIR and for specs of every version."""

from __future__ import annotations

from kcache_compiler.difference.compare import compare_specs
from kcache_compiler.difference.nearest import Neighbour, nearest_specs
from kcache_compiler.difference.words import Difference

__all__ = ["Difference", "Neighbour", "compare_specs", "nearest_specs"]

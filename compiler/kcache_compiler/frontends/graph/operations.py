"""The op set: every operation of ``kcache.graph.v1``, by group and by name."""

from __future__ import annotations

from kcache_compiler.frontends.graph.ops.composites import COMPOSITES
from kcache_compiler.frontends.graph.ops.creation import CREATION
from kcache_compiler.frontends.graph.ops.elementwise import BINARY, DTYPES, UNARY
from kcache_compiler.frontends.graph.ops.indexing import INDEXING
from kcache_compiler.frontends.graph.ops.linear_algebra import LINEAR
from kcache_compiler.frontends.graph.ops.pooling import POOLING
from kcache_compiler.frontends.graph.ops.products import CONTRACTIONS
from kcache_compiler.frontends.graph.ops.reductions import REDUCTIONS
from kcache_compiler.frontends.graph.ops.shaping import SHAPING
from kcache_compiler.frontends.graph.ops.slicing import SLICING
from kcache_compiler.frontends.graph.ops.sorting import SORTING
from kcache_compiler.frontends.graph.table import Op

#: The version of the op set. Within a version, operations are only added.
FORMAT = "kcache.graph.v1"

GROUPS = (
    UNARY,
    BINARY,
    DTYPES,
    CREATION,
    SHAPING,
    SLICING,
    INDEXING,
    REDUCTIONS,
    CONTRACTIONS,
    POOLING,
    SORTING,
    LINEAR,
    COMPOSITES,
)

OPS: dict[str, Op] = {op.name: op for group in GROUPS for op in group.ops}
assert len(OPS) == sum(len(group.ops) for group in GROUPS)

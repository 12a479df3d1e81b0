"""The op set: every operation of ``kcache.graph.v1``, by group and by name."""

from __future__ import annotations

from kcache_compiler.frontends.graph.ops.composites import COMPOSITES
from kcache_compiler.frontends.graph.ops.creation import CREATION
from kcache_compiler.frontends.graph.ops.elementwise import BINARY, DTYPES, UNARY
from kcache_compiler.frontends.graph.ops.indexing import INDEXING
from kcache_compiler.frontends.graph.ops.linear_algebra import LINEAR
from kcache_compiler.frontends.graph.ops.pooling import WINDOWS
from kcache_compiler.frontends.graph.ops.products import PRODUCTS
from kcache_compiler.frontends.graph.ops.reductions import REDUCTIONS
from kcache_compiler.frontends.graph.ops.shaping import SHAPES
from kcache_compiler.frontends.graph.ops.slicing import PARTS
from kcache_compiler.frontends.graph.ops.sorting import SORTING
from kcache_compiler.frontends.graph.table import Op

#: The version of the op set. Operations are only ever added under one version.
FORMAT = "kcache.graph.v1"

GROUPS = (
    UNARY,
    BINARY,
    DTYPES,
    CREATION,
    SHAPES,
    PARTS,
    INDEXING,
    REDUCTIONS,
    PRODUCTS,
    WINDOWS,
    SORTING,
    LINEAR,
    COMPOSITES,
)

OPS: dict[str, Op] = {op.name: op for group in GROUPS for op in group.ops}
assert len(OPS) == sum(len(group.ops) for group in GROUPS)

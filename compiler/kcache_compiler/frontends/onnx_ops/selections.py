"""Operators whose results are as large as their inputs say: what constants decide, and nothing else."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx_ops.emit import Value, known
from kcache_compiler.frontends.onnx_ops.indexing import taken
from kcache_compiler.frontends.onnx_ops.site import Results, Site, legalizes


@legalizes(Compress=28)
def compress(n: Site) -> Value:
    x, condition = n[0], n.known(1, "the condition, on which the size of its result depends,")
    axis = 0
    if n.has("axis"):
        axis = n.axis(n.int("axis"), x.rank)
    else:
        x = n.b.reshape(x, (math.prod(x.dims),))
    if condition.ndim != 1 or condition[x.dims[axis] :].any():
        n.invalid(f"a condition of shape {list(condition.shape)} for axis {axis} of shape {list(x.dims)}")
    return taken(n, x, axis, np.flatnonzero(condition))


@legalizes(NonZero=28)
def non_zero(n: Site) -> Value:
    x = n.known(0, "its input, on which the size of its result depends,")
    if not x.ndim:
        n.unsupported("its input is a scalar")
    return known(np.asarray(np.nonzero(x), np.int64))


@legalizes(Unique=28)
def unique(n: Site) -> Results:
    """One element is unique whatever it is."""
    x = n[0]
    if n.has("axis"):
        count = x.dims[n.axis(n.int("axis"), x.rank)]
    else:
        x = n.b.reshape(x, (math.prod(x.dims),))
        count = x.dims[0]
    if count > 1:
        n.unsupported("how many elements are unique depends on the inputs")
    indices = known(np.arange(count, dtype=np.int64))
    return [x, indices, indices, known(np.ones(count, np.int64))]

"""Attention, in the forms that models use; the others by the operator's definition."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.emitter import HALVES, Value, known
from kcache_compiler.frontends.onnx.site import Results, Site, legalizes

_RARE_INPUT = 6


@legalizes(Attention=25)
def attention(n: Site) -> Results | None:
    rare = n.int("left_window_size", -1) >= 0 or n.int("right_window_size", -1) >= 0
    if rare or n.get(_RARE_INPUT) is not None or n.wants(3) or n.has("softmax_precision"):
        if n[2].element != n[0].element:  # the definition multiplies what it holds alike
            n.unsupported(f"values of {n[2].element} under weights of {n[0].element}, in a form that is rare")
        return None
    b = n.b
    flat = n[0].rank == 3
    q, k, v = (_heads(n, n[i], n.int("kv_num_heads" if i else "q_num_heads", 0)) for i in range(3))
    offset = 0
    if n.get(4) is not None:
        offset = n[4].dims[2]
        k, v = b.concatenate([n[4], k], 2), b.concatenate([n[5], v], 2)
    present = [k, v]
    k, v = _repeated(n, k, q.dims[1]), _repeated(n, v, q.dims[1])
    scores = _scores(n, q, k)
    cap = n.float("softcap", 0.0)
    if cap:
        scores = b.scalar("multiply", b.unary("tanh", b.scalar("divide", scores, cap)), cap)
    y = _weighted(n, _weights(n, scores, offset), v)
    if flat:
        y = b.transpose(y, [0, 2, 1, 3])
        y = b.reshape(y, (*y.dims[:2], y.dims[2] * y.dims[3]))
    return [y, *present]


def _heads(n: Site, x: Value, heads: int) -> Value:
    """Return (batch, heads, sequence, size)."""
    if x.rank == 4:
        return x
    if x.rank != 3 or heads < 1 or x.dims[2] % heads:
        n.invalid(f"{heads} heads do not divide shape {list(x.dims)}")
    split = n.b.reshape(x, (*x.dims[:2], heads, x.dims[2] // heads))
    return n.b.transpose(split, [0, 2, 1, 3])


def _repeated(n: Site, x: Value, heads: int) -> Value:
    """Give each group of query heads the key or value head that it shares."""
    have = x.dims[1]
    if have == heads:
        return x
    if not have or heads % have:
        n.invalid(f"{have} heads of keys and values do not serve {heads} of queries")
    wide = n.b.broadcast_in_dim(x, [0, 1, 3, 4], (x.dims[0], have, heads // have, *x.dims[2:]))
    return n.b.reshape(wide, (x.dims[0], heads, *x.dims[2:]))


def _scores(n: Site, q: Value, k: Value) -> Value:
    """Return scaled products of queries and keys; those of halves in f32, where weights are computed, too."""
    b, scale = n.b, n.float("scale", 1 / math.sqrt(q.dims[3] or 1))
    if scale < 0:
        n.unsupported("a scale below zero, whose square root the definition takes")
    if q.element in HALVES:
        sums = b.dot(b.convert(q, "f32"), b.convert(k, "f32"), ([0, 1], [0, 1]), ([3], [3]))
        return b.scalar("multiply", sums, scale)
    q, k = (b.scalar("multiply", x, math.sqrt(scale)) for x in (q, k))
    return b.dot(q, k, ([0, 1], [0, 1]), ([3], [3]))


def _weights(n: Site, scores: Value, offset: int) -> Value:
    """Return the softmax of masked scores; a row that sees nothing is zero."""
    b = n.b
    nothing = b.full(-math.inf, scores.element, scores.dims)
    seen: Value | None = None
    if n.int("is_causal", 0):
        row, key = (b.iota("i64", scores.dims[2:], axis) for axis in (0, 1))
        last = row if not offset else b.binary("add", row, known(np.asarray(offset, np.int64)))
        seen = b.compare("LE", key, last)
    mask = n.get(3)
    if mask is not None:
        mask = _padded(n, mask, scores.dims[3])
    if mask is not None and mask.element == "i1":
        seen = mask if seen is None else b.binary("and", seen, mask)
    elif mask is not None:
        scores = b.binary("add", scores, b.convert(mask, "f32") if mask.element in HALVES else mask)
    if seen is not None:
        scores = b.select(seen, scores, nothing)
    top = b.reduce("maximum", scores, [3], keep=True)
    powers = b.unary("exponential", b.binary("subtract", scores, top))
    weights = b.binary("divide", powers, b.reduce("add", powers, [3], keep=True))
    weights = b.convert(weights, n[0].element)
    if mask is None:
        return weights
    blind = b.compare("EQ", top, b.full(-math.inf, top.element, top.dims))
    return b.select(blind, b.full(0, weights.element, weights.dims), weights)


def _weighted(n: Site, weights: Value, v: Value) -> Value:
    """Return the sums of values by weights; elements that differ meet in one that holds both."""
    b = n.b
    wide = weights.element
    if v.element != wide:
        wide = "f64" if "f64" in (wide, v.element) else "f32"
    y = b.dot(b.convert(weights, wide), b.convert(v, wide), ([0, 1], [0, 1]), ([3], [2]))
    return b.convert(y, weights.element)


def _padded(n: Site, mask: Value, keys: int) -> Value:
    """Extend a mask to all keys: those beyond it are not seen."""
    short = keys - mask.dims[-1]
    if not mask.rank or short <= 0 or mask.dims[-1] == 1:
        return mask
    fill = n.b.full(False if mask.element == "i1" else -math.inf, mask.element)
    return n.b.pad(mask, fill, [0] * mask.rank, [*[0] * (mask.rank - 1), short])

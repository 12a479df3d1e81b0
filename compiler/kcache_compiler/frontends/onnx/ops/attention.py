"""Attention in its common forms; other forms use the operator's function body."""

from __future__ import annotations

import math

import numpy as np

from kcache_compiler.frontends.onnx.emitter import HALF_PRECISION, Value, constant_value
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode, legalize

_UNCOMMON_INPUT = 6


@legalize(Attention=25)
def attention(n: OnnxNode) -> LegalizationResult | None:
    """Lower scaled dot-product attention; return the result and the present keys and values.

    Inputs have shape (batch, heads, length, depth), or (batch, length, heads * depth) with the head counts as
    attributes. Past keys and values are concatenated before the new ones. Returns None for uncommon forms,
    which use the function body of the standard.
    """
    is_uncommon = n.int("left_window_size", -1) >= 0 or n.int("right_window_size", -1) >= 0
    if is_uncommon or n.get(_UNCOMMON_INPUT) is not None or n.has_output(3) or n.has("softmax_precision"):
        if n[2].element != n[0].element:  # the function body multiplies them without a conversion
            n.unsupported(f"values of {n[2].element} with weights of {n[0].element} in this form")
        return None
    b = n.b
    is_merged = n[0].rank == 3
    q, k, v = (_split_heads(n, n[i], n.int("kv_num_heads" if i else "q_num_heads", 0)) for i in range(3))
    offset = 0
    if n.get(4) is not None:
        offset = n[4].dims[2]
        k, v = b.concatenate([n[4], k], 2), b.concatenate([n[5], v], 2)
    keys_and_values = [k, v]
    k, v = _repeat_heads(n, k, q.dims[1]), _repeat_heads(n, v, q.dims[1])
    scores = _scores(n, q, k)
    softcap = n.float("softcap", 0.0)
    if softcap:
        scores = b.scalar("multiply", b.unary("tanh", b.scalar("divide", scores, softcap)), softcap)
    y = _weighted_sum(n, _weights(n, scores, offset), v)
    if is_merged:
        y = b.transpose(y, [0, 2, 1, 3])
        y = b.reshape(y, (*y.dims[:2], y.dims[2] * y.dims[3]))
    return [y, *keys_and_values]


def _split_heads(n: OnnxNode, x: Value, heads: int) -> Value:
    """Return (batch, heads, sequence, size)."""
    if x.rank == 4:
        return x
    if x.rank != 3 or heads < 1 or x.dims[2] % heads:
        n.invalid(f"{heads} heads do not divide shape {list(x.dims)}")
    split = n.b.reshape(x, (*x.dims[:2], heads, x.dims[2] // heads))
    return n.b.transpose(split, [0, 2, 1, 3])


def _repeat_heads(n: OnnxNode, x: Value, heads: int) -> Value:
    """Repeat key or value heads for each group of query heads."""
    own_heads = x.dims[1]
    if own_heads == heads:
        return x
    if not own_heads or heads % own_heads:
        n.invalid(f"{own_heads} heads of keys and values do not divide {heads} of queries")
    wide = n.b.broadcast_in_dim(x, [0, 1, 3, 4], (x.dims[0], own_heads, heads // own_heads, *x.dims[2:]))
    return n.b.reshape(wide, (x.dims[0], heads, *x.dims[2:]))


def _scores(n: OnnxNode, q: Value, k: Value) -> Value:
    """Return scaled products of queries and keys; half-precision ones in f32, as are the weights."""
    b, scale = n.b, n.float("scale", 1 / math.sqrt(q.dims[3] or 1))
    if scale < 0:
        n.unsupported("a negative scale, whose square root the definition uses")
    if q.element in HALF_PRECISION:
        sums = b.dot(b.convert(q, "f32"), b.convert(k, "f32"), ([0, 1], [0, 1]), ([3], [3]))
        return b.scalar("multiply", sums, scale)
    q, k = (b.scalar("multiply", x, math.sqrt(scale)) for x in (q, k))
    return b.dot(q, k, ([0, 1], [0, 1]), ([3], [3]))


def _weights(n: OnnxNode, scores: Value, offset: int) -> Value:
    """Return the softmax of masked scores; a fully masked row is zero."""
    b = n.b
    minus_infinity = b.full(-math.inf, scores.element, scores.dims)
    visible: Value | None = None
    if n.int("is_causal", 0):
        row, key = (b.iota("i64", scores.dims[2:], axis) for axis in (0, 1))
        last_key = row if not offset else b.binary("add", row, constant_value(np.asarray(offset, np.int64)))
        visible = b.compare("LE", key, last_key)
    mask = n.get(3)
    if mask is not None:
        mask = _pad_mask(n, mask, scores.dims[3])
    if mask is not None and mask.element == "i1":
        visible = mask if visible is None else b.binary("and", visible, mask)
    elif mask is not None:
        scores = b.binary("add", scores, b.convert(mask, "f32") if mask.element in HALF_PRECISION else mask)
    if visible is not None:
        scores = b.select(visible, scores, minus_infinity)
    maximum = b.reduce("maximum", scores, [3], keep=True)
    powers = b.unary("exponential", b.binary("subtract", scores, maximum))
    weights = b.binary("divide", powers, b.reduce("add", powers, [3], keep=True))
    weights = b.convert(weights, n[0].element)
    if mask is None:
        return weights
    is_masked = b.compare("EQ", maximum, b.full(-math.inf, maximum.element, maximum.dims))
    return b.select(is_masked, b.full(0, weights.element, weights.dims), weights)


def _weighted_sum(n: OnnxNode, weights: Value, v: Value) -> Value:
    """Return the sums of values by weights, computed in a common element type."""
    b = n.b
    wide = weights.element
    if v.element != wide:
        wide = "f64" if "f64" in (wide, v.element) else "f32"
    y = b.dot(b.convert(weights, wide), b.convert(v, wide), ([0, 1], [0, 1]), ([3], [2]))
    return b.convert(y, weights.element)


def _pad_mask(n: OnnxNode, mask: Value, keys: int) -> Value:
    """Extend a mask to all keys, of which the missing ones are masked."""
    missing = keys - mask.dims[-1]
    if not mask.rank or missing <= 0 or mask.dims[-1] == 1:
        return mask
    fill = n.b.full(False if mask.element == "i1" else -math.inf, mask.element)
    return n.b.pad(mask, fill, [0] * mask.rank, [*[0] * (mask.rank - 1), missing])

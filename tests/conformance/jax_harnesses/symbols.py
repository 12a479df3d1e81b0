"""Functions that compute with the sizes of their arguments, each exported with symbols for these.

They are of the kinds that StableHLO's published programs of open sizes have beside batched primitives: shapes made of
products, quotients and differences of sizes, ranges, slices and pads up to a size, loops of as many turns.
"""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Case(NamedTuple):
    """``shapes`` as jax.export has them, with ``f32`` or the dtype behind a colon; ``sizes`` of ``b`` and ``c``."""

    function: Callable[..., Any]
    shapes: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...] = ((3, 4), (1, 1), (5, 2))


_MANY = ((4, 6), (6, 2), (2, 8))
_WIDE = ((6, 7), (5, 5), (9, 6))


def _key(x: Any) -> Any:
    return jax.random.wrap_key_data(x)


def _reduce_pair(x: Any, y: Any) -> Any:
    return lax.reduce((x, y), (np.float32(0), np.float32(1)), lambda p, q: (p[0] + q[0], p[1] * q[1]), (0,))


def _window(x: Any, strides: tuple[int, ...], padding: str) -> Any:
    return lax.reduce_window(x, np.float32(0), lax.add, (2, 2), strides, padding)


def _conv(x: Any, k: Any, strides: tuple[int, int], padding: Any, **more: Any) -> Any:
    return lax.conv_general_dilated(
        x, k, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **more
    )


CASES: dict[str, Case] = {
    "arange to a size": Case(lambda x: jnp.arange(x.shape[0]), ("b",)),
    "arange between sizes": Case(lambda x: jnp.arange(x.shape[0], 3 * x.shape[0], 2), ("b",)),
    "arange of floats": Case(lambda x: jnp.arange(x.shape[0], dtype=jnp.float32) * x, ("b",)),
    "argmax over a symbol": Case(lambda x: jnp.argmax(x, axis=0), ("b, 4, 5",)),
    "argmin beside a symbol": Case(lambda x: jnp.argmin(x, axis=1), ("b, 4, 5",)),
    "average": Case(lambda x, w: jnp.average(x, axis=0, weights=w), ("b, 4", "b, 4")),
    "bincount": Case(lambda x: jnp.bincount(x, length=x.shape[0]), ("b: i32",)),
    "broadcast": Case(lambda x: jnp.broadcast_to(x, (x.shape[0], x.shape[0], 4)), ("b, 4",)),
    "broadcast in dim": Case(
        lambda x: lax.broadcast_in_dim(x, (x.shape[0], 4, x.shape[0]), (0, 1)), ("b, 4",)
    ),
    "clamp": Case(lambda x, y: lax.clamp(np.float32(-1), x + y, np.float32(1)), ("b, 4", "b, 4")),
    "concatenate twice": Case(lambda x: jnp.concatenate([x, x], axis=0), ("b, b",)),
    "concatenate two symbols": Case(lambda x, y: jnp.concatenate([x, y], axis=1), ("2, b", "2, c")),
    "conv of an open image": Case(
        lambda x, k: _conv(x, k, (1, 1), "SAME"), ("1, b, c, 3", "2, 3, 3, 4"), _WIDE
    ),
    "conv valid": Case(lambda x, k: _conv(x, k, (1, 1), "VALID"), ("2, b, c, 3", "2, 3, 3, 4"), _WIDE),
    "conv of an open batch": Case(lambda x, k: _conv(x, k, (2, 1), "SAME"), ("b, 8, 9, 3", "2, 3, 3, 4")),
    "conv strided": Case(lambda x, k: _conv(x, k, (2, 2), "SAME"), ("1, b, c, 3", "2, 3, 3, 4"), _WIDE),
    "conv dilated": Case(
        lambda x, k: _conv(x, k, (1, 1), [(1, 1), (0, 2)], rhs_dilation=(2, 1)),
        ("1, b, c, 3", "2, 3, 3, 4"),
        _WIDE,
    ),
    "conv transposed": Case(
        lambda x, k: lax.conv_transpose(x, k, (2, 1), "SAME"), ("1, b, c, 3", "2, 3, 3, 4"), _WIDE
    ),
    "cumsum": Case(lambda x: jnp.cumsum(x, axis=0), ("b, 4",)),
    "cumprod beside": Case(lambda x: lax.cumprod(x, axis=1), ("b, 4",)),
    "cummax reverse": Case(lambda x: lax.cummax(x, axis=0, reverse=True), ("b, 4",)),
    "cumlogsumexp": Case(lambda x: lax.cumlogsumexp(x, axis=0), ("b, 4",)),
    "diag": Case(jnp.diag, ("b",)),
    "dot with twice a symbol": Case(
        lambda x, y: jnp.concatenate([x, x], 1) @ jnp.concatenate([y, y], 0), ("3, b", "b, 5")
    ),
    "dynamic_slice": Case(
        lambda x, i: lax.dynamic_slice(x, (i, np.int32(1)), (2, 2)), ("b, 4", ": i32"), _MANY
    ),
    "dynamic_slice of all but one": Case(
        lambda x, i: lax.dynamic_slice_in_dim(x, i, x.shape[0] - 1, axis=0), ("b, 4", ": i32")
    ),
    "dynamic_update_slice": Case(
        lambda x, i: lax.dynamic_update_slice(x, jnp.ones((1, 4), x.dtype), (i, np.int32(0))),
        ("b, 4", ": i32"),
    ),
    "einsum": Case(lambda x, y: jnp.einsum("...ab,...bc->...ac", x, y), ("b, 3, 4", "b, 4, 5")),
    "einsum of a trace": Case(lambda x: jnp.einsum("ij->i", x), ("b, c",)),
    "eye": Case(lambda x: jnp.eye(x.shape[0], x.shape[0] + 2) + x[0], ("b",)),
    "fft of an open batch": Case(lambda x: lax.fft(x, lax.FftType.RFFT, (6,)), ("b, c, 6",)),
    "flip": Case(lambda x: jnp.flip(x, axis=0), ("b, 4",)),
    "fori_loop of a size": Case(
        lambda x: lax.fori_loop(0, x.shape[0], lambda i, s: s + x[i], jnp.zeros(4, x.dtype)), ("b, 4",)
    ),
    "full": Case(lambda x: lax.full((x.shape[0], 2), 3.0) + x, ("b, 1",)),
    "gather a row": Case(lambda x, i: x[i], ("b, 4", "c: i32")),
    "gather pairs": Case(lambda x, i, j: x[i, j], ("b, 4", "c: i32", "c: i32")),
    "gather behind": Case(lambda x, i: x[:, i], ("b, 4", "2, 3: i32")),
    "gather along": Case(lambda x, i: jnp.take_along_axis(x, i, axis=1), ("b, 4", "b, 4: i32")),
    "hypot of a size": Case(lambda x: jnp.hypot(x, x.shape[0]), ("b",)),
    "image.resize linear": Case(
        lambda x: jax.image.resize(x, (2 * x.shape[0], 2 * x.shape[1], 3), "linear"), ("b, c, 3",), _WIDE
    ),
    "image.resize nearest": Case(
        lambda x: jax.image.resize(x, (2 * x.shape[0], 8, 3), "nearest"), ("b, c, 3",), _WIDE
    ),
    "image.resize to fixed": Case(lambda x: jax.image.resize(x, (16, 16, 3), "linear"), ("b, c, 3",), _WIDE),
    "index the last": Case(lambda x: lax.index_in_dim(x, -1, axis=0), ("b, 4",)),
    "iota": Case(lambda x: lax.broadcasted_iota(jnp.int32, (x.shape[0], 3), 0), ("b",)),
    "linspace": Case(lambda x: jnp.linspace(0.0, 1.0, x.shape[0]), ("b",), _MANY),
    "matmul": Case(jnp.matmul, ("b, 8, 4", "b, 4, c")),
    "max of sizes": Case(lambda x, y: jnp.zeros((jax.core.max_dim(x.shape[0], y.shape[0]),)), ("b", "c")),
    "mean": Case(lambda x: jnp.mean(x, axis=(0, 1), keepdims=True), ("b, 8, 4",)),
    "mean where": Case(lambda x, w: jnp.mean(x, axis=0, where=w), ("b, 8", "b, 8: bool")),
    "meshgrid": Case(lambda x, y: jnp.meshgrid(x, y), ("b", "c")),
    "nanquantile": Case(lambda x: jnp.nanquantile(x, 0.5, axis=0), ("b, 5",)),
    "nonzero": Case(lambda x: jnp.nonzero(x % 3, size=2 * x.shape[0], fill_value=100), ("b, 2: i32",)),
    "one_hot": Case(lambda x, y: jax.nn.one_hot(x, y.shape[0]), ("c: i32", "b")),
    "outer of sizes": Case(lambda x, y: jnp.outer(x, y).reshape(x.shape[0] * y.shape[0]), ("b", "c")),
    "pad by a size": Case(
        lambda x: lax.pad(x, np.float32(0), ((x.shape[0], x.shape[1], x.shape[0]), (0, 0, 0))), ("b, 2",)
    ),
    "pad edge": Case(lambda x: jnp.pad(x, [[x.shape[0], 0], [x.shape[1], 1]], mode="edge"), ("b, 5",)),
    "pad of all but one": Case(lambda x: jnp.pad(x[1:], [[x.shape[0], 0], [0, 1]]), ("b, 5",)),
    "percentile": Case(lambda x: jnp.percentile(x, 50, axis=None), ("b, 5",)),
    "qr": Case(lambda x: jnp.linalg.qr(x, mode="r"), ("b, c, 4, 4",)),
    "cholesky": Case(
        lambda x: jnp.linalg.cholesky(x @ jnp.swapaxes(x, -1, -2) + 5 * jnp.eye(4)), ("b, 4, 4",)
    ),
    "triangular_solve": Case(
        lambda x, y: lax.linalg.triangular_solve(
            x + 3 * jnp.eye(4, dtype=x.dtype), y, lower=True, left_side=True
        ),
        ("b, 4, 4", "b, 4, 3"),
    ),
    "lu": Case(lambda x: lax.linalg.lu(x), ("b, 4, 4",)),
    "eigvalsh": Case(lambda x: jnp.linalg.eigvalsh(x + jnp.swapaxes(x, -1, -2)), ("b, 4, 4",)),
    "svdvals": Case(lambda x: jnp.linalg.svdvals(x), ("b, 4, 5",)),
    "det": Case(jnp.linalg.det, ("b, 4, 4",)),
    "inv": Case(lambda x: jnp.linalg.inv(x + 5 * jnp.eye(4)), ("b, 4, 4",)),
    "random uniform": Case(lambda k, x: jax.random.uniform(_key(k), x.shape), ("2: u32", "b, 4")),
    "random uniform of two symbols": Case(
        lambda k, x: jax.random.uniform(_key(k), x.shape), ("2: u32", "b, c, 2")
    ),
    "random normal": Case(lambda k, x: jax.random.normal(_key(k), x.shape), ("2: u32", "b, 4")),
    "random randint": Case(lambda k, x: jax.random.randint(_key(k), x.shape, 0, 10), ("2: u32", "b, 4")),
    "random categorical": Case(lambda k, x: jax.random.categorical(_key(k), x, axis=0), ("2: u32", "b, 8")),
    "random gamma": Case(lambda k, x: jax.random.gamma(_key(k), jnp.abs(x) + 1.0), ("2: u32", "b, 2")),
    "random split": Case(
        lambda k, x: jax.random.key_data(jax.random.split(_key(k), 2 * x.shape[0])), ("2: u32", "b")
    ),
    "rng_bit_generator": Case(lambda k, x: lax.rng_bit_generator(k, (x.shape[0], 4))[1], ("4: u32", "b")),
    "reduce in two": Case(_reduce_pair, ("b, 4", "b, 4")),
    "reduce_max": Case(lambda x: jnp.max(x, axis=(0, 2)), ("b, 4, c",)),
    "reduce_and": Case(lambda x: jnp.all(x, axis=0), ("b, 4: bool",)),
    "reduce_window": Case(lambda x: _window(x, (1, 1), "SAME"), ("b, 8",)),
    "reduce_window of two symbols": Case(lambda x: _window(x, (1, 1), "VALID"), ("b, c",), _WIDE),
    "reduce_window strided": Case(lambda x: _window(x, (2, 2), "SAME"), ("b, c",), _WIDE),
    "avg_pool": Case(
        lambda x: lax.reduce_window(x, np.float32(0), lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        ("b, 8, 8, 3",),
    ),
    "gradient of a window": Case(
        jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), "VALID").sum()),
        ("b, 6, 6",),
    ),
    "repeat": Case(lambda x: jnp.repeat(x, 3, axis=0), ("b, 4",)),
    "repeat by a size": Case(lambda x: jnp.repeat(x, x.shape[0], axis=1), ("b, 2",)),
    "reshape to a product": Case(lambda x: x.reshape((x.shape[0] * x.shape[1], -1)), ("b, c, 4",)),
    "reshape to twice": Case(lambda x: x.reshape((2, -1)), ("b, 4, c, 6",)),
    "reshape to half": Case(lambda x: x.reshape((-1, 2)), ("2*b",)),
    "reshape flat": Case(lambda x: x.reshape(-1), ("b, 4, c",)),
    "roll": Case(lambda x: jnp.roll(x, 2, axis=0), ("b, 4",)),
    "roll by an argument": Case(lambda x, i: jnp.roll(x, i, axis=0), ("b, 4", ": i32")),
    "scan over a symbol": Case(
        lambda x: lax.scan(lambda s, r: (s + r, s * r), jnp.zeros(4, x.dtype), x), ("b, 4",)
    ),
    "scatter_add": Case(lambda x, i, u: x.at[i].add(u), ("b, 4", "c: i32", "c, 4")),
    "scatter set": Case(lambda x, i: x.at[:, i].set(1.0), ("b, 4", "2: i32")),
    "scatter into a slice": Case(lambda x: x.at[1:].set(2.0), ("b, 4",)),
    "select": Case(lambda w, x, y: jnp.where(w, x, y), ("b, 4: bool", "b, 4", "b, 4")),
    "slice behind the first": Case(lambda x: x[1:], ("b, 4",)),
    "slice before the last": Case(lambda x: x[:-1] * 2, ("b, 4",)),
    "slice strided": Case(lambda x: x[::2], ("b, 4",)),
    "slice backwards": Case(lambda x: x[::-1], ("b, 4",)),
    "slice of half": Case(lambda x: x[: x.shape[0] // 2], ("b, 4",), _MANY),
    "slice of the last half": Case(lambda x: x[x.shape[0] // 2 :], ("b, 4",)),
    "sort": Case(lambda x: jnp.sort(x, axis=0), ("b, 4",)),
    "argsort": Case(lambda x: jnp.argsort(x, axis=0), ("b, 4",)),
    "split": Case(lambda x: jnp.split(x, 2, axis=1), ("b, 4",)),
    "split a product": Case(lambda x: jnp.split(x, 2), ("2*b",)),
    "squeeze": Case(lambda x: jnp.squeeze(x, axis=1), ("b, 1, 4",)),
    "stack": Case(lambda x, y: jnp.stack([x, y], axis=1), ("b, 4", "b, 4")),
    "take": Case(lambda x, i: jnp.take(x, i, axis=0, mode="clip"), ("b, 4", "3: i32")),
    "tile": Case(lambda x: jnp.tile(x, (1, 2)), ("b, 4",)),
    "tile by a size": Case(lambda x: jnp.tile(x, (1, x.shape[0])), ("b, 2",)),
    "top_k": Case(lambda x: lax.top_k(x, 2), ("b, 4",)),
    "top_k of all but one": Case(lambda x: lax.top_k(x, x.shape[1] - 1), ("3, b",)),
    "transpose": Case(lambda x: jnp.transpose(x, (2, 0, 1)), ("b, 4, c",)),
    "tri": Case(lambda x: jnp.tri(x.shape[0], x.shape[0] + 2), ("b",)),
    "tril": Case(jnp.tril, ("b, b",)),
    "triu above": Case(lambda x: jnp.triu(x, 1), ("b, c",)),
    "var": Case(lambda x: jnp.var(x, axis=0), ("b, 8, 4",)),
    "var where": Case(lambda x, w: jnp.var(x, axis=0, where=w, keepdims=True), ("b, 8", "b, 8: bool")),
    "vmap of a gather": Case(jax.vmap(lambda x, i: x[i]), ("b, 4", "b, 2: i32")),
    "while of a size": Case(
        lambda x: lax.while_loop(lambda s: s[0] < x.shape[0], lambda s: (s[0] + 1, s[1] * 1.5 + x), (0, x)),
        ("b",),
    ),
    "mod of sizes": Case(lambda x: jnp.zeros((x.shape[0] % 3 + 1,)) + x.shape[0], ("b",)),
}

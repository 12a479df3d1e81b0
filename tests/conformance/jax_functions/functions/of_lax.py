"""``jax.lax``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.conformance.jax_functions.values import Given, b, c, f, i, n, p, u, w, words

#: A function, and what it is given.
Case = tuple[Any, ...]

_ONE = words(
    "abs ceil cos cosh exp exp2 expm1 floor neg round sign sin sinh square tan tanh logistic erf erfc "
    "is_finite stop_gradient"
)
_POSITIVE = words("sqrt rsqrt log log1p cbrt digamma lgamma reciprocal")
_WITHIN = words("acos asin atan asinh atanh erf_inv bessel_i0e bessel_i1e")
_TWO = words("add sub mul div max min rem atan2 nextafter eq ne lt le gt ge")
_INTEGERS = words("bitwise_and bitwise_or bitwise_xor")


def _while(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jnp.sin(s[1]) + s[1]), (0, x))[1]


def _scan(x: Any, y: Any) -> Any:
    return lax.scan(lambda carry, t: (carry * 0.5 + t, jnp.tanh(carry)), x, y)


def _conv(x: Any, y: Any, **keywords: Any) -> Any:
    numbers = ("NCHW", "OIHW", "NCHW")
    keywords = {"window_strides": (1, 1), "padding": "SAME", **keywords}
    return lax.conv_general_dilated(x, y, dimension_numbers=numbers, **keywords)


def _random_bits(key: Any) -> Any:
    key = key.astype(jnp.uint32)
    return lax.rng_bit_generator(key, (8,), jnp.uint32, algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)


_GATHER = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_SCATTER = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)


def _scattered(scatter: Callable[..., Any]) -> Case:
    return (lambda x, at, y: scatter(x, at[:, None], y, _SCATTER), f(5, 3), n(2), p(2, 3))


CASES: dict[str, Case] = {
    **{name: (getattr(lax, name), f(3, 5)) for name in _ONE},
    **{name: (getattr(lax, name), p(3, 5)) for name in _POSITIVE},
    **{name: (getattr(lax, name), u(3, 5)) for name in _WITHIN},
    **{name: (getattr(lax, name), f(3, 5), f(3, 5)) for name in _TWO},
    **{name: (getattr(lax, name), i(3, 5), i(3, 5)) for name in _INTEGERS},
    "acosh": (lax.acosh, Given((3, 5), 1.1, 4.0)),
    "pow": (lax.pow, p(3, 5), f(3, 5)),
    "integer_pow": (lambda x: lax.integer_pow(x, -3), p(3, 5)),
    "igamma": (lax.igamma, p(3, 5), p(3, 5)),
    "igammac": (lax.igammac, p(3, 5), p(3, 5)),
    "polygamma": (lambda x: lax.polygamma(jnp.full_like(x, 2.0), x), p(3, 5)),
    "zeta": (lax.zeta, Given((3, 5), 1.5, 4.0), p(3, 5)),
    "betainc": (lax.betainc, p(3, 5), p(3, 5), Given((3, 5), 0.05, 0.95)),
    "random_gamma_grad": (lax.random_gamma_grad, p(3, 5), p(3, 5)),
    "bitwise_not": (lax.bitwise_not, i(3, 5)),
    "clz": (lax.clz, i(3, 5)),
    "population_count": (lax.population_count, w(3, 5)),
    "shift_left": (lax.shift_left, i(3, 5), n(3, 5)),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, i(3, 5), n(3, 5)),
    "shift_right_logical": (lax.shift_right_logical, i(3, 5), n(3, 5)),
    "clamp": (lambda x: lax.clamp(-1.0, x, 1.0), f(3, 5)),
    "select": (lax.select, b(3, 5), f(3, 5), f(3, 5)),
    "select_n": (lax.select_n, n(3, 5), f(3, 5), f(3, 5), f(3, 5)),
    "complex": (lax.complex, f(3, 5), f(3, 5)),
    "conj": (lax.conj, c(3, 5)),
    "real": (lax.real, c(3, 5)),
    "imag": (lax.imag, c(3, 5)),
    "convert_element_type": (lambda x: lax.convert_element_type(x, jnp.bfloat16), f(3, 5)),
    "bitcast_convert_type": (lambda x: lax.bitcast_convert_type(x, jnp.int32), f(3, 5)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 10), f(3, 5)),
    "broadcast": (lambda x: lax.broadcast(x, (2,)), f(3, 5)),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 3, 5), (1, 2)), f(3, 5)),
    "broadcasted_iota": (lambda x: x * lax.broadcasted_iota(jnp.float32, (3, 5), 1), f(3, 5)),
    "iota": (lambda x: x + lax.iota(jnp.float32, 5), f(5)),
    "collapse": (lambda x: lax.collapse(x, 0, 2), f(2, 3, 4)),
    "expand_dims": (lambda x: lax.expand_dims(x, (1,)), f(3, 5)),
    "squeeze": (lambda x: lax.squeeze(x, (1,)), f(3, 1, 5)),
    "reshape": (lambda x: lax.reshape(x, (5, 3)), f(3, 5)),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), f(2, 3, 4)),
    "rev": (lambda x: lax.rev(x, (1,)), f(3, 5)),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), f(3, 5), f(3, 2)),
    "pad": (lambda x, v: lax.pad(x, v, ((1, 2, 1), (-1, 0, 0))), f(3, 5), f()),
    "slice": (lambda x: lax.slice(x, (0, 1), (3, 5), (1, 2)), f(3, 5)),
    "slice_in_dim": (lambda x: lax.slice_in_dim(x, 1, 4, axis=1), f(3, 5)),
    "split": (lambda x: lax.split(x, (2, 3), 1), f(3, 5)),
    "index_in_dim": (lambda x: lax.index_in_dim(x, 2, 1), f(3, 5)),
    "dynamic_slice": (lambda x, s: lax.dynamic_slice(x, (s, s), (2, 2)), f(3, 5), n()),
    "dynamic_slice_in_dim": (lambda x, s: lax.dynamic_slice_in_dim(x, s, 2, 1), f(3, 5), n()),
    "dynamic_index_in_dim": (lambda x, s: lax.dynamic_index_in_dim(x, s, 1), f(3, 5), n()),
    "dynamic_update_slice": (
        lambda x, y, s: lax.dynamic_update_slice(x, y, (s, s)),
        f(3, 5),
        f(2, 2),
        n(),
    ),
    "dynamic_update_index_in_dim": (
        lambda x, y, s: lax.dynamic_update_index_in_dim(x, y, s, 1),
        f(3, 5),
        f(3),
        n(),
    ),
    "gather": (lambda x, at: lax.gather(x, at[:, None], _GATHER, (1, 3)), f(5, 3), n(4)),
    "index_take": (lambda x, at: lax.index_take(x, at[None], (0,)), f(5, 3), n(4)),
    "scatter": (lambda x, at, y: lax.scatter(x, at[:, None], y, _SCATTER), f(5, 3), n(1), f(1, 3)),
    "scatter_add": _scattered(lax.scatter_add),
    "scatter_sub": _scattered(lax.scatter_sub),
    "scatter_mul": (
        lambda x, at, y: lax.scatter_mul(x, at[:, None], y, _SCATTER, unique_indices=True),
        f(5, 3),
        n(1),
        p(1, 3),
    ),
    "scatter_min": _scattered(lax.scatter_min),
    "scatter_max": _scattered(lax.scatter_max),
    "scatter_apply": (
        lambda x, at: lax.scatter_apply(x, at[:, None], jnp.sin, _SCATTER, update_shape=(1, 3)),
        f(5, 3),
        n(1),
    ),
    "dot": (lax.dot, f(3, 4), f(4, 5)),
    "dot_general": (
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
        f(2, 3, 4),
        f(2, 4, 5),
    ),
    "batch_matmul": (lax.batch_matmul, f(2, 3, 4), f(2, 4, 5)),
    "conv": (lambda x, y: lax.conv(x, y, (1, 1), "SAME"), f(1, 3, 6, 6), f(4, 3, 3, 3)),
    "conv strided": (functools.partial(_conv, window_strides=(2, 1)), f(1, 3, 6, 6), f(4, 3, 3, 3)),
    "conv dilated": (functools.partial(_conv, rhs_dilation=(2, 2)), f(1, 3, 6, 6), f(4, 3, 3, 3)),
    "conv grouped": (functools.partial(_conv, feature_group_count=2), f(1, 4, 6, 6), f(4, 2, 3, 3)),
    "conv_transpose": (
        lambda x, y: lax.conv_transpose(x, y, (2, 2), "SAME"),
        f(1, 5, 5, 3),
        f(3, 3, 3, 2),
    ),
    "conv_general_dilated_patches": (
        lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID"),
        f(1, 2, 4, 4),
    ),
    "reduce sum": (lambda x: lax.reduce(x, 0.0, lax.add, (1,)), f(3, 5)),
    "reduce max": (lambda x: lax.reduce(x, -jnp.inf, lax.max, (0,)), f(3, 5)),
    "reduce_and": (lambda x: lax.reduce_and(x, (1,)), b(3, 5)),
    "reduce_or": (lambda x: lax.reduce_or(x, (1,)), b(3, 5)),
    "reduce_xor": (lambda x: lax.reduce_xor(x, (1,)), i(3, 5)),
    "reduce_sum": (lambda x: lax.reduce_sum(x, (1,)), f(3, 5)),
    "reduce_prod": (lambda x: lax.reduce_prod(x, (1,)), f(3, 5)),
    "reduce_max": (lambda x: lax.reduce_max(x, (1,)), f(3, 5)),
    "reduce_min": (lambda x: lax.reduce_min(x, (1,)), f(3, 5)),
    "reduce_window sum": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 2), "VALID"),
        f(4, 6),
    ),
    "reduce_window max": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 1), "SAME"),
        f(4, 6),
    ),
    "argmax": (lambda x: lax.argmax(x, 1, jnp.int32), f(3, 5)),
    "argmin": (lambda x: lax.argmin(x, 1, jnp.int32), f(3, 5)),
    "cumsum": (lambda x: lax.cumsum(x, 1), f(3, 5)),
    "cumprod": (lambda x: lax.cumprod(x, 1), f(3, 5)),
    "cummax": (lambda x: lax.cummax(x, 1), f(3, 5)),
    "cummin": (lambda x: lax.cummin(x, 1), f(3, 5)),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), f(3, 5)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x, axis=1), f(3, 7)),
    "sort": (lambda x: lax.sort(x, dimension=1), f(3, 7)),
    "sort_key_val": (lambda x, y: lax.sort_key_val(x, y), f(7), f(7)),
    "top_k": (lambda x: lax.top_k(x, 3), f(3, 7)),
    "approx_max_k": (lambda x: lax.approx_max_k(x, 3), f(3, 7)),
    "cond": (lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), f(), f(3, 5)),
    "switch": (lambda s, x: lax.switch(s, [jnp.sin, jnp.cos, jnp.tanh], x), n(), f(3, 5)),
    "while_loop": (_while, f(3, 5)),
    "fori_loop": (lambda x: lax.fori_loop(0, 4, lambda t, s: s * 0.5 + t, x), f(3, 5)),
    "scan": (_scan, f(5), f(4, 5)),
    "map": (lambda x: lax.map(lambda row: jnp.cumsum(row) * 2, x), f(3, 5)),
    "fft": (lambda x: lax.fft(x, lax.FftType.FFT, (8,)), c(3, 8)),
    "rng_bit_generator": (
        _random_bits,
        w(4),
    ),
    "linalg.cholesky": (lambda x: lax.linalg.cholesky(x @ x.T + 3 * jnp.eye(4)), f(4, 4)),
    "linalg.triangular_solve": (
        lambda x, y: lax.linalg.triangular_solve(x + 4 * jnp.eye(4), y, left_side=True, lower=True),
        f(4, 4),
        f(4, 3),
    ),
    "optimization_barrier": (lax.optimization_barrier, f(3, 5)),
    "square complex": (lax.square, c(3, 5)),
    "mulhi": (lax.mulhi, i(3, 5), i(3, 5)),
}

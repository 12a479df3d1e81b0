"""Functions of ``jax.numpy``, ``jax.lax``, ``jax.nn`` and ``jax.scipy.special`` that take some arranging."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax, nn
from jax.scipy import special

from tests.conformance.jax_functions.values import b, c, f, i, n, p, q

#: A function, and what it is given.
Case = tuple[Any, ...]

NUMPY: dict[str, Case] = {
    "around": (lambda x: jnp.around(x, 1), f(3, 5)),
    "compress": (lambda m, x: jnp.compress(m, x, axis=0, size=2), b(3), f(3, 5)),
    "diag_indices_from": (lambda x: x[jnp.diag_indices_from(x)], f(4, 4)),
    "extract": (lambda m, x: jnp.extract(m, x, size=4, fill_value=0), b(3, 5), f(3, 5)),
    "full": (lambda x: jnp.full((3, 5), x), f()),
    "ones": (lambda x: x + jnp.ones((3, 5)), f(5)),
    "zeros": (lambda x: x + jnp.zeros((3, 5)), f(5)),
    "empty": (lambda x: x + 0 * jnp.empty((3, 5)), f(5)),
    "fromfunction": (lambda x: x + jnp.fromfunction(lambda i, j: i * j, (3, 5)), f(5)),
    "histogram_bin_edges": (lambda x: jnp.histogram_bin_edges(x, bins=5), f(20)),
    "histogramdd": (lambda x: jnp.histogramdd(x, bins=3, range=[(-2, 2), (-2, 2)]), f(20, 2)),
    "ravel_multi_index": (lambda x, y: jnp.ravel_multi_index((x, y), (3, 5), mode="clip"), n(4), n(4)),
    "unravel_index": (lambda x: jnp.unravel_index(x, (3, 5)), n(4, below=15)),
    "setxor1d": (lambda x, y: jnp.setxor1d(x, y, size=8, fill_value=-1), n(9, below=9), n(4, below=9)),
    "unique_all": (lambda x: jnp.unique_all(x, size=4, fill_value=-1), n(9, below=4)),
    "unique_counts": (lambda x: jnp.unique_counts(x, size=4, fill_value=-1), n(9, below=4)),
    "unique_inverse": (lambda x: jnp.unique_inverse(x, size=4, fill_value=-1), n(9, below=4)),
    "unique_values": (lambda x: jnp.unique_values(x, size=4, fill_value=-1), n(9, below=4)),
    "triu_indices": (lambda x: x[jnp.triu_indices(4, 1)], f(4, 4)),
    "tril_indices_from": (lambda x: x[jnp.tril_indices_from(x)], f(4, 4)),
    "triu_indices_from": (lambda x: x[jnp.triu_indices_from(x)], f(4, 4)),
    "mask_indices": (lambda x: x[jnp.mask_indices(4, jnp.triu, size=10)], f(4, 4)),
    "fft.fftfreq": (lambda x: x * jnp.fft.fftfreq(8), f(8)),
    "fft.rfftfreq": (lambda x: x * jnp.fft.rfftfreq(8), f(5)),
    "fft.ifft2": (jnp.fft.ifft2, c(4, 6)),
    "fft.ifftn": (jnp.fft.ifftn, c(2, 3, 4)),
    "fft.ihfft": (jnp.fft.ihfft, f(8)),
    "fft.irfft2": (jnp.fft.irfft2, c(4, 4)),
    "fft.irfftn": (jnp.fft.irfftn, c(2, 3, 4)),
    "fft.rfftn": (jnp.fft.rfftn, f(2, 3, 4)),
}


def _solved(x: Any, y: Any) -> Any:
    """A linear system by its matrix product alone."""
    matrix = x @ x.T + 4 * jnp.eye(4)
    return lax.custom_linear_solve(
        lambda v: matrix @ v, y, lambda apply, v: v / 4 - apply(v) / 64, symmetric=True
    )


def _root(x: Any) -> Any:
    """The square root, by Newton's steps and its own derivative."""

    def solve(function: Any, guess: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, v: v - function(v) / (2 * v), guess)

    return lax.custom_root(lambda v: v * v - x, x, solve, lambda linear, y: y / linear(jnp.ones_like(y)))


LAX: dict[str, Case] = {
    "approx_min_k": (lambda x: lax.approx_min_k(x, 3), f(3, 7)),
    "broadcast_to_rank": (lambda x: lax.broadcast_to_rank(x, 3), f(3, 5)),
    "composite": (lax.composite(lambda x: jnp.sin(x) * 2, "kcache.twice"), f(3, 5)),
    "conv_general_dilated": (
        lambda x, y: lax.conv_general_dilated(x, y, (1,), [(1, 0)], lhs_dilation=(2,)),
        f(2, 3, 6),
        f(4, 3, 3),
    ),
    "conv_general_dilated_local": (
        lambda x, y: lax.conv_general_dilated_local(x, y, (1,), "VALID", (3,)),
        f(2, 3, 6),
        f(4, 9, 4),
    ),
    "conv_with_general_padding": (
        lambda x, y: lax.conv_with_general_padding(x, y, (1,), [(2, -1)], None, None),
        f(2, 3, 6),
        f(4, 3, 3),
    ),
    "custom_linear_solve": (_solved, f(4, 4), f(4)),
    "custom_root": (_root, p(5)),
    "dynamic_update_slice_in_dim": (
        lambda x, y, s: lax.dynamic_update_slice_in_dim(x, y, s, 1),
        f(3, 5),
        f(3, 2),
        n(),
    ),
    "full": (lambda x: lax.full((3, 5), 2.5) + x, f(5)),
    "full_like": (lambda x: lax.full_like(x, 2.5) * x, f(3, 5)),
    "igamma_grad_a": (lax.igamma_grad_a, p(3, 5), p(3, 5)),
    "platform_dependent": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), f(3, 5)),
    "ragged_dot": (
        lambda x, y: lax.ragged_dot(x, y, jnp.array([2, 3], jnp.int32)),
        f(5, 4),
        f(2, 4, 3),
    ),
    "reduce_window_of_pairs": (
        lambda x: lax.reduce_window(x, 1.0, lax.mul, (1, 3), (1, 1), "SAME"),
        p(3, 6),
    ),
    "reduce_of_pairs": (
        lambda x, y: lax.reduce((x, y), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
        f(3, 5),
        f(3, 5),
    ),
    "tile": (lambda x: lax.tile(x, (2, 3)), f(2, 3)),
    "dce_sink": (lambda x: (lax.dce_sink(jnp.sin(x)), x * 2)[1], f(3)),
}

NN: dict[str, Case] = {
    "tanh": (nn.tanh, f(3, 6)),
    "logmeanexp": (nn.logmeanexp, f(3, 6)),
}

SPECIAL: dict[str, Case] = {
    "boxcox": (lambda x: special.boxcox(x, 0.5), p(3, 5)),
    "boxcox1p": (lambda x: special.boxcox1p(x, 0.5), p(3, 5)),
    "comb": (special.comb, p(3, 5), q(3, 5)),
    "owens_t": (special.owens_t, f(3, 5), f(3, 5)),
    "bernoulli of integers": (lambda x: jnp.sum(x) * special.bernoulli(4), i(3)),
}

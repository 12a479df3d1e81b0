"""``jax.numpy.linalg`` and ``jax.lax.linalg``: what JAX asks LAPACK on a CPU."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.numpy import linalg

from tests.conformance.jax_functions.values import c, f

#: A function, and what it is given.
Case = tuple[Any, ...]


def _even(x: Any) -> Any:
    """Its Hermitian part, with eigenvalues that are apart."""
    return x + jnp.conj(jnp.swapaxes(x, -1, -2)) + 4 * jnp.diag(jnp.arange(x.shape[-1]))


def _up_to_signs(*vectors: Any) -> Any:
    """Vectors that are unique up to a factor of length 1 each."""
    return tuple(jnp.abs(x) for x in vectors)


def _eigh(x: Any) -> Any:
    values, vectors = linalg.eigh(_even(x))
    return values, *_up_to_signs(vectors)


def _svd(x: Any) -> Any:
    left, values, right = linalg.svd(x, full_matrices=False)
    return values, *_up_to_signs(left, right)


def _full_svd(x: Any) -> Any:
    """Columns that no singular value has are any that complete the others: their projection is one."""
    left, values, right = linalg.svd(x)
    rest = left[:, values.size :]
    return values, *_up_to_signs(left[:, : values.size], right), rest @ rest.T


def _dominant(x: Any) -> Any:
    return x + 5 * jnp.eye(x.shape[-1])


NUMPY: dict[str, Case] = {
    "linalg.det": (linalg.det, f(4, 4)),
    "linalg.det of several": (linalg.det, f(2, 3, 3)),
    "linalg.slogdet": (linalg.slogdet, f(4, 4)),
    "linalg.inv": (lambda x: linalg.inv(_dominant(x)), f(4, 4)),
    "linalg.inv complex": (lambda x: linalg.inv(_dominant(x)), c(4, 4)),
    "linalg.solve": (lambda x, y: linalg.solve(_dominant(x), y), f(4, 4), f(4, 3)),
    "linalg.solve of several": (lambda x, y: linalg.solve(_dominant(x), y), f(2, 4, 4), f(2, 4, 3)),
    "linalg.tensorinv": (lambda x: linalg.tensorinv(x + 4 * jnp.eye(4).reshape(2, 2, 2, 2)), f(2, 2, 2, 2)),
    "linalg.tensorsolve": (
        lambda x, y: linalg.tensorsolve(x + 4 * jnp.eye(4).reshape(2, 2, 2, 2), y),
        f(2, 2, 2, 2),
        f(2, 2),
    ),
    "linalg.qr": (linalg.qr, f(5, 3)),
    "linalg.qr complete": (lambda x: linalg.qr(x, mode="complete"), f(3, 3)),
    "linalg.qr of wide": (lambda x: linalg.qr(x), f(3, 5)),
    "linalg.qr complex": (linalg.qr, c(4, 3)),
    "linalg.eigh": (_eigh, f(5, 5)),
    "linalg.eigh complex": (_eigh, c(4, 4)),
    "linalg.eigvalsh": (lambda x: linalg.eigvalsh(_even(x)), f(4, 4)),
    "linalg.eigvals": (linalg.eigvals, f(4, 4)),
    "linalg.eig": (lambda x: linalg.eig(x)[0], f(4, 4)),
    "linalg.svd": (_svd, f(5, 3)),
    "linalg.svd of wide": (_svd, f(3, 5)),
    "linalg.svd full": (_full_svd, f(5, 3)),
    "linalg.svd complex": (_svd, c(4, 3)),
    "linalg.svdvals": (linalg.svdvals, f(3, 5)),
    "linalg.pinv": (linalg.pinv, f(5, 3)),
    "linalg.cond": (linalg.cond, f(4, 4)),
    "linalg.matrix_rank": (linalg.matrix_rank, f(4, 3)),
    "linalg.lstsq": (lambda x, y: linalg.lstsq(x, y)[0], f(5, 3), f(5)),
    "linalg.norm nuclear": (lambda x: linalg.norm(x, "nuc"), f(4, 3)),
    "linalg.norm spectral": (lambda x: linalg.norm(x, 2), f(4, 3)),
    "linalg.matrix_power inverse": (lambda x: linalg.matrix_power(_dominant(x), -2), f(4, 4)),
    "linalg.diagonal": (linalg.diagonal, f(3, 4)),
    "linalg.matmul": (linalg.matmul, f(3, 4), f(4, 5)),
    "linalg.matrix_transpose": (linalg.matrix_transpose, f(3, 4)),
    "linalg.vecdot": (linalg.vecdot, f(3, 4), f(3, 4)),
    "polyfit": (lambda x, y: jnp.polyfit(x, y, 2), f(7), f(7)),
    "roots": (lambda x: jnp.roots(x, strip_zeros=False), f(4)),
}

LAX: dict[str, Case] = {
    "linalg.lu": (lax.linalg.lu, f(4, 4)),
    "linalg.lu of wide": (lambda x: lax.linalg.lu(x)[0], f(3, 5)),
    "linalg.lu of tall": (lambda x: lax.linalg.lu(x)[0], f(5, 3)),
    "linalg.qr": (lambda x: lax.linalg.qr(x, full_matrices=False), f(4, 3)),
    "linalg.eigh": (lambda x: _up_to_signs(*lax.linalg.eigh(_even(x))), f(4, 4)),
    "linalg.svd": (lambda x: _up_to_signs(*lax.linalg.svd(x, full_matrices=False)), f(4, 3)),
    "linalg.eig": (lambda x: lax.linalg.eig(x)[0], f(4, 4)),
    "linalg.hessenberg": (lax.linalg.hessenberg, f(4, 4)),
    "linalg.schur": (lax.linalg.schur, f(4, 4)),
    "linalg.tridiagonal": (lambda x: lax.linalg.tridiagonal(_even(x)), f(4, 4)),
    "linalg.tridiagonal_solve": (
        lambda x, y: lax.linalg.tridiagonal_solve(x, x + 5, x, y[:, None]),
        f(4),
        f(4),
    ),
    "linalg.qdwh": (lambda x: lax.linalg.qdwh(x)[:2], f(4, 4)),
    "linalg.symmetric_product": (
        lambda x, y: lax.linalg.symmetric_product(x, y, alpha=0.5, beta=2.0),
        f(3, 4),
        f(3, 3),
    ),
    "linalg.cholesky_update": (
        lambda x, y: lax.linalg.cholesky_update(jnp.triu(x) + 4 * jnp.eye(4), y),
        f(4, 4),
        f(4),
    ),
    "linalg.householder_product": (lax.linalg.householder_product, f(4, 3), f(3)),
    "linalg.lu_pivots_to_permutation": (
        lambda x: lax.linalg.lu_pivots_to_permutation(jnp.array([2, 1, 2], "int32"), 4) + x.astype(int),
        f(4),
    ),
}

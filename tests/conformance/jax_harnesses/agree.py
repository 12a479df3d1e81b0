"""Whether results are what a case asks for, where JAX's are one of several right ones.

Columns of eigenvectors and singular vectors may be multiplied by any number of size 1, and a sort that is not
stable, as ``approx_top_k`` is here, leaves open how equal keys follow each other. Everything else is compared
as ``tests/conformance/jax_functions/compare.py`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.conformance.jax_functions.compare import apart

Results = Sequence[np.ndarray]


def differs(case: Any, got: Results, expected: Results, arguments: Results, axes: int = 0) -> str:
    """What differs; nothing where all agrees. ``given`` are the arguments, ``axes`` how many the batch
    has added in front.
    """
    plain = apart(got, expected)
    if not plain or [x.shape for x in got] != [x.shape for x in expected]:
        return plain
    if case.group_name == "sort" and not case.params["is_stable"]:
        axis = case.params["dimension"] + axes
        keys = case.params["num_keys"]
        return apart(got[:keys], expected[:keys]) or apart(_rows(got, axis), _rows(expected, axis))
    if case.group_name == "approx_top_k":
        return apart(got[:1], expected[:1]) or _picks(arguments[0], *got)
    if case.group_name == "svd" and len(got) == 3:
        return apart(got[:1], expected[:1]) or _factors(*_of_svd(got), *_of_svd(expected))
    if case.group_name == "eigh":
        return apart(got[1:], expected[1:]) or _factors(*_of_eigh(got), *_of_eigh(expected))
    return plain


def _picks(numbers: np.ndarray, values: np.ndarray, places: np.ndarray) -> str:
    """Values are at their places, of which no two are one."""
    difference = apart([values], [np.take_along_axis(numbers, places, -1)])
    alone = all(len(set(row)) == len(row) for row in places.reshape(-1, places.shape[-1]).tolist())
    return difference or ("" if alone else "a place is taken twice")


def _rows(columns: Results, axis: int) -> list[np.ndarray]:
    """Columns that are sorted together, in the order of all of them."""
    order = np.lexsort(tuple(reversed(columns)), axis=axis)
    return [np.take_along_axis(column, order, axis) for column in columns]


def _of_svd(results: Results) -> tuple[np.ndarray, list[np.ndarray]]:
    values, left, right = results
    count = values.shape[-1]
    product = (left[..., :count] * values[..., None, :]) @ right[..., :count, :]
    return product.astype(left.dtype), [left, right]


def _of_eigh(results: Results) -> tuple[np.ndarray, list[np.ndarray]]:
    vectors, values = results
    product = (vectors * values[..., None, :]) @ _adjoint(vectors)
    return product.astype(vectors.dtype), [vectors]


def _factors(
    product: np.ndarray, factors: list[np.ndarray], expected: np.ndarray, like: list[np.ndarray]
) -> str:
    """Products agree, and each factor has columns, or rows, that are orthonormal as those of ``like`` are."""
    return apart([product, *map(_gram, factors)], [expected, *map(_gram, like)])


def _gram(factor: np.ndarray) -> np.ndarray:
    """The products of columns with each other, or of rows where these are fewer."""
    tall = factor.shape[-2] >= factor.shape[-1]
    return _adjoint(factor) @ factor if tall else factor @ _adjoint(factor)


def _adjoint(matrix: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(matrix, -1, -2))
